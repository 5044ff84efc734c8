"""Order without loss and duplicates through all errors, and what may be sent to a broker."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from hypothesis import assume
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiokafkawire.errors import DeliveryTimedOut, DeliveryUnknown, KafkaError
from aiokafkawire.producer.partitioner import partition_for_key
from aiokafkawire.producer.sequences import MAX_EPOCH
from aiokafkawire.producer.topic_queues import MAX_CACHED_KEYS
from aiokafkawire.runtime import NEVER
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ZERO_UUID
from aiokafkawire.wire.error_codes import ErrorCode
from tests.producer.model import Cluster, PartitionLog, Sent, go_near_the_wrap, ready_cluster

NODES = st.sampled_from([1, 2])
PARTITIONS = st.sampled_from([0, 0, 0, 1])
REFUSALS = st.sampled_from(
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.CORRUPT_MESSAGE, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.INVALID_RECORD, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, True),
        (ErrorCode.INVALID_PRODUCER_EPOCH, False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (ErrorCode.UNKNOWN_PRODUCER_ID, False),
    ]
)
SEQUENCE_CODES = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
}


class Producing(RuleBasedStateMachine):
    OPTIONS: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(**self.OPTIONS)
        self.deliveries = {tp: [] for tp in self.cluster.logs}
        self.number = 0

    @rule(partition=PARTITIONS, count=st.integers(1, 12))
    def append(self, partition: int, count: int) -> None:
        for _ in range(count):
            value = b"%08d" % self.number
            self.number += 1
            delivery = self.cluster.append(partition, value)
            self.deliveries[TopicPartition("t", partition)].append((value, delivery))

    @initialize(warm=st.booleans(), epoch=st.sampled_from([0, MAX_EPOCH - 1]), wraps=st.booleans())
    def begin(self, warm: bool, epoch: int, wraps: bool) -> None:
        self.wraps = wraps
        if warm:
            self.cluster.grant(epoch)
            self.append(0, 1)
            self.cluster.settle_all()
            if wraps:
                go_near_the_wrap(self.cluster)

    @rule(partition=PARTITIONS, batches=st.integers(2, 5))
    def pipeline(self, partition: int, batches: int) -> None:
        """Send several requests before a response arrives."""
        self.append(partition, 3 * batches)
        for _ in range(batches):
            self.cluster.drain(self.cluster.leaders[TopicPartition("t", partition)])

    @precondition(lambda self: self.cluster.producer_id_state.needs_producer_id)
    @rule()
    def assign_producer_id(self) -> None:
        self.cluster.grant()

    @rule(node=NODES)
    def drain(self, node: int) -> None:
        self.cluster.drain(node)

    @rule(node=NODES)
    def process(self, node: int) -> None:
        self.cluster.process_next(node)

    @rule(node=NODES)
    def deliver_response(self, node: int) -> None:
        self.cluster.deliver_response(node)

    @rule(node=NODES)
    def round_trip(self, node: int) -> None:
        self.cluster.drain(node)
        self.cluster.process_next(node)
        self.cluster.deliver_response(node)

    @rule(node=NODES, refusal=REFUSALS)
    def refuse(self, node: int, refusal: tuple[int, bool]) -> None:
        request = next((r for r in self.cluster.connections[node] if r.results is None), None)
        if refusal[0] in SEQUENCE_CODES and request is not None:
            # For a batch that is in the log a broker reports a duplicate.
            assume(all(sent.batch.attempts == 1 for sent in request.sent))
        self.cluster.refuse_next(node, *refusal)

    @rule(node=NODES)
    def break_connection(self, node: int) -> None:
        self.cluster.break_connection(node)

    @rule(which=st.integers(0, 5))
    def process_stale(self, which: int) -> None:
        self.cluster.process_stale(which)

    @rule(partition=PARTITIONS, node=NODES)
    def move_leader(self, partition: int, node: int) -> None:
        self.cluster.move_leader(partition, node)

    @rule(partition=PARTITIONS, limit=st.sampled_from([1, 2, 1000]))
    def limit_batches(self, partition: int, limit: int) -> None:
        self.cluster.logs[TopicPartition("t", partition)].max_batch_records = limit

    @rule()
    def recreate_topic(self) -> None:
        self.cluster.recreate_topic()

    @rule()
    def learn_topic(self) -> None:
        self.cluster.learn_topic()

    @rule(partition=PARTITIONS)
    def delete_records(self, partition: int) -> None:
        queue = self.cluster.topic.by_partition[partition]
        # A log that lost its producer state accepts a wrapped 0 as a first sequence number.
        assume(not self.wraps)
        # Otherwise the log may have had, and lost, a batch that the producer retries.
        assume(not queue.in_flight and not any(batch.uncertain for batch in queue.waiting))
        assume(not any(self.cluster.stale))
        self.cluster.logs[TopicPartition("t", partition)].delete_all()

    @rule()
    def forget_producers(self) -> None:
        """Let brokers expire the producer state: nothing is sent for a day."""
        cluster = self.cluster
        assume(not cluster.accumulator.incomplete and not any(cluster.stale))
        cluster.pass_time(86_400.0)
        for log in cluster.logs.values():
            log.producers.clear()

    @rule(seconds=st.sampled_from([0.01, 0.2, 4.0, 11.0]))
    def pass_time(self, seconds: float) -> None:
        self.cluster.pass_time(seconds)

    @invariant()
    def no_record_twice_and_all_in_order(self) -> None:
        for tp, log in self.cluster.logs.items():
            for each in (log, *self.cluster.deleted[tp]):
                assert each.values == sorted(set(each.values))

    @invariant()
    def at_most_five_batches_of_a_partition_in_flight(self) -> None:
        for queue in self.cluster.topic.queues:
            assert len(queue.in_flight) <= 5

    def teardown(self) -> None:
        cluster = self.cluster
        cluster.settle_all()
        for stale in cluster.stale:
            while stale:
                cluster.process(stale.popleft())
        self.no_record_twice_and_all_in_order()
        for tp, deliveries in self.deliveries.items():
            self._check_outcomes([cluster.logs[tp], *cluster.deleted[tp]], deliveries)
        assert cluster.accumulator.pool.used_bytes == 0

    def _check_outcomes(self, logs: list[PartitionLog], deliveries: list) -> None:
        for value, delivery in deliveries:
            try:
                offset = delivery.result().offset
            except DeliveryUnknown:
                continue
            except KafkaError:
                written = any(value in log.values for log in logs)
                assert not written
            else:
                assert offset < 0 or any(
                    log.at(offset) in {value, None} for log in logs if offset < log.end_offset
                )


Producing.TestCase.settings = hypothesis_settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
TestProducing = Producing.TestCase


class ProducingOneByOne(Producing):
    """Without linger, a record that waits for nothing is sent in the call that appends it."""

    OPTIONS = MappingProxyType({"linger_s": 0.0, "eager": True, "direct": True})


ProducingOneByOne.TestCase.settings = Producing.TestCase.settings
TestProducingOneByOne = ProducingOneByOne.TestCase


# --- batches by broker ---


def sent_partitions(cluster: Cluster, max_bytes: int = 10_000) -> list[int]:
    batches = cluster.accumulator.drain(1, cluster.now, max_bytes)
    return [batch.future.partition for batch in batches]


def test_an_open_batch_lingers_and_a_full_one_does_not():
    cluster = ready_cluster(partitions=1, nodes=1, batch_size_bytes=200)
    cluster.now = 1.0
    assert cluster.accumulator.sendable_at(1) == NEVER
    cluster.append(0, b"x" * 50)
    assert cluster.accumulator.sendable_at(1) == pytest.approx(1.005)
    assert sent_partitions(cluster) == []
    cluster.append(0, b"x" * 50)
    cluster.append(0, b"x" * 50)
    assert cluster.accumulator.sendable_at(1) <= 1.0
    assert sent_partitions(cluster) == [0]


def test_a_flush_ends_the_linger_of_all_batches():
    cluster = ready_cluster(partitions=2, nodes=1)
    cluster.append(0, b"x")
    cluster.append(1, b"x")
    cluster.woken.clear()
    cluster.accumulator.begin_flush()
    assert list(cluster.accumulator.effects.ready) == [1]
    assert sent_partitions(cluster) == [0, 1]
    cluster.accumulator.end_flush()
    cluster.append(0, b"x")
    assert sent_partitions(cluster) == []


def test_partitions_left_out_of_a_request_come_first_in_the_next():
    cluster = ready_cluster(partitions=3, nodes=1, batch_size_bytes=1)
    for partition in (0, 1, 2):
        cluster.append(partition, b"x" * 100)
    cluster.append(0, b"x" * 100)
    assert sent_partitions(cluster, 400) == [0, 1]
    assert sent_partitions(cluster, 400) == [2]


def test_a_partition_with_a_backlog_does_not_starve_the_others():
    cluster = ready_cluster(partitions=4, nodes=1, batch_size_bytes=1)
    for _ in range(20):
        cluster.append(0, b"x" * 100)
    for partition in (1, 2, 3):
        for _ in range(3):
            cluster.append(partition, b"x" * 100)
    order = []
    for _ in range(9):
        # A request has space for two batches; its response arrives before the next one.
        batches = cluster.accumulator.drain(1, cluster.now, 400)
        order += [batch.future.partition for batch in batches]
        for batch in batches:
            tp = TopicPartition("t", batch.future.partition)
            sent = Sent(batch, tp, [], batch.sequence, cluster.topic_id)
            result = cluster.result(sent, ErrorCode.NONE, 0)
            cluster.accumulator.handle_result(batch, result, cluster.now, cluster.now)
    assert order[:12] == [0, 1, 2, 3] * 3


def test_a_batch_suspected_for_its_size_is_sent_alone():
    cluster = ready_cluster(partitions=3, nodes=1, batch_size_bytes=1)
    for partition in range(3):
        cluster.append(partition, b"x" * 100)
    cluster.topic.by_partition[1].waiting[0].oversize_disconnects = 1
    assert not cluster.accumulator.oversize_suspect_due(1, cluster.now)
    assert sent_partitions(cluster) == [0]
    assert cluster.accumulator.oversize_suspect_due(1, cluster.now)
    assert sent_partitions(cluster) == [1]
    assert sent_partitions(cluster) == [2]
    assert not cluster.accumulator.oversize_suspect_due(1, cluster.now)


def test_a_batch_larger_than_a_request_is_sent_alone():
    cluster = ready_cluster(partitions=2, nodes=1, batch_size_bytes=1)
    cluster.append(0, b"x" * 500)
    cluster.append(1, b"x" * 500)
    assert sent_partitions(cluster, 100) == [0]
    assert sent_partitions(cluster, 100) == [1]


def test_batches_move_to_the_new_leader():
    cluster = ready_cluster(partitions=1, nodes=2, batch_size_bytes=1)
    cluster.append(0, b"x")
    cluster.woken.clear()
    cluster.move_leader(0, 2)
    assert cluster.woken == [2]
    assert cluster.drain(1) is None
    assert cluster.drain(2) is not None


def test_a_new_topic_looks_up_only_its_own_leaders():
    cluster = ready_cluster()
    topic = cluster.accumulator.set_topic("other", [0, 1], ZERO_UUID)
    asked: list[TopicPartition] = []

    def leader_of(topic_partition: TopicPartition) -> int:
        asked.append(topic_partition)
        return 7

    cluster.accumulator.set_leaders(leader_of, [topic])
    assert asked == [TopicPartition("other", 0), TopicPartition("other", 1)]
    assert [queue.leader for queue in topic.queues] == [7, 7]


def test_records_wait_for_a_leader():
    cluster = ready_cluster(partitions=1, nodes=1, batch_size_bytes=1)
    cluster.accumulator.set_leaders(lambda _: None)
    cluster.woken.clear()
    cluster.append(0, b"x")
    assert set(cluster.woken) == {None}
    assert cluster.accumulator.leader_missing
    cluster.accumulator.set_leaders(cluster.leaders.get)
    assert not cluster.accumulator.leader_missing
    assert cluster.drain(1) is not None


def test_memory_is_used_and_released():
    cluster = ready_cluster(partitions=1, nodes=1, batch_size_bytes=1, buffer_memory_bytes=10)
    assert cluster.accumulator.pool.has_room(10)
    cluster.append(0, b"123456")
    assert not cluster.accumulator.pool.has_room(5)
    assert cluster.accumulator.pool.has_room(4)
    cluster.settle_all()
    assert cluster.accumulator.pool.used_bytes == 0


def test_a_batch_reserves_memory_and_releases_what_it_did_not_use():
    cluster = ready_cluster(
        partitions=2, nodes=1, batch_size_bytes=600, buffer_memory_bytes=512_000
    )
    accumulator = cluster.accumulator
    cluster.append(0, b"123456")
    assert accumulator.pool.used_bytes == 600
    cluster.append(0, b"123456")
    assert accumulator.pool.used_bytes == 600
    # A record without space gets the memory that other batches have reserved.
    assert accumulator.pool.has_room(511_900)
    used = accumulator.pool.used_bytes
    assert 12 < used < 100
    assert cluster.topic.by_partition[0].builder is None
    # No batch reserves memory during a flush.
    accumulator.begin_flush()
    cluster.append(1, b"123456")
    assert accumulator.pool.used_bytes < used + 20
    accumulator.end_flush()
    cluster.append(1, b"123456")
    assert accumulator.pool.used_bytes > 600
    cluster.now = 1.0
    cluster.drain(1)
    assert accumulator.pool.used_bytes < 100
    cluster.settle_all()
    assert accumulator.pool.used_bytes == 0


def test_records_of_the_fast_path_stay_within_the_batch_reservation():
    cluster = ready_cluster(
        partitions=1, nodes=1, batch_size_bytes=600, buffer_memory_bytes=102_400
    )
    cluster.append(0, b"1" * 30)
    queue = cluster.topic.by_partition[0]
    while queue.builder.put(1, None, b"1" * 30) is not None:
        assert queue.builder.body_bytes <= cluster.accumulator.pool.used_bytes <= 200
    before = queue.builder.count
    assert before > 2
    cluster.append(0, b"1" * 30)
    assert queue.builder.count == before + 1
    assert 200 < cluster.accumulator.pool.used_bytes <= 400


def test_a_record_without_key_switches_the_partition_when_the_batch_is_full():
    cluster = ready_cluster(partitions=2, nodes=1, batch_size_bytes=300)
    rng = random.Random(1)
    accumulator, topic = cluster.accumulator, cluster.topic
    first = accumulator.choose_sticky_queue(topic, rng, 0.0)
    cluster.append(first.topic_partition.partition, b"x" * 150)
    rest = {"size_bytes": 200, "now": 0.0, "can_switch_partition": True}
    assert accumulator.append(first, None, b"x" * 150, (), 1, **rest) is None
    assert first.open is None
    assert topic.sticky_queue is None or topic.sticky_bytes < 300


def test_due_batches_can_be_closed_before_they_are_drained():
    cluster = ready_cluster(partitions=2, nodes=1)
    cluster.append(0, b"x")
    cluster.now = 1.0
    cluster.append(1, b"y")
    assert cluster.accumulator.close_due(1, cluster.now, min_bytes=1_000) == []
    [batch] = cluster.accumulator.close_due(1, cluster.now, min_bytes=1)
    assert batch.future.partition == 0
    assert batch.records is not None
    cluster.append(0, b"z")  # begins another batch
    assert sent_partitions(cluster) == [0]


def test_a_topic_gets_more_partitions():
    cluster = ready_cluster(partitions=1, nodes=1)
    first = cluster.topic.queue_for_key(b"key")
    cluster.accumulator.set_topic("t", range(40), uuid.UUID(int=1))
    assert len(cluster.topic.queues) == 40
    assert cluster.topic.queues[0] is first
    assert (
        cluster.topic.queue_for_key(b"key") is cluster.topic.queues[partition_for_key(b"key", 40)]
    )


def test_only_another_topic_id_means_a_recreated_topic():
    cluster = ready_cluster(partitions=1, nodes=1, batch_size_bytes=1)
    cluster.warm_up()
    for topic_id, renewed in (
        (ZERO_UUID, False),
        (uuid.UUID(int=1), False),
        (uuid.UUID(int=2), True),
    ):
        cluster.accumulator.set_topic("t", range(1), topic_id)
        assert cluster.topic.queues[0].sequences.draining is renewed


def test_batches_for_an_unusable_broker_fail():
    cluster = ready_cluster(partitions=2, nodes=2)
    mine, other = cluster.append(0, b"x"), cluster.append(1, b"y")
    cluster.accumulator.abort(KafkaError("refused"), 1)
    with pytest.raises(KafkaError, match="refused"):
        mine.result()
    assert not other.done


def test_expire_returns_the_next_expiry():
    cluster = ready_cluster(partitions=2, nodes=1)
    assert cluster.accumulator.expire(0.0) == NEVER
    cluster.append(1, b"x")
    cluster.now = 2.0
    cluster.append(0, b"x")
    assert cluster.accumulator.expire(2.0) == 10.0
    assert cluster.accumulator.expire(10.0) == 12.0
    assert cluster.accumulator.expire(12.0) == NEVER


def test_the_key_cache_is_bounded():
    cluster = ready_cluster(partitions=7, nodes=1)
    for number in range(MAX_CACHED_KEYS + 10):
        cluster.topic.queue_for_key(b"%d" % number)
    cluster.topic.queue_for_key(b"x" * 100)
    assert len(cluster.topic._key_cache) == 10


# --- partitions of records without a key ---


def chosen(cluster: Cluster, times: int = 300) -> set[int]:
    rng = random.Random(5)
    found = set()
    for _ in range(times):
        cluster.topic.sticky_queue = None
        queue = cluster.accumulator.choose_sticky_queue(cluster.topic, rng, cluster.now)
        found.add(queue.topic_partition.partition)
    return found


def long_queue_share(**changes: object) -> float:
    cluster = ready_cluster(partitions=2, nodes=1, batch_size_bytes=1, **changes)
    for _ in range(9):
        cluster.append(0, b"x")
    rng, hits = random.Random(5), 0
    for _ in range(1_000):
        cluster.topic.sticky_queue = None
        queue = cluster.accumulator.choose_sticky_queue(cluster.topic, rng, 0.0)
        hits += queue.topic_partition.partition == 0
    return hits / 1_000


def test_short_queues_get_more_records_with_adaptive_partitioning():
    assert long_queue_share() < 0.15
    assert 0.45 < long_queue_share(adaptive=False) < 0.55


def test_partitions_of_an_unavailable_broker_are_excluded():
    cluster = ready_cluster(partitions=4, nodes=2, batch_size_bytes=1, availability_timeout_s=2.0)
    cluster.append(0, b"x")  # partitions 0 and 2 are at broker 1
    assert chosen(cluster) == {0, 1, 2, 3}
    cluster.now = 3.0
    assert chosen(cluster) == {1, 3}
    cluster.drain(1)
    cluster.append(0, b"x")
    assert chosen(cluster) == {0, 1, 2, 3}
    cluster.append(1, b"x")
    cluster.now = 9.0
    # If all brokers are unavailable, none is excluded.
    assert chosen(cluster) == {0, 1, 2, 3}


def test_no_partition_is_excluded_without_availability_timeout():
    cluster = ready_cluster(partitions=2, nodes=2, batch_size_bytes=1)
    cluster.append(0, b"x")
    cluster.now = 9.0
    assert chosen(cluster) == {0, 1}


def test_partitions_of_the_clients_rack_are_preferred():
    cluster = ready_cluster(partitions=6, nodes=3, batch_size_bytes=1, availability_timeout_s=2.0)
    topics = cluster.accumulator.all_topics
    topics.nodes_in_rack = frozenset({1})
    assert chosen(cluster) == {0, 3}
    cluster.append(0, b"x")
    cluster.now = 3.0
    assert chosen(cluster) == {1, 2, 4, 5}, "broker 1 accepts nothing"
    topics.nodes_in_rack = frozenset({9})
    assert chosen(cluster) == {1, 2, 4, 5}, "no leader is in the rack"


def test_a_partition_without_a_leader_in_the_rack_is_not_available():
    cluster = ready_cluster(partitions=3, nodes=3, batch_size_bytes=1)
    cluster.accumulator.all_topics.nodes_in_rack = frozenset({1})
    cluster.accumulator.set_leaders({TopicPartition("t", 1): 2}.get)
    assert chosen(cluster) == {1}


def test_batches_of_a_deleted_partition_expire():
    cluster = ready_cluster(partitions=2, nodes=1, batch_size_bytes=1)
    delivery = cluster.append(1, b"x")
    cluster.accumulator.set_topic("t", range(1), uuid.UUID(int=2))
    cluster.accumulator.set_leaders({TopicPartition("t", 0): 1}.get)
    assert list(cluster.topic.by_partition) == [0]
    cluster.pass_time(11)
    with pytest.raises(DeliveryTimedOut, match="no longer exists"):
        delivery.result()


def test_totals_count_records_and_batches():
    cluster = Cluster(partitions=1, nodes=1, batch_size_bytes=4096)
    cluster.warm_up()
    cluster.logs[TopicPartition("t", 0)].max_batch_records = 2
    for number in range(1, 5):
        cluster.append(0, b"%08d" % number)
    cluster.settle_all()
    cluster.append(0, b"00000009")
    cluster.pass_time(11)
    totals = cluster.accumulator.totals
    assert (totals.records_delivered, totals.records_failed) == (5, 1)
    assert totals.batches_split == 1
    assert (totals.batches_sent, totals.batches_resent) == (4, 2)
    assert totals.batch_bytes_sent > 4 * 61
