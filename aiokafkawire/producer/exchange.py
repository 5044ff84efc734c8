"""Batches to a Produce request, and its response to an answer for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict
from uuid import UUID

from aiokafkawire.errors import KafkaError, UnsupportedVersion
from aiokafkawire.producer.answer import Answer, from_code
from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.delivery import Receipt
from aiokafkawire.producer.outcomes import Verdict
from aiokafkawire.producer.sequences import Stamp
from aiokafkawire.producer.usual import UsualForm
from aiokafkawire.records import ClosedBatch, Compression
from aiokafkawire.records.batch import MAGIC_V2
from aiokafkawire.records.kernel import Buffer
from aiokafkawire.types import ANY_LEADER_EPOCH, TopicPartition
from aiokafkawire.wire import ZERO_UUID
from aiokafkawire.wire.header import RawRequest
from aiokafkawire.wire.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

__all__ = (
    "FIRST_WITH_FORMAT_2",
    "BuiltRequest",
    "LeaderHint",
    "Reading",
    "Terms",
    "build",
    "build_usual",
    "read",
)

FIRST_WITH_ZSTD = 7
FIRST_WITH_FORMAT_1 = 2
FIRST_WITH_FORMAT_2 = 3
FIRST_WITH_TOPIC_IDS = 13


class Terms(TypedDict):
    """What all requests of a producer have in common."""

    acks: int
    timeout_ms: int
    transactional_id: str | None


@dataclass(slots=True)
class BuiltRequest:
    """A request, and what is not in it: batches that this version cannot carry. `size_bytes` is
    what its records take. With `written`, `request` is the same without the records."""

    request: ProduceRequest
    sent: Sequence[Batch]
    size_bytes: int
    refused: Sequence[tuple[Batch, KafkaError]] = ()
    written: RawRequest | None = None


def build(
    batches: Iterable[Batch],
    version: int,
    *,
    acks: int,
    timeout_ms: int,
    topic_ids: Mapping[str, UUID],
    transactional_id: str | None = None,
) -> BuiltRequest:
    """Make one request of batches of different partitions, all of one transaction or of none."""
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[]
    )
    sent: list[Batch] = []
    refused: list[tuple[Batch, KafkaError]] = []
    size_bytes = 0
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        receipt = batch.receipt
        try:
            records = b"".join(_encode(batch, version, transactional_id is not None))
        except KafkaError as error:
            error.topic, error.partition = receipt.topic, receipt.partition
            refused.append((batch, error))
            continue
        topic = topics.get(receipt.topic)
        if topic is None:
            topic = topics[receipt.topic] = TopicProduceData(
                name=receipt.topic,
                topic_id=topic_ids.get(receipt.topic, ZERO_UUID),
                partition_data=[],
            )
            request.topic_data.append(topic)
        topic.partition_data.append(PartitionProduceData(index=receipt.partition, records=records))
        size_bytes += len(records)
        if version < FIRST_WITH_TOPIC_IDS:
            batch.by_name = True
        sent.append(batch)
    return BuiltRequest(request, sent, size_bytes, refused)


def build_usual(batch: Batch, form: UsualForm) -> BuiltRequest:
    """As `build`, of one batch in a form that is known."""
    request, records = form.request, batch.records
    assert records is not None
    parts = _stamped(records, batch.stamp, request.transactional_id is not None)
    if form.version < FIRST_WITH_TOPIC_IDS:
        batch.by_name = True
    size_bytes = records.size_bytes
    written = form.write(batch.receipt.partition, parts, size_bytes)
    return BuiltRequest(request, (batch,), size_bytes, (), written)


def _encode(batch: Batch, version: int, transactional: bool) -> list[Buffer]:
    records = batch.records
    assert records is not None
    if version < FIRST_WITH_ZSTD and records.compression == Compression.ZSTD:
        raise UnsupportedVersion("zstd needs a broker of Kafka 2.1 or later")
    magic = (
        MAGIC_V2 if version >= FIRST_WITH_FORMAT_2 else 1 if version >= FIRST_WITH_FORMAT_1 else 0
    )
    if magic == 0 and batch.receipt.dated:
        raise UnsupportedVersion("record timestamps need a broker of Kafka 0.10 or later")
    return _stamped(records, batch.stamp, transactional, magic)


def _stamped(
    records: ClosedBatch, stamp: Stamp | None, transactional: bool, magic: int = MAGIC_V2
) -> list[Buffer]:
    if stamp is None:
        return records.encode(magic)
    (producer_id, epoch), base_sequence = stamp
    return records.encode(
        magic,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


class LeaderHint(NamedTuple):
    """A broker that is not the leader any more says who is (KIP-951)."""

    topic_partition: TopicPartition
    leader_id: int
    leader_epoch: int
    endpoint: tuple[str, int] | None


class Reading(NamedTuple):
    """What a response says: an answer for each batch, in their order, and newer leaders."""

    answers: list[tuple[Batch, Answer]]
    hints: list[LeaderHint]


def read(
    response: ProduceResponse, batches: Iterable[Batch], request: ProduceRequest, broker: str
) -> Reading:
    """Find each batch's answer. One that the response leaves out may be in the log or not; what
    it says of partitions that nobody asked about is ignored."""
    names: dict[UUID, str] | None = None
    told: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name
        if not name:
            if names is None:
                names = {asked.topic_id: asked.name for asked in request.topic_data}
            name = names.get(topic.topic_id, "")
        for partition in topic.partition_responses:
            told.setdefault((name, partition.index), partition)
    reading = Reading([], [])
    for batch in batches:
        receipt = batch.receipt
        found = told.get((receipt.topic, receipt.partition))
        if found is None:
            topic_partition = TopicPartition(receipt.topic, receipt.partition)
            reading.answers.append((batch, _left_out(topic_partition, broker)))
            continue
        if not found.error_code:
            answer = Answer(Verdict.APPENDED, None, found.base_offset, found.log_append_time_ms)
        else:
            answer = _answer(found, batch, broker)
        reading.answers.append((batch, answer))
        leader = found.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch > ANY_LEADER_EPOCH:
            reading.hints.append(_hint(receipt, leader, response))
    return reading


def _hint(receipt: Receipt, leader: LeaderIdAndEpoch, response: ProduceResponse) -> LeaderHint:
    return LeaderHint(
        TopicPartition(receipt.topic, receipt.partition),
        leader.leader_id,
        leader.leader_epoch,
        next(
            (
                (node.host, node.port)
                for node in reversed(response.node_endpoints)
                if node.node_id == leader.leader_id
            ),
            None,
        ),
    )


def _answer(found: PartitionProduceResponse, batch: Batch, broker: str) -> Answer:
    return from_code(
        found.error_code,
        topic=batch.receipt.topic,
        partition=batch.receipt.partition,
        broker=broker,
        attempt=batch.attempts,
        base_offset=found.base_offset,
        log_append_time_ms=found.log_append_time_ms,
        message=found.error_message,
        record_errors=found.record_errors,
    )


def _left_out(topic_partition: TopicPartition, broker: str) -> Answer:
    error = KafkaError(
        "the response to a Produce request says nothing of this partition",
        broker=broker,
        api="Produce",
        topic=topic_partition.topic,
        partition=topic_partition.partition,
    )
    return Answer(Verdict.RETRY_UNCERTAIN, error)
