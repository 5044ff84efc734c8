"""What the APIs of groups have in common."""

from __future__ import annotations

from typing import cast

from aiokafkawire.broker.call import Call, Disconnect
from aiokafkawire.broker.groups.events import Commit, Event, Result
from aiokafkawire.broker.groups.machine import ClassicGroup
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.runtime import Promise
from aiokafkawire.wire import ErrorCode

__all__ = ("check_commit", "check_coordinator", "code_of", "parked")


def check_coordinator(call: Call, group_id: str, *, named: bool = True) -> None:
    """Raise `Refusal` unless this node can answer for the group; `named` ones cannot be ""."""
    if named and not group_id:
        raise Refusal(ErrorCode.INVALID_GROUP_ID)
    call.check_coordinator(group_id)


def code_of(call: Call, group: ClassicGroup, event: Event, reply: Promise[Result]) -> ErrorCode:
    """Carry out an event that is answered at once."""
    call.state.groups.handle(group, event)
    return cast("ErrorCode", reply.result())


def check_commit(
    call: Call,
    group_id: str,
    event: Commit,
    reply: Promise[Result],
    *,
    missing: ErrorCode = ErrorCode.ILLEGAL_GENERATION,
) -> None:
    """Raise `Refusal` unless the group lets its member commit; `missing` where there is no group.

    A commit from outside of any generation makes the group.
    """
    groups = call.state.groups
    group = groups.get(group_id)
    if group is None:
        if event.generation >= 0:
            raise Refusal(missing)
        group = groups.create(group_id)
    code = code_of(call, group, event, reply)
    if code:
        raise Refusal(code)


async def parked(call: Call, group: ClassicGroup, event: Event, reply: Promise[Result]) -> Result:
    """Carry out an event whose answer may have to wait for other members.

    The group goes on waiting for a member whose client has gone, as Kafka's does; only this end
    stops.
    """

    def gone() -> None:
        reply.fail(Disconnect("the client left while its request waited"))

    call.state.groups.handle(group, event)
    if call.peer.gone:
        gone()
    call.peer.left.add(gone)
    try:
        return await reply.wait()
    finally:
        call.peer.left.remove(gone)
