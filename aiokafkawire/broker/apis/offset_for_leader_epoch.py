"""OffsetForLeaderEpoch: end offsets of epochs, to find where logs diverge."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _partition(context, topic.topic, requested) for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def error_response(
    request: OffsetForLeaderEpochRequest, version: int, code: int
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=requested.partition, error_code=code)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(
    context: RequestContext, name: str, requested: OffsetForLeaderPartition
) -> EpochEndOffset:
    response = EpochEndOffset(partition=requested.partition, error_code=ErrorCode.NONE)
    try:
        context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        partition = context.partition(context.cluster.topic(name), requested.partition)
        partition.check_leader_epoch(requested.current_leader_epoch)
        partition.check_leader(context.node_id)
    except ApiError as error:
        response.error_code = error.code
        return response
    epoch_and_end = partition.log.end_offset_for_epoch(
        requested.leader_epoch, partition.leader_epoch
    )
    if epoch_and_end is not None:
        response.leader_epoch, response.end_offset = epoch_and_end
    return response
