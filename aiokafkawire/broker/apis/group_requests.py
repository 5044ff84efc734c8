"""What the APIs of groups have in common."""

from __future__ import annotations

from typing import cast

from aiokafkawire.broker.call import Call, Disconnect
from aiokafkawire.broker.groups.events import Event, Result
from aiokafkawire.broker.groups.machine import ClassicGroup
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.runtime import Promise
from aiokafkawire.wire import ErrorCode

__all__ = ("check_coordinator", "code_of", "parked")


def check_coordinator(call: Call, group_id: str, *, named: bool = True) -> None:
    """Raise `Refusal` unless this node coordinates the group; `named` ones cannot be ""."""
    if named and not group_id:
        raise Refusal(ErrorCode.INVALID_GROUP_ID)
    if call.cluster.coordinator(group_id) != call.node_id:
        raise Refusal(ErrorCode.NOT_COORDINATOR)


def code_of(call: Call, group: ClassicGroup, event: Event, reply: Promise[Result]) -> ErrorCode:
    """Carry out an event that is answered at once."""
    call.state.groups.handle(group, event)
    return cast("ErrorCode", reply.result())


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
