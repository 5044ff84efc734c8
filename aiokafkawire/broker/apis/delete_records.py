"""DeleteRecords: raise the log start offset of partitions (KIP-107)."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import Partition, is_internal_topic
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

__all__ = ("error_response", "handle")

HIGH_WATERMARK = -1
"""Offset that stands for the high watermark."""

NO_LOW_WATERMARK = -1


async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(context, topic.name, each) for each in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def error_response(request: DeleteRecordsRequest, version: int, code: int) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=each.partition_index,
                        low_watermark=NO_LOW_WATERMARK,
                        error_code=code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _delete(
    context: RequestContext, name: str, requested: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        context.authorize(AclOperation.DELETE, ResourceType.TOPIC, name)
        topic = context.cluster.topic(name)
        if is_internal_topic(name):
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = context.partition(topic, requested.partition_index)
        context.check_leader(partition)
        if "delete" not in context.topic_config(topic, "cleanup.policy"):
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        offset = requested.offset
        if offset == HIGH_WATERMARK:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        low_watermark = _delete_before(context, partition, offset)
    except ApiError as error:
        return DeleteRecordsPartitionResult(
            partition_index=requested.partition_index,
            low_watermark=NO_LOW_WATERMARK,
            error_code=error.code,
        )
    return DeleteRecordsPartitionResult(
        partition_index=requested.partition_index,
        low_watermark=low_watermark,
        error_code=ErrorCode.NONE,
    )


def _delete_before(context: RequestContext, partition: Partition, offset: int) -> int:
    """Delete the records of all live replicas; return the lowest log start offset."""
    replication = context.state.replication
    replicas: list[Partition] = [partition]
    if replication is not None:
        known = context.cluster.topics[partition.topic].partitions[partition.index]
        replicas = [*replication.replicas(known)]
    for replica in replicas:
        replica.log.delete_before(offset)
        replica.on_change.notify()
    context.cluster.save()
    return min(replica.log.start_offset for replica in replicas)
