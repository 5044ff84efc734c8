"""ElectLeaders: elect preferred leaders, or any live replicas (KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)

__all__ = ("error_response", "handle")

PREFERRED, UNCLEAN = 0, 1

FIRST_ERROR_CODE_VERSION = 1
"""First version with an error code of the whole response."""


async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if not context.is_authorized(AclOperation.ALTER, ResourceType.CLUSTER):
        return error_response(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.accepts_controller_requests:
        return error_response(request, context.version, ErrorCode.NOT_CONTROLLER)
    if request.election_type not in {PREFERRED, UNCLEAN}:
        unknown = ApiError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
        return _response(_requested(request), unknown.code, lambda topic, index: unknown)

    def elect(topic: str, index: int) -> ApiError | None:
        try:
            _elect(context, topic, index, unclean=request.election_type == UNCLEAN)
        except ApiError as error:
            return error
        return None

    if request.topic_partitions is None:
        every = {
            topic.name: range(len(topic.partitions)) for topic in context.cluster.topics.values()
        }
        response = _response(every, ErrorCode.NONE, elect)
        for result in response.replica_election_results:
            result.partition_result = [
                each
                for each in result.partition_result
                if each.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
    else:
        response = _response(_requested(request), ErrorCode.NONE, elect)
    await context.wait_for_metadata(request.timeout_ms)
    return response


def error_response(request: ElectLeadersRequest, version: int, code: int) -> ElectLeadersResponse:
    error = ApiError(ErrorCode(code))
    top_level = code if version >= FIRST_ERROR_CODE_VERSION else ErrorCode.NONE
    return _response(_requested(request), top_level, lambda topic, index: error)


def _requested(request: ElectLeadersRequest) -> Mapping[str, Sequence[int]]:
    return {each.topic: each.partitions for each in request.topic_partitions or ()}


def _elect(context: RequestContext, topic: str, index: int, *, unclean: bool) -> None:
    known = context.cluster.topics.get(topic)
    if known is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    if not 0 <= index < len(known.partitions):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}"
        )
    context.cluster.elect_leader(known.partitions[index], unclean=unclean)


def _response(
    topics: Mapping[str, Sequence[int]],
    code: int,
    error_of: Callable[[str, int], ApiError | None],
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic,
                partition_result=[
                    ElectLeadersPartitionResult(
                        partition_id=index,
                        error_code=ErrorCode.NONE if error is None else error.code,
                        error_message=None if error is None else error.message,
                    )
                    for index in indexes
                    for error in (error_of(topic, index),)
                ],
            )
            for topic, indexes in topics.items()
        ],
    )
