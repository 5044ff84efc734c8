"""Steps that handlers of several states take. See `membership` for the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafkawire.types import NodeId

from . import effects as do
from . import events as on
from . import states as s

if TYPE_CHECKING:
    from .membership import Membership

Outcome = tuple[s.State, Sequence[do.Effect]]
AnyInside = TypeVar("AnyInside", bound=s.Inside)

Handler = Callable[["Membership", Any, Any, float], Outcome]

MAX_GOODBYE_S = 0.75
"""How long a member that is closed waits for the answer to LeaveGroup: it is as good as sent."""


def stay(m: Membership, state: s.State, event: on.Event, now: float) -> Outcome:
    return state, ()


def subscribe(m: Membership, state: s.State, event: on.Subscribed, now: float) -> Outcome:
    """Note the topics: the next JoinGroup carries them."""
    m.topics = event.topics
    return state, ()


# --- on the way in ----------------------------------------------------------------------------


def seek(m: Membership, identity: s.Identity) -> Outcome:
    request = m.new_request()
    return s.FindingCoordinator(identity, request), (do.FindCoordinator(request),)


def join(m: Membership, node: NodeId | None, identity: s.Identity) -> Outcome:
    """Join at the coordinator, or look for it first."""
    if node is None:
        return seek(m, identity)
    request = m.new_request()
    send = send_join(m, request, node, identity, ())
    return s.Joining(identity, node, m.topics, request), (send,)


def send_join(
    m: Membership, request: int, node: NodeId, identity: s.Identity, owned: s.Assignment
) -> do.SendJoin:
    return do.SendJoin(
        request,
        node,
        identity.member_id,
        m.topics,
        m.session_timeout_ms,
        identity.previous,
        owned,
        m.reason,
    )


def back_off(m: Membership, identity: s.Identity, node: NodeId | None, now: float) -> Outcome:
    identity = replace(identity, attempt=identity.attempt + 1)
    until = now + m.backoff_s(identity.attempt)
    return s.BackingOff(identity, node, until), (do.ForgetCoordinator(),) if node is None else ()


def identity_of(state: s.State) -> s.Identity:
    """As whom a state would join again."""
    if isinstance(state, s.Outside):
        return state.identity
    if isinstance(state, s.Inside):
        attempt = state.attempt if isinstance(state, s.Arriving | s.Keeper) else 0
        return s.Identity(state.generation.member_id, state.generation.number, attempt)
    return s.NOBODY


def with_pulse(state: AnyInside, pulse: s.Pulse) -> AnyInside:
    return replace(state, pulse=pulse)  # type: ignore[type-var]


# --- into the next generation -----------------------------------------------------------------


def to_give_back(m: Membership, state: s.Owner) -> s.Assignment:
    """What has to go before this member may join again: all of it in the eager protocol.

    In the cooperative one that is only what is not subscribed to any more.
    """
    if not m.settings.cooperative:
        return state.assignment
    topics = set(m.topics)
    return tuple(tp for tp in state.assignment if tp.topic not in topics)


def rebalance(m: Membership, state: s.Owner, reason: str, now: float) -> Outcome:
    """Join again, and tell the coordinator why."""
    m.reason = reason
    # The heartbeat under way, if there is one, is dropped: its answer would say nothing new.
    pulse = m.new_pulse(state.pulse.node, now)
    return rejoin(m, s.Stable(state.generation, pulse, state.assignment), now)


def rejoin(m: Membership, state: s.Inside, now: float) -> Outcome:
    """Join again as the same member, once what has to go is given back."""
    identity = identity_of(state)
    node = state.pulse.node
    if not isinstance(state, s.Owner) or not state.assignment:
        return join(m, node, identity)
    going = to_give_back(m, state)
    if going:
        return give_back(m, state, going, None)
    owned = state.assignment
    if node is None:
        return s.Returning(state.generation, state.pulse, owned, identity.attempt, now), ()
    request = m.new_request()
    joining = s.Rejoining(
        state.generation, state.pulse, owned, identity.attempt, request, node, m.topics
    )
    return joining, (send_join(m, request, node, identity, owned),)


def give_back(
    m: Membership, state: s.Owner, going: s.Assignment, coming: s.Assignment | None
) -> Outcome:
    """Revoke, as soon as the application is not at work on what it was given."""
    if m.presence.waiting:
        return revoke(m, state, going, s.After.JOIN, coming)
    due = s.RevocationDue(state.generation, state.pulse, state.assignment, going, coming)
    return due, (do.Interrupt(),)


def revoke(
    m: Membership,
    state: s.Owner,
    going: s.Assignment,
    after: s.After,
    coming: s.Assignment | None = None,
) -> Outcome:
    request = m.new_request()
    revoking = s.Revoking(
        state.generation, state.pulse, state.assignment, going, request, after, coming
    )
    return revoking, (do.RevokePartitions(request, going),)


def return_later(m: Membership, state: s.Keeper, node: NodeId | None, now: float) -> Outcome:
    """Join again after a pause, with what is owned; None as the node: look for it first."""
    attempt = state.attempt + 1
    until = now + m.backoff_s(attempt)
    pulse = m.new_pulse(node, now)
    if node is None:
        pulse = replace(pulse, next_at=until)
    waiting = s.Returning(state.generation, pulse, state.assignment, attempt, until)
    return waiting, (do.ForgetCoordinator(),) if node is None else ()


def try_again(
    m: Membership, state: s.Outside | s.Arriving | s.Keeper, node: NodeId | None, now: float
) -> Outcome:
    """After a failed JoinGroup or SyncGroup: as the same member, with what it owns, if it does."""
    if not isinstance(state, s.Keeper):
        return back_off(m, identity_of(state), node, now)
    if state.departure is not None:
        return revoke(m, state, state.assignment, state.departure.after)
    return return_later(m, state, node, now)


# --- out --------------------------------------------------------------------------------------


def lose(state: s.State, reason: str) -> Sequence[do.Effect]:
    if isinstance(state, s.Owner) and state.assignment:
        return (do.LosePartitions(state.assignment, reason),)
    return ()


def or_leave(m: Membership, state: s.State, outcome: Outcome) -> Outcome:
    """What follows on the end of a membership, unless the member was about to leave anyway."""
    after = s.After.JOIN
    if isinstance(state, s.Keeper) and state.departure is not None:
        after = state.departure.after
    elif isinstance(state, s.Revoking):
        after = state.after
    if after is s.After.JOIN:
        return outcome
    last = [
        effect
        for effect in outcome[1]
        if isinstance(effect, do.LosePartitions | do.SendLeave | do.Note)
    ]
    left, effects = ended(m, after)
    return left, (*last, *effects)


def quiet_leave(m: Membership, member_id: str, now: float, reason: str) -> Sequence[do.Effect]:
    """LeaveGroup whose answer nobody waits for. A static member's place is kept for it."""
    if not member_id or m.settings.group_instance_id is not None:
        return ()
    deadline = now + m.settings.request_timeout_ms / 1000
    return (do.SendLeave(m.new_request(), member_id, deadline, reason),)


def leave(m: Membership, member_id: str, after: s.After, deadline: float, now: float) -> Outcome:
    # mutation: static-member-leaves-group
    if not member_id or m.settings.group_instance_id is not None:
        return ended(m, after)
    request = m.new_request()
    reason = "the consumer unsubscribed"
    if after is s.After.CLOSE:
        reason = "the consumer is being closed"
        deadline = min(deadline, now + MAX_GOODBYE_S)
    return s.Leaving(request, after, deadline), (
        do.SendLeave(request, member_id, deadline, reason),
    )


def ended(m: Membership, after: s.After) -> Outcome:
    if after is s.After.CLOSE:
        return s.Closed(), ()
    m.reason = "the consumer subscribed"
    return seek(m, s.NOBODY) if m.topics else (s.Unjoined(), ())
