"""Produce: check batches, give them offsets, append them."""

from __future__ import annotations

import logging
from itertools import chain

from aiokafkawire.broker.apis.acks import ALL_IN_SYNC, Written, acknowledged
from aiokafkawire.broker.apis.base import NodeEndpoints
from aiokafkawire.broker.apis.transactional_writes import admit
from aiokafkawire.broker.call import Call, Disconnect
from aiokafkawire.broker.conversion import up_converted
from aiokafkawire.broker.log import PartitionLog, sequenced
from aiokafkawire.broker.producers import SequencedBatch
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.topics import Partition, Topic
from aiokafkawire.errors import CorruptRecords
from aiokafkawire.records.batch import MAGIC_V2, BatchView, iter_batches
from aiokafkawire.records.compression import Compression
from aiokafkawire.records.server import assign_offsets, validate_produced
from aiokafkawire.wire import Buffer, ErrorCode
from aiokafkawire.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

__all__ = ("failed", "handle")

logger = logging.getLogger("aiokafkawire.broker")

TOLD_WITH_LOG_START = {
    *(ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    *(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID),
    ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""What the log refused, not what was asked of it: the answer tells where it starts."""

LEADER_ALONE = 1
VALID_ACKS = (ALL_IN_SYNC, 0, LEADER_ALONE)
FIRST_BATCH_VERSION = 3
FIRST_STORAGE_ERROR_VERSION = 4
"""Older clients do not know KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER they retry (KIP-112)."""

FIRST_ZSTD_VERSION = 7
FIRST_ID_VERSION = 13


async def handle(call: Call, request: ProduceRequest) -> ProduceResponse | None:
    """Append everything at once; then wait for replicas, unless all nodes share one log."""
    endpoints = NodeEndpoints(call)
    responses = []
    written: list[Written] = []
    for topic in request.topic_data:
        partitions = []
        for data in topic.partition_data:
            outcome = _produced(call, request, topic, data, endpoints)
            if isinstance(outcome, Written):
                written.append(outcome)
                outcome = outcome.response
            partitions.append(outcome)
        responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=partitions
            )
        )
    if request.acks == 0:
        _disconnect_on_error(responses)
        return None
    if request.acks != LEADER_ALONE and call.replicas is not None:
        await acknowledged(call, request.acks, request.timeout_ms, written)
    return ProduceResponse(responses=responses, node_endpoints=endpoints.nodes)


def failed(request: ProduceRequest, version: int, code: int) -> ProduceResponse | None:
    if request.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _disconnect_on_error(responses: list[TopicProduceResponse]) -> None:
    # A producer with acks=0 reads no response; the end of its connection is all it can be told.
    for topic in responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise Disconnect(
                    f"acks=0 and {ErrorCode(partition.error_code).name} for "
                    f"{topic.name or topic.topic_id}-{partition.index}"
                )


def _produced(
    call: Call,
    request: ProduceRequest,
    topic_data: TopicProduceData,
    data: PartitionProduceData,
    endpoints: NodeEndpoints,
) -> Written | PartitionProduceResponse:
    """What was written to one partition, or the answer why nothing was."""
    partition: Partition | None = None
    try:
        if request.acks not in VALID_ACKS and not call.release.takes_any_acks:
            raise Refusal(ErrorCode.INVALID_REQUIRED_ACKS)
        topic = (
            call.cluster.topic_by_id(topic_data.topic_id)
            if call.version >= FIRST_ID_VERSION
            else call.cluster.topic(topic_data.name)
        )
        partition = call.partition(topic, data.index)
        call.check_leader(partition)
        return _append(call, request, topic, partition, data.records)
    except Refusal as refusal:
        code = call.release.code(refusal.code)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and call.version < FIRST_STORAGE_ERROR_VERSION:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        response = PartitionProduceResponse(
            index=data.index, error_code=code, base_offset=-1, error_message=refusal.message
        )
        if isinstance(refusal, _RecordRefusal):
            response.record_errors = [
                BatchIndexAndErrorMessage(
                    batch_index=refusal.index, batch_index_error_message=refusal.message
                )
            ]
        of_log = isinstance(refusal, _RecordRefusal) and code is not ErrorCode.CORRUPT_MESSAGE
        if partition and (of_log or code in TOLD_WITH_LOG_START):
            response.log_start_offset = partition.log.start_offset
        if refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition and call.version >= 10:
            response.current_leader = endpoints.leader(partition.leader, partition.leader_epoch)
        return response


class _RecordRefusal(Refusal):
    """One record of a batch is the reason."""

    def __init__(self, code: ErrorCode, index: int, message: str) -> None:
        super().__init__(code, message)
        self.index = index


def _append(
    call: Call, request: ProduceRequest, topic: Topic, partition: Partition, records: Buffer | None
) -> Written:
    options = call.state.options
    wanted = topic.number("min.insync.replicas", options.min_insync_replicas)
    # A topic with fewer replicas than that could never be written to.
    needed = min(wanted, len(partition.replicas))
    if request.acks == ALL_IN_SYNC and len(partition.isr) < needed:
        raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS)
    now_ms = call.state.clock.wall_ms()
    batches = _validated(call, topic, records, now_ms)
    release = call.release
    if release.up_converts:
        batches = up_converted(batches, release.magic)
    for batch in batches:
        if batch.is_transactional:
            admit(call, request.transactional_id, partition, batch)
    append_time = now_ms if topic.log_append_time else None
    duplicate = _check_sequences(partition.log, batches)
    log = partition.log
    if duplicate is not None:
        base_offset = duplicate.first_offset
        append_time = duplicate.timestamp_ms
    else:
        base_offset = log.end_offset
        try:
            for batch in batches:
                stored = assign_offsets(batch, log.end_offset, partition.leader_epoch, append_time)
                for view in iter_batches(stored):
                    log.append(bytes(view.buffer), view)
        finally:
            # Of several batches (message formats 0 and 1) some may be stored when one fails.
            if log.end_offset != base_offset:
                partition.appended()
    # Before 0.9 a producer could ask for more replicas than there are, and was told in the end.
    enough = request.acks <= len(partition.isr) or call.replicas is not None
    response = PartitionProduceResponse(
        index=partition.index,
        error_code=ErrorCode.NONE if enough else ErrorCode.REQUEST_TIMED_OUT,
        base_offset=base_offset if batches else -1,
        log_append_time_ms=-1 if append_time is None else append_time,
        log_start_offset=log.start_offset,
    )
    end_offset = base_offset + sum(batch.count for batch in batches)
    return Written(partition, end_offset, needed, response)


def _validated(call: Call, topic: Topic, records: Buffer | None, now_ms: int) -> list[BatchView]:
    """The batches of a partition, in which everything was checked but sequences."""
    options = call.state.options
    try:
        heads = list(iter_batches(records or b""))
        _check_format(call, heads)
        limit = topic.number("max.message.bytes", options.max_message_bytes)
        for head in heads:
            if head.size_bytes > limit:
                raise Refusal(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"a batch of {head.size_bytes} bytes is over the limit of {limit}",
                )
            head.check_crc()
    except CorruptRecords as error:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    try:
        batches = validate_produced(records or b"", options.max_decompressed_bytes)
    except CorruptRecords as error:
        # The checksum is right, so it was the producer who wrote what makes no sense.
        raise Refusal(ErrorCode.INVALID_RECORD, str(error)) from error
    ahead = topic.number("message.timestamp.after.max.ms", options.timestamp_after_max_ms)
    for batch in batches:
        _check_times(topic, batch, now_ms + ahead, options.max_decompressed_bytes)
        if topic.compacted and call.release.since("0.9.0"):
            _check_keys(batch, options.max_decompressed_bytes)
    return batches


def _check_format(call: Call, batches: list[BatchView]) -> None:
    version, release, newest = call.version, call.release, call.release.magic
    if any(batch.magic > newest for batch in batches):
        raise Refusal(ErrorCode.INVALID_RECORD, f"the log holds no format above {newest}")
    if version < FIRST_BATCH_VERSION:
        # Format 1 came with version 2 and format 2 with 3, but brokers never minded.
        return
    if len(batches) != 1 or batches[0].magic != MAGIC_V2:
        reason = f"Produce v{version} carries exactly one batch of format 2 for a partition"
        if not release.since("2.4" if not batches else "2.0"):
            # It took that for a request it could not read.
            raise Disconnect(reason)
        raise Refusal(ErrorCode.INVALID_RECORD, reason)
    (batch,) = batches
    if version < FIRST_ZSTD_VERSION and batch.compression is Compression.ZSTD:
        known = release.since("2.1")
        raise Refusal(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if known else ErrorCode.UNKNOWN_SERVER_ERROR
        )
    if batch.is_transactional and batch.producer_id < 0:
        raise Refusal(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise Refusal(
            ErrorCode.INVALID_RECORD, "a batch with a producer id needs an epoch and a sequence"
        )


def _check_times(topic: Topic, batch: BatchView, latest_ms: int, max_bytes: int) -> None:
    if not topic.log_append_time and batch.max_timestamp > latest_ms:
        times = chain.from_iterable(columns.timestamps for columns in batch.chunks(max_bytes))
        late = (index for index, time in enumerate(times) if time > latest_ms)
        raise _RecordRefusal(
            ErrorCode.INVALID_TIMESTAMP,
            next(late, 0),
            f"timestamp {batch.max_timestamp} is after {latest_ms}, the latest that is allowed",
        )


def _check_keys(batch: BatchView, max_bytes: int) -> None:
    lengths = chain.from_iterable(columns.key_length for columns in batch.chunks(max_bytes))
    for index, length in enumerate(lengths):
        if length < 0:
            raise _RecordRefusal(
                ErrorCode.INVALID_RECORD, index, "a compacted topic takes no record without a key"
            )


def _check_sequences(log: PartitionLog, batches: list[BatchView]) -> SequencedBatch | None:
    if len(batches) != 1:
        return None
    batch = sequenced(batches[0])
    return None if batch is None else log.producers.check(batch)
