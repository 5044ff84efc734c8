"""LeaveGroup: one member leaves, or several are removed."""

from __future__ import annotations

from aiokafkawire.broker.acls import AclOperation
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import check_coordinator, handle_immediate
from aiokafkawire.broker.groups.events import Leave, Result
from aiokafkawire.broker.groups.group_coordinator import Group
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.runtime import Future
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

__all__ = ("error_response", "handle")

FIRST_MEMBERS_VERSION = 3


async def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    try:
        check_coordinator(context, request.group_id, AclOperation.READ)
    except ApiError as error:
        return error_response(request, context.version, error.code)
    group = context.state.group_coordinator.get(request.group_id)
    if context.version < FIRST_MEMBERS_VERSION:
        member = MemberIdentity(member_id=request.member_id)
        return LeaveGroupResponse(error_code=_left(context, group, member).error_code)
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[_left(context, group, member) for member in request.members],
    )


def error_response(request: LeaveGroupRequest, version: int, code: int) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


def _left(context: RequestContext, group: Group | None, member: MemberIdentity) -> MemberResponse:
    code = ErrorCode.UNKNOWN_MEMBER_ID
    if group is not None:
        reply: Future[Result] = Future()
        event = Leave(
            reply=reply,
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            always_rebalances=context.release.since("4.0"),
        )
        code = handle_immediate(context, group, event, reply)
    return MemberResponse(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
    )
