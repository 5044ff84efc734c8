"""AlterPartitionReassignments: move replicas of partitions, or cancel that (KIP-455)."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

__all__ = ("error_response", "handle")


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    if not context.is_authorized(AclOperation.ALTER, ResourceType.CLUSTER):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.accepts_controller_requests:
        return error_response(request, context.version, ErrorCode.NOT_CONTROLLER)

    def alter(topic: str, partition: ReassignablePartition) -> ApiError | None:
        try:
            _alter(context, topic, partition, request.allow_replication_factor_change)
        except ApiError as error:
            return error
        return None

    response = _response(request, ErrorCode.NONE, alter)
    await context.wait_for_metadata(request.timeout_ms)
    return response


def error_response(
    request: AlterPartitionReassignmentsRequest, version: int, code: int
) -> AlterPartitionReassignmentsResponse:
    error = ApiError(ErrorCode(code))
    return _response(request, code, lambda topic, partition: error)


def _alter(
    context: RequestContext,
    topic: str,
    requested: ReassignablePartition,
    allow_factor_change: bool,
) -> None:
    cluster, index = context.cluster, requested.partition_index
    known = cluster.topics.get(topic)
    if known is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}."
        )
    if not 0 <= index < len(known.partitions):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}."
        )
    partition = known.partitions[index]
    if requested.replicas is None:
        cluster.cancel_reassignment(partition)
    else:
        cluster.reassign(partition, requested.replicas, allow_factor_change=allow_factor_change)


def _response(
    request: AlterPartitionReassignmentsRequest,
    code: int,
    error_of: Callable[[str, ReassignablePartition], ApiError | None],
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=None if request.topics or code else "",
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.NONE if error is None else error.code,
                        error_message=None if error is None else error.message,
                    )
                    for partition in topic.partitions
                    for error in (error_of(topic.name, partition),)
                ],
            )
            for topic in request.topics
        ],
    )
