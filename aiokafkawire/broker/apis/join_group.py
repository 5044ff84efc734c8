"""JoinGroup: join a group; the response waits until all members have joined."""

from __future__ import annotations

from typing import cast

from aiokafkawire.broker.acls import AclOperation
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.apis.group_requests import await_reply, check_coordinator
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.events import Join, JoinResult, Result
from aiokafkawire.broker.groups.share_group.group import ShareGroup
from aiokafkawire.broker.request_context import RequestContext
from aiokafkawire.runtime import Future
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

__all__ = ("error_response", "handle")

FIRST_KNOWN_ID_VERSION = 4
FIRST_NULL_PROTOCOL_VERSION = 7
FIRST_SKIP_VERSION = 9


async def handle(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    try:
        result = await _join(context, request)
    except ApiError as error:
        response = error_response(request, context.version, error.code)
        if error.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
            response.generation_id = context.release.unknown_generation
        return response
    protocol = result.protocol
    if protocol is None and context.version < FIRST_NULL_PROTOCOL_VERSION:
        protocol = ""
    return JoinGroupResponse(
        error_code=result.code,
        generation_id=context.release.unknown_generation if result.code else result.generation,
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


def error_response(request: JoinGroupRequest, version: int, code: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= FIRST_NULL_PROTOCOL_VERSION else "",
        leader="",
        member_id=request.member_id,
        members=[],
    )


async def _join(context: RequestContext, request: JoinGroupRequest) -> JoinResult:
    check_coordinator(context, request.group_id, AclOperation.READ)
    options = context.state.options
    lowest, highest = options.group_min_session_timeout_ms, options.group_max_session_timeout_ms
    if not lowest <= request.session_timeout_ms <= highest:
        raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
    if not request.protocols and not context.release.since("0.11.0"):
        # Those brokers looked up a coordinator for "" all the same, and answered an unexpected
        # error.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    groups = context.state.group_coordinator
    group = groups.get(request.group_id)
    if isinstance(group, ShareGroup):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if isinstance(group, ConsumerGroup) and group.is_unused:
        group = groups.create(request.group_id)
    if group is None:
        if request.member_id:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        group = groups.create(request.group_id)
    reply: Future[Result] = Future()
    rebalance_timeout_ms = (
        request.rebalance_timeout_ms if context.version >= 1 else request.session_timeout_ms
    )
    event = Join(
        reply=reply,
        member_id=request.member_id,
        new_member_id=groups.new_member_id()
        if isinstance(group, ConsumerGroup)
        else groups.member_id(request.group_instance_id or context.client_id),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        session_timeout_s=request.session_timeout_ms / 1000,
        rebalance_timeout_s=max(rebalance_timeout_ms, 0) / 1000,
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=context.connection.host,
        requires_known_member_id=context.version >= FIRST_KNOWN_ID_VERSION,
        timestamp_ms=context.state.clock.wall_ms(),
        supports_skipping_assignment=context.version >= FIRST_SKIP_VERSION,
    )
    return cast("JoinResult", await await_reply(context, group, event, reply))
