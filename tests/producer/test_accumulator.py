"""Order, no duplicates and no loss, whatever the brokers and the network do."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiokafkawire.errors import DeliveryUnknown, KafkaError
from aiokafkawire.producer.accumulator import MAX_REMEMBERED_KEYS
from aiokafkawire.producer.partitioner import partition_for_key
from aiokafkawire.runtime import NEVER
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import NO_ID
from aiokafkawire.wire.error_codes import ErrorCode
from tests.producer.model import Cluster

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
    ]
)


class Producing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.deliveries = {tp: [] for tp in self.cluster.logs}
        self.number = 0

    @rule(partition=PARTITIONS, count=st.integers(1, 12))
    def append(self, partition: int, count: int) -> None:
        for _ in range(count):
            value = b"%08d" % self.number
            self.number += 1
            delivery = self.cluster.append(partition, value)
            self.deliveries[TopicPartition("t", partition)].append((value, delivery))

    @initialize(warm=st.booleans())
    def begin(self, warm: bool) -> None:
        if warm:
            self.cluster.identities.granted(7, 0)
            self.append(0, 1)
            self.cluster.settle_all()

    @rule(partition=PARTITIONS, batches=st.integers(2, 5))
    def pipeline(self, partition: int, batches: int) -> None:
        """Several requests on their way at once."""
        self.append(partition, 3 * batches)
        for _ in range(batches):
            self.cluster.drain(self.cluster.leaders[TopicPartition("t", partition)])

    @precondition(lambda self: self.cluster.identities.wanted)
    @rule()
    def grant_identity(self) -> None:
        self.cluster.identities.granted(7, 0)

    @rule(node=NODES)
    def drain(self, node: int) -> None:
        self.cluster.drain(node)

    @rule(node=NODES)
    def process(self, node: int) -> None:
        self.cluster.process_next(node)

    @rule(node=NODES)
    def answer(self, node: int) -> None:
        self.cluster.deliver_answer(node)

    @rule(node=NODES)
    def round_trip(self, node: int) -> None:
        self.cluster.drain(node)
        self.cluster.process_next(node)
        self.cluster.deliver_answer(node)

    @rule(node=NODES, refusal=REFUSALS)
    def refuse(self, node: int, refusal: tuple[int, bool]) -> None:
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

    @rule(seconds=st.sampled_from([0.01, 0.2, 4.0, 11.0]))
    def pass_time(self, seconds: float) -> None:
        self.cluster.pass_time(seconds)

    @invariant()
    def no_record_twice_and_all_in_order(self) -> None:
        for log in self.cluster.logs.values():
            assert log.values == sorted(set(log.values))

    @invariant()
    def at_most_five_batches_of_a_partition_in_flight(self) -> None:
        for queue in self.cluster.topic.queues:
            assert len(queue.in_flight) <= 5

    def teardown(self) -> None:
        cluster = self.cluster
        if cluster.identities.wanted:
            cluster.identities.granted(7, 0)
        cluster.settle_all()
        for stale in cluster.stale:
            while stale:
                cluster.process(stale.popleft())
        self.no_record_twice_and_all_in_order()
        for tp, deliveries in self.deliveries.items():
            self._check_outcomes(cluster.logs[tp].values, deliveries)
        assert cluster.accumulator.used_bytes == 0

    def _check_outcomes(self, log: list[bytes], deliveries: list) -> None:
        for value, delivery in deliveries:
            try:
                offset = delivery.result().offset
            except DeliveryUnknown:
                continue
            except KafkaError:
                written = value in log
                assert not written
            else:
                assert log[offset] == value


Producing.TestCase.settings = hypothesis_settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
TestProducing = Producing.TestCase


# --- what each broker may get --------------------------------------------------------------------


def ready_cluster(**changes: object) -> Cluster:
    cluster = Cluster(**changes)
    cluster.identities.granted(7, 0)
    return cluster


def sent_partitions(cluster: Cluster, max_bytes: int = 10_000) -> list[int]:
    batches = cluster.accumulator.drain(1, cluster.now, max_bytes)
    return [batch.receipt.partition for batch in batches]


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


def test_pressing_ends_the_linger_of_all():
    cluster = ready_cluster(partitions=2, nodes=1)
    cluster.append(0, b"x")
    cluster.append(1, b"x")
    cluster.woken.clear()
    cluster.accumulator.press(1)
    assert cluster.woken == [1]
    assert sent_partitions(cluster) == [0, 1]
    cluster.accumulator.press(-1)
    cluster.append(0, b"x")
    assert sent_partitions(cluster) == []


def test_who_was_left_out_of_a_request_comes_first_in_the_next():
    cluster = ready_cluster(partitions=3, nodes=1, batch_size_bytes=1)
    for partition in (0, 1, 2):
        cluster.append(partition, b"x" * 100)
    cluster.append(0, b"x" * 100)
    assert sent_partitions(cluster, 400) == [0, 1]
    assert sent_partitions(cluster, 400) == [2]


def test_a_batch_over_the_limit_of_a_request_goes_alone():
    cluster = ready_cluster(partitions=2, nodes=1, batch_size_bytes=1)
    cluster.append(0, b"x" * 500)
    cluster.append(1, b"x" * 500)
    assert sent_partitions(cluster, 100) == [0]
    assert sent_partitions(cluster, 100) == [1]


def test_batches_move_with_their_leader():
    cluster = ready_cluster(partitions=1, nodes=2, batch_size_bytes=1)
    cluster.append(0, b"x")
    cluster.woken.clear()
    cluster.move_leader(0, 2)
    assert cluster.woken == [2]
    assert cluster.drain(1) is None
    assert cluster.drain(2) is not None


def test_a_new_topic_asks_for_its_own_leaders_alone():
    cluster = ready_cluster()
    topic = cluster.accumulator.set_topic("other", [0, 1], NO_ID)
    asked: list[TopicPartition] = []

    def leader_of(topic_partition: TopicPartition) -> int:
        asked.append(topic_partition)
        return 7

    cluster.accumulator.set_leaders(leader_of, topic)
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


def test_room_is_taken_and_given_back():
    cluster = ready_cluster(partitions=1, nodes=1, batch_size_bytes=1, buffer_memory_bytes=10)
    assert cluster.accumulator.has_room(10)
    cluster.append(0, b"123456")
    assert not cluster.accumulator.has_room(5)
    assert cluster.accumulator.has_room(4)
    cluster.settle_all()
    assert cluster.accumulator.used_bytes == 0


def test_due_batches_can_be_closed_before_they_are_taken():
    cluster = ready_cluster(partitions=2, nodes=1)
    cluster.append(0, b"x")
    cluster.now = 1.0
    cluster.append(1, b"y")
    assert cluster.accumulator.close_due(1, cluster.now, min_bytes=1_000) == []
    [batch] = cluster.accumulator.close_due(1, cluster.now, min_bytes=1)
    assert batch.receipt.partition == 0
    assert batch.records is not None
    cluster.append(0, b"z")  # begins another batch
    assert sent_partitions(cluster) == [0]


def test_more_partitions_come_to_a_topic():
    cluster = ready_cluster(partitions=1, nodes=1)
    first = cluster.topic.for_key(b"key")
    cluster.accumulator.set_topic("t", range(40), uuid.UUID(int=1))
    assert len(cluster.topic.queues) == 40
    assert cluster.topic.queues[0] is first
    assert cluster.topic.for_key(b"key") is cluster.topic.queues[partition_for_key(b"key", 40)]


def test_only_another_topic_id_makes_a_topic_another_one():
    cluster = ready_cluster(partitions=1, nodes=1, batch_size_bytes=1)
    cluster.warm_up()
    for topic_id, renewed in ((NO_ID, False), (uuid.UUID(int=1), False), (uuid.UUID(int=2), True)):
        cluster.accumulator.set_topic("t", range(1), topic_id)
        assert cluster.topic.queues[0].sequences.draining is renewed


def test_an_unusable_broker_fails_what_waits_for_it():
    cluster = ready_cluster(partitions=2, nodes=2)
    mine, other = cluster.append(0, b"x"), cluster.append(1, b"y")
    cluster.accumulator.abort_node(1, KafkaError("refused"))
    with pytest.raises(KafkaError, match="refused"):
        mine.result()
    assert not other.done


def test_the_next_expiry_is_told():
    cluster = ready_cluster(partitions=2, nodes=1)
    assert cluster.accumulator.expire(0.0) == NEVER
    cluster.append(1, b"x")
    cluster.now = 2.0
    cluster.append(0, b"x")
    assert cluster.accumulator.expire(2.0) == 10.0
    assert cluster.accumulator.expire(10.0) == 12.0
    assert cluster.accumulator.expire(12.0) == NEVER


def test_keys_are_remembered_up_to_a_bound():
    cluster = ready_cluster(partitions=7, nodes=1)
    for number in range(MAX_REMEMBERED_KEYS + 10):
        cluster.topic.for_key(b"%d" % number)
    cluster.topic.for_key(b"x" * 100)
    assert len(cluster.topic._by_key) == 10
