"""LeaveGroup: one member leaves, or several are removed."""

from __future__ import annotations

from aiokafkawire.broker.apis.group_requests import check_coordinator, code_of
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.groups.events import Leave, Result
from aiokafkawire.broker.groups.machine import ClassicGroup
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.runtime import Promise
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

__all__ = ("failed", "handle")

FIRST_MEMBERS_VERSION = 3


async def handle(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    try:
        check_coordinator(call, request.group_id)
    except Refusal as refusal:
        return failed(request, call.version, refusal.code)
    group = call.state.groups.get(request.group_id)
    if call.version < FIRST_MEMBERS_VERSION:
        member = MemberIdentity(member_id=request.member_id)
        return LeaveGroupResponse(error_code=_left(call, group, member).error_code)
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[_left(call, group, member) for member in request.members],
    )


def failed(request: LeaveGroupRequest, version: int, code: int) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


def _left(call: Call, group: ClassicGroup | None, member: MemberIdentity) -> MemberResponse:
    code = ErrorCode.UNKNOWN_MEMBER_ID
    if group is not None:
        reply: Promise[Result] = Promise()
        event = Leave(reply=reply, member_id=member.member_id, instance_id=member.group_instance_id)
        code = code_of(call, group, event, reply)
    return MemberResponse(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
    )
