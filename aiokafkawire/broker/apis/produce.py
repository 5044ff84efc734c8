"""Produce: check batches, assign offsets, append."""

from __future__ import annotations

import logging
from itertools import chain

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.acks import ACKS_ALL, ProducePartitionStatus, wait_for_acks
from aiokafkawire.broker.apis.handler import NodeEndpoints
from aiokafkawire.broker.apis.transaction_verification import verify_transaction
from aiokafkawire.broker.log import PartitionLog, sequenced_batch
from aiokafkawire.broker.message_conversion import up_convert
from aiokafkawire.broker.producer_state import SequencedBatch
from aiokafkawire.broker.request_context import Disconnect, RequestContext
from aiokafkawire.broker.topics import Partition, Topic, is_internal_topic
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records.batch import MAGIC_V2, BatchView, iter_batches
from aiokafkawire.records.broker_records import assign_offsets, recompress, validate_produced
from aiokafkawire.records.compression import Compression
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

__all__ = ("error_response", "handle")

logger = logging.getLogger("aiokafkawire.broker")

RETURNED_WITH_LOG_START = {
    *(ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    *(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID),
    ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""Errors raised by the log rather than by checks of the request: the response includes the log
start offset."""

ACKS_LEADER = 1
VALID_ACKS = (ACKS_ALL, 0, ACKS_LEADER)
FIRST_BATCH_VERSION = 3
FIRST_STORAGE_ERROR_VERSION = 4
"""Older clients do not know KAFKA_STORAGE_ERROR but retry NOT_LEADER_OR_FOLLOWER (KIP-112)."""

FIRST_ZSTD_VERSION = 7
CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
"""Codecs by their names in the config compression.type."""

DEFAULT_GZIP_LEVEL = -1

ADMIN_CLIENT_ID = "__admin_client"
"""Client id that may write to internal topics, as in Kafka."""

FIRST_ID_VERSION = 13


async def handle(context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Append to every partition, then wait for replicas, unless all nodes share one log."""
    if context.state.authorizer is not None and not _may_write_transactions(context, request):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.acks == 0:
            raise Disconnect(f"acks=0 and {code.name}")
        return error_response(request, context.version, code)
    endpoints = NodeEndpoints(context)
    responses = []
    statuses: list[ProducePartitionStatus] = []
    for topic in request.topic_data:
        partitions = []
        for data in topic.partition_data:
            outcome = _produce(context, request, topic, data, endpoints)
            if isinstance(outcome, ProducePartitionStatus):
                statuses.append(outcome)
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
    if request.acks != ACKS_LEADER and context.replica_manager is not None:
        await wait_for_acks(context, request.acks, request.timeout_ms, statuses)
    return ProduceResponse(responses=responses, node_endpoints=endpoints.nodes)


def error_response(request: ProduceRequest, version: int, code: int) -> ProduceResponse | None:
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


def _may_write_transactions(context: RequestContext, request: ProduceRequest) -> bool:
    """Return True if the transactional id is allowed, or no record is transactional."""
    transactional_id = request.transactional_id
    if transactional_id is not None and context.is_authorized(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return True
    records = (data.records for topic in request.topic_data for data in topic.partition_data)
    try:
        return not any(
            batch.is_transactional for each in records for batch in iter_batches(each or b"")
        )
    except CorruptRecord:
        # Refused when the records are checked.
        return True


def _disconnect_on_error(responses: list[TopicProduceResponse]) -> None:
    # With acks=0 there is no response, so closing the connection is the only signal.
    for topic in responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise Disconnect(
                    f"acks=0 and {ErrorCode(partition.error_code).name} for "
                    f"{topic.name or topic.topic_id}-{partition.index}"
                )


def _produce(
    context: RequestContext,
    request: ProduceRequest,
    topic_data: TopicProduceData,
    data: PartitionProduceData,
    endpoints: NodeEndpoints,
) -> ProducePartitionStatus | PartitionProduceResponse:
    """Append to one partition; return its status, or the error response."""
    partition: Partition | None = None
    try:
        if request.acks not in VALID_ACKS and not context.release.allows_acks_above_1:
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
        topic = context.authorized_topic(
            topic_data.name,
            topic_data.topic_id,
            AclOperation.WRITE,
            by_id=context.version >= FIRST_ID_VERSION,
        )
        if is_internal_topic(topic.name) and context.client_id != ADMIN_CLIENT_ID:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = context.partition(topic, data.index)
        context.check_leader(partition)
        return _append(context, request, topic, partition, data.records)
    except ApiError as error:
        code = context.release.translate_error(error.code)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and context.version < FIRST_STORAGE_ERROR_VERSION:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        response = PartitionProduceResponse(
            index=data.index, error_code=code, base_offset=-1, error_message=error.message
        )
        if isinstance(error, _InvalidRecord):
            response.record_errors = [
                BatchIndexAndErrorMessage(
                    batch_index=error.index, batch_index_error_message=error.message
                )
            ]
        of_log = isinstance(error, _InvalidRecord) and code is not ErrorCode.CORRUPT_MESSAGE
        if partition and (of_log or code in RETURNED_WITH_LOG_START):
            response.log_start_offset = partition.log.start_offset
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition and context.version >= 10:
            response.current_leader = endpoints.leader(partition.leader, partition.leader_epoch)
        return response


class _InvalidRecord(ApiError):
    """Error of a single record in a batch."""

    def __init__(self, code: ErrorCode, index: int, message: str) -> None:
        super().__init__(code, message)
        self.index = index


def _append(
    context: RequestContext,
    request: ProduceRequest,
    topic: Topic,
    partition: Partition,
    records: Buffer | None,
) -> ProducePartitionStatus:
    min_insync = int(context.topic_config(topic, "min.insync.replicas"))
    # A topic with fewer replicas could never be written to.
    needed = min(min_insync, len(partition.replicas))
    if request.acks == ACKS_ALL and len(partition.isr) < needed:
        raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    now_ms = context.state.clock.wall_ms()
    batches = _validate(context, topic, records, now_ms)
    release = context.release
    if release.converts_to_latest_format:
        batches = up_convert(batches, release.magic)
    batches = _recompress(context, topic, batches)
    for batch in batches:
        if batch.is_transactional:
            verify_transaction(context, request.transactional_id, partition, batch)
    append_time = now_ms if _uses_log_append_time(context, topic) else None
    duplicate = _find_duplicate(partition.log, batches)
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
            # With several batches (magic 0 and 1), some may be stored before one fails.
            if log.end_offset != base_offset:
                partition.on_append()
    # Before 0.9, acks above the number of replicas end in REQUEST_TIMED_OUT.
    enough = request.acks <= len(partition.isr) or context.replica_manager is not None
    response = PartitionProduceResponse(
        index=partition.index,
        error_code=ErrorCode.NONE if enough else ErrorCode.REQUEST_TIMED_OUT,
        base_offset=base_offset if batches else -1,
        log_append_time_ms=-1 if append_time is None else append_time,
        log_start_offset=log.start_offset,
    )
    end_offset = base_offset + sum(batch.count for batch in batches)
    return ProducePartitionStatus(partition, end_offset, needed, response)


def _validate(
    context: RequestContext, topic: Topic, records: Buffer | None, now_ms: int
) -> list[BatchView]:
    """Return the batches of a partition after every check but that of sequences."""
    options = context.state.options
    try:
        heads = list(iter_batches(records or b""))
        _check_format(context, heads)
        limit = int(context.topic_config(topic, "max.message.bytes"))
        for head in heads:
            _check_size(head, limit)
            head.check_crc()
    except CorruptRecord as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    try:
        batches = validate_produced(records or b"", options.max_decompressed_bytes)
    except CorruptRecord as error:
        # The checksum is valid, so the producer wrote invalid records.
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    ahead = int(context.topic_config(topic, "message.timestamp.after.max.ms"))
    is_compacted = "compact" in context.topic_config(topic, "cleanup.policy")
    for batch in batches:
        if not _uses_log_append_time(context, topic):
            _check_times(batch, now_ms + ahead, options.max_decompressed_bytes)
        if is_compacted and context.release.since("0.9.0"):
            _check_keys(batch, options.max_decompressed_bytes)
    return batches


def _recompress(context: RequestContext, topic: Topic, batches: list[BatchView]) -> list[BatchView]:
    """Return the batches in the codec of the topic, unless that is the producer's."""
    name = context.topic_config(topic, "compression.type")
    if name == "producer":
        return batches
    codec = CODECS[name]
    level = None
    if codec in {Compression.GZIP, Compression.LZ4, Compression.ZSTD}:
        level = int(context.topic_config(topic, f"compression.{name}.level"))
        if codec is Compression.GZIP and level == DEFAULT_GZIP_LEVEL:
            level = None
    limit = int(context.topic_config(topic, "max.message.bytes"))
    found = []
    for batch in batches:
        changed = recompress(batch, codec, level, context.state.options.max_decompressed_bytes)
        _check_size(changed, limit)
        found.append(changed)
    return found


def _check_size(batch: BatchView, limit: int) -> None:
    if batch.size_bytes > limit:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {batch.size_bytes} bytes exceeds max.message.bytes={limit}",
        )


def _check_format(context: RequestContext, batches: list[BatchView]) -> None:
    version, release, newest = context.version, context.release, context.release.magic
    if any(batch.magic > newest for batch in batches):
        raise ApiError(ErrorCode.INVALID_RECORD, f"this release supports no magic above {newest}")
    if version < FIRST_BATCH_VERSION:
        # Magic 1 came with v2 and magic 2 with v3, but brokers accept them in any version.
        return
    if len(batches) != 1 or batches[0].magic != MAGIC_V2:
        reason = f"Produce v{version} needs exactly one batch of magic 2 per partition"
        if not release.since("2.4" if not batches else "2.0"):
            # Those releases treat it as a malformed request.
            raise Disconnect(reason)
        raise ApiError(ErrorCode.INVALID_RECORD, reason)
    (batch,) = batches
    if version < FIRST_ZSTD_VERSION and batch.compression is Compression.ZSTD:
        known = release.since("2.1")
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if known else ErrorCode.UNKNOWN_SERVER_ERROR
        )
    if batch.is_transactional and batch.producer_id < 0:
        raise ApiError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise ApiError(
            ErrorCode.INVALID_RECORD, "a batch with a producer id needs an epoch and a sequence"
        )


def _uses_log_append_time(context: RequestContext, topic: Topic) -> bool:
    return context.topic_config(topic, "message.timestamp.type") == "LogAppendTime"


def _check_times(batch: BatchView, latest_ms: int, max_bytes: int) -> None:
    if batch.max_timestamp > latest_ms:
        times = chain.from_iterable(columns.timestamps for columns in batch.chunks(max_bytes))
        late = (index for index, time in enumerate(times) if time > latest_ms)
        raise _InvalidRecord(
            ErrorCode.INVALID_TIMESTAMP,
            next(late, 0),
            f"timestamp {batch.max_timestamp} is after {latest_ms}, the latest that is allowed",
        )


def _check_keys(batch: BatchView, max_bytes: int) -> None:
    lengths = chain.from_iterable(columns.key_length for columns in batch.chunks(max_bytes))
    for index, length in enumerate(lengths):
        if length < 0:
            raise _InvalidRecord(
                ErrorCode.INVALID_RECORD, index, "records of a compacted topic need a key"
            )


def _find_duplicate(log: PartitionLog, batches: list[BatchView]) -> SequencedBatch | None:
    """Return the stored batch that a retried batch duplicates, or None.

    Raises `ApiError` if the sequence number is out of order. A request of an idempotent producer
    has one batch per partition.
    """
    if len(batches) != 1:
        return None
    batch = sequenced_batch(batches[0])
    return None if batch is None else log.producers.check(batch)
