"""AddRaftVoter: make a node a voter of the controller quorum (KIP-853)."""

from __future__ import annotations

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.quorum_requests import check_change
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    cluster = context.cluster
    try:
        check_change(context, request.cluster_id)
        cluster.metadata.quorum.add_voter(
            cluster.cluster_id,
            request.voter_id,
            request.voter_directory_id,
            [listener.name for listener in request.listeners],
            cluster.live,
        )
    except ApiError as error:
        return AddRaftVoterResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message
        )
    cluster.save_if_possible()
    return error_response(request, context.version, ErrorCode.NONE)


def error_response(request: AddRaftVoterRequest, version: int, code: int) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=code, error_message=None)
