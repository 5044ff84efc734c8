"""Heartbeat: keep a membership alive and learn of rebalances."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_coordinator, handle_immediate
from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.events import ClassicGroupState, Heartbeat, Result
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.runtime import Future
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

__all__ = ("error_response", "handle")


async def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        check_coordinator(context, request.group_id, AclOperation.READ)
        group = context.state.group_coordinator.get(request.group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    except ApiError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Sessions start once the group is loaded; until then the heartbeat succeeds.
            return HeartbeatResponse(error_code=ErrorCode.NONE)
        return error_response(request, context.version, error.code)
    reply: Future[Result] = Future()
    event = Heartbeat(
        reply=reply,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
    )
    code = handle_immediate(context, group, event, reply)
    syncing = (
        isinstance(group, ClassicGroup) and group.state is ClassicGroupState.COMPLETING_REBALANCE
    )
    if code is ErrorCode.NONE and syncing and not context.release.accepts_heartbeat_while_syncing:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    return HeartbeatResponse(error_code=code)


def error_response(request: HeartbeatRequest, version: int, code: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)
