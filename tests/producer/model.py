"""A synchronous model of Kafka's brokers: logs, producer state, connections.

Requests stay in a connection until a test processes them. The requests of a broken connection may
still be processed at any later time.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field

from aiokafkawire.errors import ConnectionLost
from aiokafkawire.producer.accumulator import Accumulator
from aiokafkawire.producer.accumulator_config import AccumulatorConfig, QueueConfig
from aiokafkawire.producer.attempt_result import (
    AttemptResult,
    result_from_code,
    result_from_failure,
)
from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.delivery import Delivery
from aiokafkawire.producer.partition_queue import PartitionQueue
from aiokafkawire.producer.sequences import (
    SEQUENCE_MODULUS,
    BatchSequence,
    ProducerIdState,
    Sequencing,
)
from aiokafkawire.records import Compression
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire.error_codes import ErrorCode

DEDUP_BATCHES = 5


def accumulator_config(**changes: object) -> AccumulatorConfig:
    queue = {
        "batch_size_bytes": 100,
        "linger_s": 0.005,
        "delivery_timeout_s": 10.0,
        "max_in_flight": 5,
        "retries": 2**31 - 1,
    }
    rest = {
        "buffer_memory_bytes": 1 << 20,
        "compression": Compression.NONE,
        "compression_level": None,
    }
    for name, value in changes.items():
        (queue if name in queue else rest)[name] = value
    return AccumulatorConfig(QueueConfig(**queue), **rest)  # type: ignore[arg-type]


@dataclass
class Sent:
    """A batch in a request, as a broker sees it."""

    batch: Batch
    topic_partition: TopicPartition
    values: list[bytes]
    sequence: BatchSequence | None
    topic_id: uuid.UUID


@dataclass
class Request:
    node: int
    sent: list[Sent]
    results: list[AttemptResult] | None = None


@dataclass
class ProducerState:
    epoch: int
    batches: deque[tuple[int, int, int]] = field(
        default_factory=lambda: deque(maxlen=DEDUP_BATCHES)
    )  # (base sequence, count, base offset)


class PartitionLog:
    """The log of a partition, shared by all replicas."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.start_offset = 0
        self.refuses_unknown = False
        self.producers: dict[int, ProducerState] = {}
        self.max_batch_records = 1000

    def append(self, sent: Sent) -> tuple[int, int]:
        """Append a batch; return the error code and the base offset."""
        if len(sent.values) > self.max_batch_records:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        sequence = sent.sequence
        if sequence is not None:
            code, offset = self._check(sequence, len(sent.values))
            if code != ErrorCode.NONE or offset >= 0:
                return code, offset
        base = self.end_offset
        self.values += sent.values
        if sequence is not None:
            state = self.producers[sequence.identity.producer_id]
            state.batches.append((sequence.base_sequence, len(sent.values), base))
        return ErrorCode.NONE, base

    def _check(self, sequence: BatchSequence, count: int) -> tuple[int, int]:
        identity, base_sequence = sequence.identity, sequence.base_sequence
        state = self.producers.get(identity.producer_id)
        if state is None and self.refuses_unknown and base_sequence:
            return ErrorCode.UNKNOWN_PRODUCER_ID, -1
        if state is None:
            # As in Kafka: without state of the producer any sequence number may come first.
            self.producers[identity.producer_id] = ProducerState(identity.epoch)
            return ErrorCode.NONE, -1
        if identity.epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if identity.epoch > state.epoch:
            if base_sequence != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.producers[identity.producer_id] = ProducerState(identity.epoch)
            return ErrorCode.NONE, -1
        for base, size, offset in state.batches:
            if (base, size) == (base_sequence, count):
                return ErrorCode.NONE, offset
        last, size, _ = state.batches[-1]
        if base_sequence != (last + size) % SEQUENCE_MODULUS:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return ErrorCode.NONE, -1

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.values)

    def at(self, offset: int) -> bytes | None:
        """Return the value at an offset, or None if it was deleted."""
        return None if offset < self.start_offset else self.values[offset - self.start_offset]

    def delete_all(self) -> None:
        """Delete the records and the producer state, as Kafka up to 2.4 does.

        It then rejects sequence numbers other than 0.
        """
        self.refuses_unknown = True
        self.start_offset = self.end_offset
        self.values = []
        self.producers.clear()


class Cluster:
    """Brokers, and an accumulator that is connected to them."""

    def __init__(
        self,
        partitions: int = 2,
        nodes: int = 2,
        *,
        eager: bool = False,
        direct: bool = False,
        **changes: object,
    ) -> None:
        """Create the cluster.

        Args:
            eager: Drain a ready batch at once if no request is in flight.
            direct: Use `append_alone` too.
        """
        self.eager = eager
        self.direct = direct
        self.nodes = range(1, nodes + 1)
        self.now = 0.0
        self.woken: list[int | None] = []
        self.partitions = range(partitions)
        self.topic_id = uuid.UUID(int=1)
        self.logs = {TopicPartition("t", number): PartitionLog() for number in self.partitions}
        self.deleted: dict[TopicPartition, list[PartitionLog]] = {tp: [] for tp in self.logs}
        self.leaders = {tp: tp.partition % nodes + 1 for tp in self.logs}
        self.connections: dict[int, deque[Request]] = {node: deque() for node in self.nodes}
        self.stale: list[deque[Request]] = []
        self.producer_id_state = ProducerIdState()
        self.next_producer_id = 7
        self.accumulator = Accumulator(
            accumulator_config(**changes),
            self.producer_id_state,
        )
        self.topic = self.accumulator.set_topic("t", self.partitions, self.topic_id)
        self.accumulator.set_leaders(self.leaders.get)
        self.perform()

    def perform(self) -> None:
        """Act on what the accumulator has left, as `Sender.perform` does."""
        effects = self.accumulator.effects
        effects.any_completed = False
        effects.take_failure()
        self.woken += [*effects.wakeups, *effects.ready]
        effects.wakeups.clear()
        while effects.ready:
            node, _ = effects.ready.popitem()
            if self.eager and not self.connections[node]:
                self.drain(node)

    def append(self, partition: int, value: bytes) -> Delivery:
        queue = self.topic.by_partition[partition]
        return self.append_to(queue, None, value, 1, len(value))

    def append_to(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes,
        timestamp_ms: int,
        size_bytes: int,
        **options: bool,
    ) -> Delivery:
        """Append a record, as `RecordAppender.append` does."""
        accumulator, node = self.accumulator, queue.leader
        if (
            self.direct
            and node is not None
            and not self.connections[node]
            and accumulator.sends_immediately
            and queue.open is None
        ):
            batch = accumulator.append_alone(
                self.topic,
                queue,
                key,
                value,
                (),
                timestamp_ms,
                size_bytes=size_bytes,
                now=self.now,
                **options,
            )
            if batch is not None:
                self.send(node, [batch])
                return Delivery(batch.future, 0, timestamp_ms)
        delivery = accumulator.append(
            queue, key, value, (), timestamp_ms, size_bytes=size_bytes, now=self.now, **options
        )
        self.perform()
        assert delivery is not None
        return delivery

    def drain(self, node: int) -> Request | None:
        if len(self.connections[node]) >= 5:
            return None
        batches = self.accumulator.drain(node, self.now, 1000)
        return self.send(node, batches) if batches else None

    def send(self, node: int, batches: list[Batch]) -> Request:
        sent = []
        for batch in batches:
            columns = batch.records.columns()
            values = [columns.value(index) for index in range(batch.count)]
            tp = TopicPartition(batch.future.topic, batch.future.partition)
            sent.append(Sent(batch, tp, values, batch.sequence, self.topic.topic_id))
        request = Request(node, sent)
        self.connections[node].append(request)
        return request

    def process(self, request: Request) -> None:
        """Process a request at its broker, and store the results."""
        request.results = []
        for sent in request.sent:
            if sent.topic_id != self.topic_id:
                code, offset = ErrorCode.UNKNOWN_TOPIC_ID, -1
            elif self.leaders[sent.topic_partition] != request.node:
                code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
            else:
                code, offset = self.logs[sent.topic_partition].append(sent)
            request.results.append(self.result(sent, code, offset))

    def result(self, sent: Sent, code: int, offset: int = -1) -> AttemptResult:
        topic, partition = sent.topic_partition
        return result_from_code(
            code, topic=topic, partition=partition, broker="b", attempt=1, base_offset=offset
        )

    def process_next(self, node: int) -> None:
        request = next((r for r in self.connections[node] if r.results is None), None)
        if request is not None:
            self.process(request)

    def refuse_next(self, node: int, code: int, appended: bool) -> None:
        """Answer the next request with an error; with `appended`, process it first."""
        request = next((r for r in self.connections[node] if r.results is None), None)
        if request is None:
            return
        if appended:
            self.process(request)
        request.results = [self.result(sent, code) for sent in request.sent]

    def deliver_response(self, node: int) -> None:
        """Deliver the oldest response to the producer."""
        connection = self.connections[node]
        if connection and connection[0].results is not None:
            request = connection.popleft()
            self._handle_results(request, request.results)

    def break_connection(self, node: int) -> None:
        connection, self.connections[node] = self.connections[node], deque()
        self.stale.append(deque(r for r in connection if r.results is None))
        lost = result_from_failure(ConnectionLost("broken", sent=True))
        for request in connection:
            self._handle_results(request, [lost] * len(request.sent))

    def process_stale(self, which: int) -> None:
        """Process a request of a connection that was lost."""
        if self.stale:
            connection = self.stale[which % len(self.stale)]
            if connection:
                self.process(connection.popleft())

    def move_leader(self, partition: int, node: int) -> None:
        self.leaders[TopicPartition("t", partition)] = node
        self.accumulator.set_leaders(self.leaders.get)
        self.perform()

    def recreate_topic(self) -> None:
        """Delete and recreate the topic; the producer gets the metadata later."""
        self.topic_id = uuid.UUID(int=self.topic_id.int + 1)
        for tp, log in self.logs.items():
            self.deleted[tp].append(log)
            self.logs[tp] = PartitionLog()

    def learn_topic(self) -> None:
        """Give the current metadata to the producer."""
        self.accumulator.set_topic("t", self.partitions, self.topic_id)
        self.perform()

    def send_all(self, node: int = 1) -> list[Request]:
        """Send every batch that may be sent now."""
        requests = []
        while (request := self.drain(node)) is not None:
            requests.append(request)
        return requests

    def reply(self, request: Request, code: int = ErrorCode.NONE) -> None:
        """Answer one request out of order: process it (NONE), or refuse it with a code."""
        self.connections[request.node].remove(request)
        if code == ErrorCode.NONE:
            self.process(request)
        else:
            request.results = [self.result(sent, code) for sent in request.sent]
        self._handle_results(request, request.results)

    def lose(self, request: Request, *, sent: bool = True) -> None:
        """Break the connection of one request; its response is lost."""
        self.connections[request.node].remove(request)
        self.stale.append(deque([request]))
        lost = result_from_failure(ConnectionLost("broken", sent=sent))
        self._handle_results(request, [lost] * len(request.sent))

    def grant(self, epoch: int = 0) -> None:
        """Assign a new producer id."""
        # A new id cannot fence requests of the old one. After 32,768 epochs none are left.
        self.stale.clear()
        self.producer_id_state.set_producer_id(self.next_producer_id, epoch)
        self.next_producer_id += 1

    def warm_up(self, epoch: int = 0) -> None:
        """Acknowledge one batch in partition 0, so that several may be in flight."""
        self.grant(epoch)
        self.append(0, b"00000000")
        self.settle_all()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.accumulator.expire(self.now)
        self.perform()

    def settle_all(self) -> None:
        """Complete all records, without further errors."""
        self.learn_topic()
        for _ in range(10_000):
            if self.producer_id_state.needs_producer_id:
                self.grant()
            if not self.accumulator.incomplete:
                return
            self.pass_time(0.01)
            for node in self.nodes:
                self.drain(node)
                self.process_next(node)
                self.deliver_response(node)
        raise AssertionError(f"{len(self.accumulator.incomplete)} batches never end")

    def _handle_results(self, request: Request, results: list[AttemptResult]) -> None:
        for sent, result in zip(request.sent, results, strict=True):
            self.accumulator.handle_result(sent.batch, result, self.now, self.now + 0.1)
        self.perform()


def go_near_the_wrap(cluster: Cluster) -> None:
    """Move the sequence numbers of partition 0 close to the wrap."""
    sequences = cluster.topic.by_partition[0].sequences
    if sequences is None or not isinstance(sequences.state, Sequencing):
        return
    identity = sequences.state.identity
    last = SEQUENCE_MODULUS - 5
    sequences.state = Sequencing(identity, last + 1)
    log = cluster.logs[TopicPartition("t", 0)]
    batches = log.producers[identity.producer_id].batches
    batches.clear()
    batches.append((last, 1, log.end_offset - 1))


def ready_cluster(**changes: object) -> Cluster:
    """Return a cluster whose producer has a producer id."""
    cluster = Cluster(**changes)
    cluster.producer_id_state.set_producer_id(7, 0)
    return cluster
