"""SyncGroup: the leader sends the assignment, and every member receives its part."""

from __future__ import annotations

from typing import cast

from aiokafkawire.broker.acls import AclOperation
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import await_reply, check_coordinator
from aiokafkawire.broker.groups.events import Result, Sync, SyncResult
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.runtime import Future
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ("error_response", "handle")

FIRST_PROTOCOL_VERSION = 5


async def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    try:
        result = await _sync(context, request)
    except ApiError as error:
        code = error.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The new coordinator does not know the rebalance, so the member must rejoin.
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return error_response(request, context.version, code)
    return SyncGroupResponse(
        error_code=result.code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


def error_response(request: SyncGroupRequest, version: int, code: int) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


async def _sync(context: RequestContext, request: SyncGroupRequest) -> SyncResult:
    check_coordinator(context, request.group_id, AclOperation.READ)
    named = request.protocol_type is not None and request.protocol_name is not None
    if context.version >= FIRST_PROTOCOL_VERSION and not named:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    group = context.state.group_coordinator.get(request.group_id)
    if group is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    reply: Future[Result] = Future()
    event = Sync(
        reply=reply,
        member_id=request.member_id,
        generation=request.generation_id,
        assignments={each.member_id: each.assignment for each in request.assignments},
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
    )
    return cast("SyncResult", await await_reply(context, group, event, reply))
