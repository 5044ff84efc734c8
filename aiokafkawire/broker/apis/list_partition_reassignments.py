"""ListPartitionReassignments: reassignments in progress (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterator

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.broker.topics import Partition
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not context.is_authorized(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.accepts_controller_requests:
        return error_response(request, context.version, ErrorCode.NOT_CONTROLLER)
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for partition in _requested(context, request):
        if partition.adding or partition.removing:
            topics.setdefault(partition.topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=partition.index,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding),
                    removing_replicas=list(partition.removing),
                )
            )
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=each) for name, each in topics.items()
        ],
    )


def error_response(
    request: ListPartitionReassignmentsRequest, version: int, code: int
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=code, error_message=None, topics=[]
    )


def _requested(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Iterator[Partition]:
    """Yield the requested partitions that exist, or all."""
    if request.topics is None:
        yield from context.cluster.partitions()
        return
    for topic in request.topics:
        known = context.cluster.topics.get(topic.name)
        partitions = [] if known is None else known.partitions
        for index in topic.partition_indexes:
            if 0 <= index < len(partitions):
                yield partitions[index]
