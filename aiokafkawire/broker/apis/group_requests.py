"""Common parts of the group APIs."""

from __future__ import annotations

from typing import cast

from aiokafkawire.broker.acls import AclOperation, ResourceType
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.consumer_group.offset_checks import (
    CheckPartition,
    accept_partition,
    check_member_commit,
)
from aiokafkawire.broker.groups.events import Event, Result, ValidateOffsetCommit
from aiokafkawire.broker.groups.group_coordinator import Group
from aiokafkawire.broker.groups.share_group.group import ShareGroup
from aiokafkawire.broker.request_context import Disconnect, RequestContext
from aiokafkawire.runtime import Future
from aiokafkawire.wire import ErrorCode

__all__ = ("await_reply", "check_commit", "check_coordinator", "handle_immediate")


def check_coordinator(
    context: RequestContext,
    group_id: str,
    operation: AclOperation,
    *,
    allow_empty_id: bool = False,
) -> None:
    """Raise `ApiError` unless the principal may use the group and this node coordinates it.

    Also raises it if the id is empty, unless `allow_empty_id`.
    """
    context.authorize(operation, ResourceType.GROUP, group_id)
    if not group_id and not allow_empty_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    context.check_coordinator(group_id)


def handle_immediate(
    context: RequestContext, group: Group, event: Event, reply: Future[Result]
) -> ErrorCode:
    """Handle an event that has an immediate result; return its error code."""
    context.state.group_coordinator.handle(group, event)
    return cast("ErrorCode", reply.result())


def check_commit(
    context: RequestContext,
    group_id: str,
    event: ValidateOffsetCommit,
    reply: Future[Result],
    *,
    missing: ErrorCode = ErrorCode.ILLEGAL_GENERATION,
) -> CheckPartition:
    """Return the check of each partition that the member commits.

    `missing` is the error for an unknown group. A commit without a generation creates the group.

    Raises:
        ApiError: The group does not accept a commit of the member.
    """
    groups = context.state.group_coordinator
    group = groups.get(group_id)
    if group is None:
        if event.generation >= 0:
            raise ApiError(missing)
        group = groups.create(group_id)
    if isinstance(group, ShareGroup):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(group, ConsumerGroup):
        return check_member_commit(group, event, context.version)
    code = handle_immediate(context, group, event, reply)
    if code:
        raise ApiError(code)
    return accept_partition


async def await_reply(
    context: RequestContext, group: Group, event: Event, reply: Future[Result]
) -> Result:
    """Handle an event whose result may wait for other members.

    If the client disconnects, only this request ends. As in Kafka, the group keeps waiting for the
    member.
    """

    def on_close() -> None:
        reply.set_exception(Disconnect("the client disconnected while its request was waiting"))

    context.state.group_coordinator.handle(group, event)
    if context.connection.is_closed:
        on_close()
    context.connection.on_close.add(on_close)
    try:
        return await reply.wait()
    finally:
        context.connection.on_close.remove(on_close)
