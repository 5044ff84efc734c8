"""AlterReplicaLogDirs: a node has one log directory, so no replica can move to another."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.describe_log_dirs import local_replica
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    return _response(
        {
            (topic.name, index): _check(context, directory.path, topic.name, index)
            for directory in request.dirs
            for topic in directory.topics
            for index in topic.partitions
        }
    )


def error_response(
    request: AlterReplicaLogDirsRequest, version: int, code: int
) -> AlterReplicaLogDirsResponse:
    return _response(
        {
            (topic.name, index): code
            for directory in request.dirs
            for topic in directory.topics
            for index in topic.partitions
        }
    )


def _response(codes: dict[tuple[str, int], int]) -> AlterReplicaLogDirsResponse:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), code in codes.items():
        topic = results.setdefault(
            name, AlterReplicaLogDirTopicResult(topic_name=name, partitions=[])
        )
        topic.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        )
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=list(results.values()))


def _check(context: RequestContext, path: str, name: str, index: int) -> ErrorCode:
    try:
        context.authorize(AclOperation.ALTER, ResourceType.CLUSTER)
        if path != context.cluster.log_dir:
            return ErrorCode.LOG_DIR_NOT_FOUND
        local_replica(context, context.cluster.topic(name), index)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
