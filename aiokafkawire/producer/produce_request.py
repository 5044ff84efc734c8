"""Builds Produce requests from batches, and reads the result of each batch from a response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypedDict
from uuid import UUID

from aiokafkawire.errors import KafkaError, UnsupportedVersion
from aiokafkawire.producer.attempt_result import NO_RECORD_ERRORS, AttemptResult, result_from_code
from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.batch_actions import BatchAction
from aiokafkawire.producer.batch_future import BatchFuture
from aiokafkawire.producer.sequences import BatchSequence
from aiokafkawire.records import ClosedBatch, Compression
from aiokafkawire.records.batch import MAGIC_V2
from aiokafkawire.records.kernel import Buffer
from aiokafkawire.types import NO_LEADER_EPOCH, TopicPartition
from aiokafkawire.wire import ZERO_UUID, ApiKey
from aiokafkawire.wire.header import EncodedRequest
from aiokafkawire.wire.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aiokafkawire.wire.template import RequestTemplate, ResponseTemplate

__all__ = (
    "FIRST_FLEXIBLE_PRODUCE",
    "FIRST_WITH_FORMAT_2",
    "BuiltRequest",
    "LeaderHint",
    "ParsedResponse",
    "ProduceParams",
    "ProduceTemplate",
    "build_from_template",
    "build_request",
    "parse_response",
)

_PRODUCE, _APPENDED = ApiKey.PRODUCE, BatchAction.APPENDED
_tuple = tuple.__new__  # makes a NamedTuple in half the time, without checks

FIRST_WITH_ZSTD = 7
FIRST_WITH_FORMAT_1 = 2
FIRST_WITH_FORMAT_2 = 3
FIRST_WITH_TOPIC_IDS = 13


FIRST_FLEXIBLE_PRODUCE = 9
"""First flexible version (Kafka 2.4, KIP-482): templates need compact lengths."""


class ProduceParams(TypedDict):
    """The fields that all Produce requests of a producer share."""

    acks: int
    timeout_ms: int
    transactional_id: str | None


@dataclass(slots=True)
class BuiltRequest:
    """A Produce request with its batches.

    Attributes:
        version: API version of the request.
        request: The request; without records if there is an `encoded` one.
        size_bytes: Size of the encoded records.
        unsupported: Batches that the version does not support; they are not in the request.
        encoded: The encoded request, if it was built from a template.
    """

    version: int
    request: ProduceRequest
    batches: Sequence[Batch]
    size_bytes: int
    unsupported: Sequence[tuple[Batch, KafkaError]] = ()
    encoded: EncodedRequest | None = None


def build_request(
    batches: Iterable[Batch],
    version: int,
    *,
    acks: int,
    timeout_ms: int,
    topic_ids: Mapping[str, UUID],
    transactional_id: str | None = None,
) -> BuiltRequest:
    """Build one request from batches of different partitions.

    Either all batches belong to one transaction or none does.
    """
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[]
    )
    sent: list[Batch] = []
    unsupported: list[tuple[Batch, KafkaError]] = []
    size_bytes = 0
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        future = batch.future
        try:
            records = b"".join(_encode(batch, version, transactional_id is not None))
        except KafkaError as error:
            error.topic, error.partition = future.topic, future.partition
            unsupported.append((batch, error))
            continue
        topic = topics.get(future.topic)
        if topic is None:
            topic = topics[future.topic] = TopicProduceData(
                name=future.topic,
                topic_id=topic_ids.get(future.topic, ZERO_UUID),
                partition_data=[],
            )
            request.topic_data.append(topic)
        topic.partition_data.append(PartitionProduceData(index=future.partition, records=records))
        size_bytes += len(records)
        if version < FIRST_WITH_TOPIC_IDS:
            batch.sent_topic.by_name = True
        sent.append(batch)
    return BuiltRequest(version, request, sent, size_bytes, unsupported)


class ProduceTemplate:
    """Template of the request with one batch and its successful response, for a topic and version.

    Attributes:
        request: Example of the request, without records.
        encode_body: Encodes a request; see `RequestTemplate.encode_with_records`.
    """

    __slots__ = ("_match_response", "encode_body", "request", "topic_id", "version")

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        version: int,
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None,
    ) -> None:
        self.version = version
        self.topic_id = topic_id

        def make_request(index: int) -> ProduceRequest:
            data = PartitionProduceData(index=index, records=b"")
            topic_data = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
            return ProduceRequest(
                transactional_id=transactional_id,
                acks=acks,
                timeout_ms=timeout_ms,
                topic_data=[topic_data],
            )

        def make_response(
            index: int,
            error_code: int,
            base_offset: int,
            log_append_time_ms: int,
            log_start_offset: int,
        ) -> ProduceResponse:
            partition = PartitionProduceResponse(
                index=index,
                error_code=error_code,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                log_start_offset=log_start_offset,
            )
            topic_response = TopicProduceResponse(
                name=topic, topic_id=topic_id, partition_responses=[partition]
            )
            return ProduceResponse(responses=[topic_response])

        self.request = make_request(0)
        self.encode_body = RequestTemplate(make_request, version, "i").encode_with_records
        self._match_response = ResponseTemplate(make_response, version, "ihqqq").match

    def match_response(self, partition: int, frame: memoryview) -> AttemptResult | None:
        """Return the result if the frame only acknowledges the batch; else None."""
        numbers = self._match_response(frame)
        if numbers is None:
            return None
        index, error, base_offset, log_append_time_ms, _ = numbers
        # mutation: error-of-short-produce-response-ignored
        if error or index != partition:
            return None
        return _tuple(
            AttemptResult,
            (_APPENDED, None, base_offset, log_append_time_ms, False, NO_RECORD_ERRORS, 0),
        )


def build_from_template(batch: Batch, template: ProduceTemplate) -> BuiltRequest:
    """Build a request with one batch from a template; otherwise like `build_request`."""
    request, records = template.request, batch.records
    assert records is not None
    parts = _encode_with_sequence(records, batch.sequence, request.transactional_id is not None)
    if template.version < FIRST_WITH_TOPIC_IDS:
        batch.sent_topic.by_name = True
    size_bytes = records.size_bytes
    partition = batch.future.partition
    body = template.encode_body(parts, size_bytes, partition)
    match = partial(template.match_response, partition)
    encoded = _tuple(EncodedRequest, (_PRODUCE, body, match))
    return BuiltRequest(template.version, request, (batch,), size_bytes, (), encoded)


def _encode(batch: Batch, version: int, transactional: bool) -> list[Buffer]:
    records = batch.records
    assert records is not None
    if version < FIRST_WITH_ZSTD and records.compression == Compression.ZSTD:
        raise UnsupportedVersion("zstd needs a broker of Kafka 2.1 or later")
    magic = (
        MAGIC_V2 if version >= FIRST_WITH_FORMAT_2 else 1 if version >= FIRST_WITH_FORMAT_1 else 0
    )
    if magic == 0 and records.has_user_timestamp:
        raise UnsupportedVersion("record timestamps need a broker of Kafka 0.10 or later")
    return _encode_with_sequence(records, batch.sequence, transactional, magic)


def _encode_with_sequence(
    records: ClosedBatch, sequence: BatchSequence | None, transactional: bool, magic: int = MAGIC_V2
) -> list[Buffer]:
    if sequence is None:
        return records.encode(magic)
    (producer_id, epoch), base_sequence = sequence
    return records.encode(
        magic,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


class LeaderHint(NamedTuple):
    """The new leader of a partition, from the response of the old one (KIP-951)."""

    topic_partition: TopicPartition
    leader_id: int
    leader_epoch: int
    endpoint: tuple[str, int] | None


class ParsedResponse(NamedTuple):
    """The result of each batch, in order, and the new leaders."""

    results: list[tuple[Batch, AttemptResult]]
    hints: list[LeaderHint]


def parse_response(
    response: ProduceResponse, batches: Iterable[Batch], request: ProduceRequest, broker: str
) -> ParsedResponse:
    """Return the result of each batch of a request.

    A batch that is missing in the response may be in the log. Partitions that are not in the
    request are ignored.
    """
    names: dict[UUID, str] | None = None
    by_partition: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name
        if not name:
            if names is None:
                names = {requested.topic_id: requested.name for requested in request.topic_data}
            name = names.get(topic.topic_id, "")
        for partition in topic.partition_responses:
            by_partition.setdefault((name, partition.index), partition)
    parsed = ParsedResponse([], [])
    for batch in batches:
        future = batch.future
        partition_response = by_partition.get((future.topic, future.partition))
        if partition_response is None:
            topic_partition = TopicPartition(future.topic, future.partition)
            parsed.results.append((batch, _missing_from_response(topic_partition, broker)))
            continue
        if not partition_response.error_code:
            result = AttemptResult(
                BatchAction.APPENDED,
                None,
                partition_response.base_offset,
                partition_response.log_append_time_ms,
            )
        else:
            result = _result(partition_response, batch, broker)
        parsed.results.append((batch, result))
        leader = partition_response.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch > NO_LEADER_EPOCH:
            parsed.hints.append(_leader_hint(future, leader, response))
    return parsed


def _leader_hint(
    future: BatchFuture, leader: LeaderIdAndEpoch, response: ProduceResponse
) -> LeaderHint:
    return LeaderHint(
        TopicPartition(future.topic, future.partition),
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


def _result(
    partition_response: PartitionProduceResponse, batch: Batch, broker: str
) -> AttemptResult:
    return result_from_code(
        partition_response.error_code,
        topic=batch.future.topic,
        partition=batch.future.partition,
        broker=broker,
        attempt=batch.attempts,
        base_offset=partition_response.base_offset,
        log_append_time_ms=partition_response.log_append_time_ms,
        message=partition_response.error_message,
        record_errors=partition_response.record_errors,
    )


def _missing_from_response(topic_partition: TopicPartition, broker: str) -> AttemptResult:
    error = KafkaError(
        "the Produce response does not contain this partition",
        broker=broker,
        api="Produce",
        topic=topic_partition.topic,
        partition=topic_partition.partition,
    )
    return AttemptResult(BatchAction.RETRY_UNCERTAIN, error)
