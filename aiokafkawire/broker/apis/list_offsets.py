"""ListOffsets: first and last offsets, and offsets by timestamp."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.log import TimestampAndOffset
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import Partition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

__all__ = ("error_response", "handle")

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

FIRST_VERSION: Mapping[int, int] = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""First version that accepts each special timestamp."""

READ_COMMITTED = 1
FIRST_NOT_AVAILABLE_VERSION = 5

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
NOTHING = -1


async def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(context, request, topic.name, requested)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def error_response(request: ListOffsetsRequest, version: int, code: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=requested.partition_index, error_code=code
                    )
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(
    context: RequestContext, request: ListOffsetsRequest, name: str, requested: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(
        partition_index=requested.partition_index, error_code=ErrorCode.NONE
    )
    try:
        on_this_node = request.replica_id == DEBUGGING_REPLICA_ID
        context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        partition = context.partition(
            context.cluster.topic(name), requested.partition_index, on_this_node=on_this_node
        )
        partition.check_leader_epoch(requested.current_leader_epoch)
        if on_this_node:
            context.check_replica(partition)
        else:
            context.check_leader(partition)
        if context.version == 0:
            offsets = _legacy_offsets(
                context, partition, requested.timestamp, _read_limit(request, partition)
            )
            response.old_style_offsets = offsets[: max(requested.max_num_offsets, 0)]
            return response
        result = _find(context, partition, requested.timestamp, _read_limit(request, partition))
        at_the_end = requested.timestamp == LATEST or result.offset == NOTHING
        if at_the_end and request.replica_id == CONSUMER_REPLICA_ID:
            _check_end(context, partition)
    except ApiError as error:
        response.error_code = error.code
        return response
    response.timestamp = result.timestamp_ms
    response.offset = result.offset
    if context.version >= 4:
        response.leader_epoch = result.leader_epoch
    return response


def _check_end(context: RequestContext, partition: Partition) -> None:
    """Raise while the previous leader may have returned a later end offset (KIP-207)."""
    if partition.is_high_watermark_current or not context.release.since("2.2"):
        return
    known = context.version >= FIRST_NOT_AVAILABLE_VERSION
    raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)


def _read_limit(request: ListOffsetsRequest, partition: Partition) -> int:
    """Return the end of the log as the client sees it."""
    if request.replica_id != CONSUMER_REPLICA_ID:
        return partition.log.end_offset
    if request.isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def _is_special_timestamp(context: RequestContext, timestamp: int) -> bool:
    """Return True for a special timestamp. Raises `ApiError` if the version lacks it."""
    first = FIRST_VERSION.get(timestamp)
    if first is not None and context.version >= first:
        return True
    if timestamp < 0 and context.release.since("3.5"):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    return False


def _legacy_offsets(
    context: RequestContext, partition: Partition, timestamp: int, limit: int
) -> list[int]:
    log = partition.log
    _is_special_timestamp(context, timestamp)
    if timestamp == LATEST:
        offsets = log.segment_offsets()
    elif timestamp == EARLIEST:
        offsets = [log.start_offset]
    else:
        offsets = log.segment_offsets_before(timestamp, context.state.clock.wall_ms())
    before = [offset for offset in offsets if offset <= limit]
    return offsets if len(before) == len(offsets) else [limit, *before]


def _find(
    context: RequestContext, partition: Partition, timestamp: int, limit: int
) -> TimestampAndOffset:
    """Return the requested offset, none at or after `limit`."""
    log = partition.log
    if not _is_special_timestamp(context, timestamp):
        result = log.find_offset_by_timestamp(timestamp)
        return (
            result
            if result and result.offset < limit
            else TimestampAndOffset(NOTHING, NOTHING, NOTHING)
        )
    if timestamp == LATEST:
        return TimestampAndOffset(limit, NOTHING, partition.leader_epoch)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        epoch = log.epoch_for_offset(log.start_offset)
        return TimestampAndOffset(
            log.start_offset, NOTHING, partition.leader_epoch if epoch is None else epoch
        )
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        # There is no remote log.
        return TimestampAndOffset(NOTHING, NOTHING, NOTHING)
    return log.find_offset_of_max_timestamp() or TimestampAndOffset(NOTHING, NOTHING, NOTHING)
