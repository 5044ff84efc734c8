"""SyncGroup: the leader hands out the assignment, every member gets its own."""

from __future__ import annotations

from typing import cast

from aiokafkawire.broker.apis.group_requests import check_coordinator, parked
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.groups.events import Result, Sync, SyncResult
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.runtime import Promise
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ("failed", "handle")

FIRST_PROTOCOL_VERSION = 5


async def handle(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    try:
        result = await _sync(call, request)
    except Refusal as refusal:
        code = refusal.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance is lost with the old coordinator: the member shall join again.
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return failed(request, call.version, code)
    return SyncGroupResponse(
        error_code=result.code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


def failed(request: SyncGroupRequest, version: int, code: int) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


async def _sync(call: Call, request: SyncGroupRequest) -> SyncResult:
    check_coordinator(call, request.group_id)
    named = request.protocol_type is not None and request.protocol_name is not None
    if call.version >= FIRST_PROTOCOL_VERSION and not named:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    group = call.state.groups.get(request.group_id)
    if group is None:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
    reply: Promise[Result] = Promise()
    event = Sync(
        reply=reply,
        member_id=request.member_id,
        generation=request.generation_id,
        assignments={each.member_id: each.assignment for each in request.assignments},
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
    )
    return cast("SyncResult", await parked(call, group, event, reply))
