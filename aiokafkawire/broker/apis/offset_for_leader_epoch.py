"""OffsetForLeaderEpoch: where an epoch ended, so that a client finds where logs part."""

from __future__ import annotations

from aiokafkawire.broker.call import Call
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

__all__ = ("failed", "handle")


async def handle(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_partition(call, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def failed(
    request: OffsetForLeaderEpochRequest, version: int, code: int
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=asked.partition, error_code=code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(call: Call, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    response = EpochEndOffset(partition=asked.partition, error_code=ErrorCode.NONE)
    try:
        partition = call.partition(call.cluster.topic(name), asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        partition.check_leader(call.node_id)
    except Refusal as refusal:
        response.error_code = refusal.code
        return response
    found = partition.log.epoch_end(asked.leader_epoch, partition.leader_epoch)
    if found is not None:
        response.leader_epoch, response.end_offset = found
    return response
