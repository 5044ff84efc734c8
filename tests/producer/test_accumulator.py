"""Order, no duplicates and no loss, whatever the brokers and the network do."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiokafkawire.errors import DeliveryUnknown, KafkaError
from aiokafkawire.types import TopicPartition
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
