"""Heartbeat: stay a member, and hear of a rebalance."""

from __future__ import annotations

from aiokafkawire.broker.apis.group_requests import check_coordinator, code_of
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.groups.events import GroupState, Heartbeat, Result
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.runtime import Promise
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

__all__ = ("failed", "handle")


async def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        check_coordinator(call, request.group_id)
        group = call.state.groups.get(request.group_id)
        if group is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
    except Refusal as refusal:
        if refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Its session begins when the group is loaded; until then nobody can say more.
            return HeartbeatResponse(error_code=ErrorCode.NONE)
        return failed(request, call.version, refusal.code)
    reply: Promise[Result] = Promise()
    event = Heartbeat(
        reply=reply,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
    )
    code = code_of(call, group, event, reply)
    syncing = group.state is GroupState.COMPLETING_REBALANCE
    if code is ErrorCode.NONE and syncing and not call.release.beats_while_syncing:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    return HeartbeatResponse(error_code=code)


def failed(request: HeartbeatRequest, version: int, code: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)
