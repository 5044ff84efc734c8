"""Steps that handlers of several states take. See `membership` for the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from aiokafkawire.types import NodeId

from . import effects as do
from . import events as on
from . import states as s

if TYPE_CHECKING:
    from .membership import Membership

Outcome = tuple[s.State, Sequence[do.Effect]]
AnyInside = TypeVar("AnyInside", bound=s.Inside)


def stay(m: Membership, state: s.State, event: on.Event, now: float) -> Outcome:
    return state, ()


def subscribe(m: Membership, state: s.State, event: on.Subscribed, now: float) -> Outcome:
    """Note the topics: the next JoinGroup carries them."""
    m.topics = event.topics
    return state, ()


def seek(m: Membership, identity: s.Identity) -> Outcome:
    request = m.new_request()
    return s.FindingCoordinator(identity, request), (do.FindCoordinator(request),)


def join(m: Membership, node: NodeId | None, identity: s.Identity) -> Outcome:
    """Join at the coordinator, or look for it first."""
    if node is None:
        return seek(m, identity)
    request = m.new_request()
    state = s.Joining(identity, node, m.topics, request)
    send = do.SendJoin(request, node, identity.member_id, m.topics, m.session_timeout_ms)
    return state, (send,)


def back_off(m: Membership, identity: s.Identity, node: NodeId | None, now: float) -> Outcome:
    identity = replace(identity, attempt=identity.attempt + 1)
    until = now + m.backoff_s(identity.attempt)
    return s.BackingOff(identity, node, until), (do.ForgetCoordinator(),) if node is None else ()


def identity_of(state: s.State) -> s.Identity:
    """As whom a state would join again."""
    if isinstance(state, s.Outside):
        return state.identity
    if isinstance(state, s.Inside):
        attempt = state.attempt if isinstance(state, s.Arriving) else 0
        return s.Identity(state.generation.member_id, state.generation.number, attempt)
    return s.NOBODY


def with_pulse(state: AnyInside, pulse: s.Pulse) -> AnyInside:
    return replace(state, pulse=pulse)  # type: ignore[type-var]


def rebalance(m: Membership, state: s.Stable, event: on.Event, now: float) -> Outcome:
    """Give the partitions back as soon as the application is not at work on them."""
    # The heartbeat under way, if there is one, is dropped: its answer would say nothing new.
    state = with_pulse(state, m.new_pulse(state.pulse.node, now))
    if not state.assignment:
        return rejoin(m, state)
    if m.presence.waiting:
        return revoke(m, state, s.After.JOIN)
    return s.RevocationDue(state.generation, state.pulse, state.assignment), (do.Interrupt(),)


def rejoin(m: Membership, state: s.Inside) -> Outcome:
    """Join again at once, as the same member."""
    return join(m, state.pulse.node, identity_of(state))


def revoke(m: Membership, state: s.Owner, after: s.After) -> Outcome:
    request = m.new_request()
    revoking = s.Revoking(state.generation, state.pulse, state.assignment, request, after)
    return revoking, (do.RevokePartitions(request, state.assignment),)


def lose(state: s.State, reason: str) -> Sequence[do.Effect]:
    if isinstance(state, s.Owner) and state.assignment:
        return (do.LosePartitions(state.assignment, reason),)
    return ()


def quiet_leave(m: Membership, member_id: str, now: float, reason: str) -> Sequence[do.Effect]:
    """LeaveGroup whose answer nobody waits for. A static member's place is kept for it."""
    if not member_id or m.settings.group_instance_id is not None:
        return ()
    deadline = now + m.settings.request_timeout_ms / 1000
    return (do.SendLeave(m.new_request(), member_id, deadline, reason),)


def leave(m: Membership, member_id: str, after: s.After, deadline: float) -> Outcome:
    if not member_id or m.settings.group_instance_id is not None:
        return ended(m, after)
    request = m.new_request()
    reason = "the consumer is being closed" if after is s.After.CLOSE else "unsubscribed"
    return s.Leaving(request, after, deadline), (
        do.SendLeave(request, member_id, deadline, reason),
    )


def ended(m: Membership, after: s.After) -> Outcome:
    if after is s.After.CLOSE:
        return s.Closed(), ()
    return seek(m, s.NOBODY) if m.topics else (s.Unjoined(), ())
