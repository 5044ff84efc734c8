"""DescribeLogDirs: size of the logs of a node (KIP-113)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import Partition, Topic
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

__all__ = ("error_response", "handle", "local_replica")


async def handle(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    if not context.is_authorized(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(
            throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[]
        )
    wanted: dict[str, set[int]] | None = None if request.topics is None else {}
    for requested in request.topics or ():
        assert wanted is not None
        wanted.setdefault(requested.topic, set()).update(requested.partitions)
    topics = []
    for topic in context.cluster.all_topics().values():
        indexes = None if wanted is None else wanted.get(topic.name, set())
        partitions = list(_partitions(context, topic, indexes))
        if partitions:
            topics.append(DescribeLogDirsTopic(name=topic.name, partitions=partitions))
    total_bytes, usable_bytes = context.cluster.disk_usage()
    return DescribeLogDirsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        results=[
            DescribeLogDirsResult(
                error_code=ErrorCode.NONE,
                log_dir=context.cluster.log_dir,
                topics=topics,
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        ],
    )


def error_response(
    request: DescribeLogDirsRequest, version: int, code: int
) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(
        throttle_time_ms=0,
        error_code=code,
        results=[DescribeLogDirsResult(error_code=code, log_dir="", topics=[])],
    )


def local_replica(context: RequestContext, topic: Topic, index: int) -> Partition:
    """Return the replica of a partition on this node.

    Raises:
        ApiError: The partition does not exist, or not on this node.
    """
    partition = context.cluster.partition(topic, index)
    if context.node_id not in partition.replicas:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return context.partition(topic, index, on_this_node=True)


def _partitions(
    context: RequestContext, topic: Topic, wanted: Collection[int] | None
) -> Iterator[DescribeLogDirsPartition]:
    for each in topic.partitions:
        if wanted is not None and each.index not in wanted:
            continue
        try:
            replica = local_replica(context, topic, each.index)
        except ApiError:
            continue
        yield DescribeLogDirsPartition(
            partition_index=each.index,
            partition_size=replica.log.size_bytes,
            offset_lag=max(replica.high_watermark - replica.log.end_offset, 0),
            is_future_key=False,
        )
