"""ListOffsets: the start, the end, and the offsets of timestamps."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.log import Found
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.topics import Partition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

__all__ = ("failed", "handle")

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
"""Since which version a special timestamp is understood."""

READ_COMMITTED = 1
FIRST_NOT_AVAILABLE_VERSION = 5

CONSUMER = -1
DEBUG_REPLICA = -2
NOTHING = -1


async def handle(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(call, request, topic.name, asked) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def failed(request: ListOffsetsRequest, version: int, code: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(
    call: Call, request: ListOffsetsRequest, name: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=ErrorCode.NONE
    )
    try:
        own = request.replica_id == DEBUG_REPLICA
        partition = call.partition(call.cluster.topic(name), asked.partition_index, own=own)
        partition.check_epoch(asked.current_leader_epoch)
        if own:
            call.check_replica(partition)
        else:
            call.check_leader(partition)
        if call.version == 0:
            offsets = _old_style(call, partition, asked.timestamp, _limit(request, partition))
            response.old_style_offsets = offsets[: max(asked.max_num_offsets, 0)]
            return response
        found = _find(call, partition, asked.timestamp, _limit(request, partition))
        at_the_end = asked.timestamp == LATEST or found.offset == NOTHING
        if at_the_end and request.replica_id == CONSUMER:
            _check_end(call, partition)
    except Refusal as refusal:
        response.error_code = refusal.code
        return response
    response.timestamp = found.timestamp_ms
    response.offset = found.offset
    if call.version >= 4:
        response.leader_epoch = found.leader_epoch
    return response


def _check_end(call: Call, partition: Partition) -> None:
    """Refuse to tell of the end while the leader before may have told of a later one (KIP-207)."""
    if partition.knows_high_watermark or not call.release.since("2.2"):
        return
    known = call.version >= FIRST_NOT_AVAILABLE_VERSION
    raise Refusal(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)


def _limit(request: ListOffsetsRequest, partition: Partition) -> int:
    """Where the log ends for who asks: for consumers before what is not everywhere yet."""
    if request.replica_id != CONSUMER:
        return partition.log.end_offset
    if request.isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def _check_special(call: Call, timestamp: int) -> bool:
    """Whether it stands for a place in the log. Raises `Refusal`."""
    first = FIRST_VERSION.get(timestamp)
    if first is not None and call.version >= first:
        return True
    if timestamp < 0 and call.release.since("3.5"):
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    return False


def _old_style(call: Call, partition: Partition, timestamp: int, limit: int) -> list[int]:
    log = partition.log
    _check_special(call, timestamp)
    if timestamp == LATEST:
        found = log.segment_offsets()
    elif timestamp == EARLIEST:
        found = [log.start_offset]
    else:
        found = log.segment_offsets_before(timestamp, call.state.clock.wall_ms())
    before = [offset for offset in found if offset <= limit]
    return found if len(before) == len(found) else [limit, *before]


def _find(call: Call, partition: Partition, timestamp: int, limit: int) -> Found:
    """What is asked for, as far as it lies before the offset `limit`."""
    log = partition.log
    if not _check_special(call, timestamp):
        found = log.find_timestamp(timestamp)
        return found if found and found.offset < limit else Found(NOTHING, NOTHING, NOTHING)
    if timestamp == LATEST:
        return Found(limit, NOTHING, partition.leader_epoch)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        epoch = log.epoch_at(log.start_offset)
        return Found(log.start_offset, NOTHING, partition.leader_epoch if epoch is None else epoch)
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        # There is no remote log.
        return Found(NOTHING, NOTHING, NOTHING)
    return log.find_max_timestamp() or Found(NOTHING, NOTHING, NOTHING)
