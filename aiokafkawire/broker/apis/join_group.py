"""JoinGroup: become a member; the answer comes when all have joined."""

from __future__ import annotations

from typing import cast

from aiokafkawire.broker.apis.group_requests import check_coordinator, parked
from aiokafkawire.broker.call import Call
from aiokafkawire.broker.groups.events import Join, JoinResult, Result
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.runtime import Promise
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

__all__ = ("failed", "handle")

FIRST_KNOWN_ID_VERSION = 4
FIRST_NULL_PROTOCOL_VERSION = 7
FIRST_SKIP_VERSION = 9


async def handle(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    try:
        result = await _join(call, request)
    except Refusal as refusal:
        response = failed(request, call.version, refusal.code)
        if refusal.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
            response.generation_id = call.release.unknown_generation
        return response
    protocol = result.protocol
    if protocol is None and call.version < FIRST_NULL_PROTOCOL_VERSION:
        protocol = ""
    return JoinGroupResponse(
        error_code=result.code,
        generation_id=call.release.unknown_generation if result.code else result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )


def failed(request: JoinGroupRequest, version: int, code: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= FIRST_NULL_PROTOCOL_VERSION else "",
        leader="",
        member_id=request.member_id,
        members=[],
    )


async def _join(call: Call, request: JoinGroupRequest) -> JoinResult:
    check_coordinator(call, request.group_id)
    options = call.state.options
    lowest, highest = options.group_min_session_timeout_ms, options.group_max_session_timeout_ms
    if not lowest <= request.session_timeout_ms <= highest:
        raise Refusal(ErrorCode.INVALID_SESSION_TIMEOUT)
    if not request.protocols and not call.release.since("0.11.0"):
        # It looked for one all the same, and had no name for what came of that.
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    groups = call.state.groups
    group = groups.get(request.group_id)
    if group is None:
        if request.member_id:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
        group = groups.create(request.group_id)
    reply: Promise[Result] = Promise()
    rebalance_timeout_ms = (
        request.rebalance_timeout_ms if call.version >= 1 else request.session_timeout_ms
    )
    event = Join(
        reply=reply,
        member_id=request.member_id,
        new_member_id=groups.member_id(request.group_instance_id or call.client_id),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        session_timeout_s=request.session_timeout_ms / 1000,
        rebalance_timeout_s=max(rebalance_timeout_ms, 0) / 1000,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=call.peer.host,
        needs_known_id=call.version >= FIRST_KNOWN_ID_VERSION,
        may_skip_assignment=call.version >= FIRST_SKIP_VERSION,
    )
    return cast("JoinResult", await parked(call, group, event, reply))
