"""Handlers of the ends: leaving, being fenced, being refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiokafkawire.errors import FencedInstanceId

from . import events as on
from . import states as s
from . import steps
from .steps import Outcome

if TYPE_CHECKING:
    from .membership import Membership


MAX_SETTLING_S = 0.3
"""How long a member that shall leave in the middle of a rebalance waits for its end."""


def fence(m: Membership, state: s.State, event: on.InstanceFenced, now: float) -> Outcome:
    error = FencedInstanceId(
        f"another member runs with group_instance_id {m.settings.group_instance_id!r}",
        broker=event.error.broker,
        api=event.error.api,
    )
    return steps.or_leave(m, state, (s.Fenced(error), steps.lose(state, str(error))))


def fail(m: Membership, state: s.State, event: on.Refused, now: float) -> Outcome:
    effects = steps.lose(state, str(event.error))
    if isinstance(state, s.Arriving):
        # The others wait for this member until its session ends, unless it says goodbye.
        leave = steps.quiet_leave(m, state.generation.member_id, now, "it failed")
        effects = (*effects, *leave)
    return steps.or_leave(m, state, (s.Failed(event.error), effects))


def told(m: Membership, state: s.Failed | s.Fenced, event: on.Told, now: float) -> Outcome:
    return replace(state, told=True), ()


def try_anew(m: Membership, state: s.Failed, event: on.ApplicationEntered, now: float) -> Outcome:
    """What it failed of may be mended by now: rights, settings of the other members."""
    if not state.told:
        return state, ()
    m.contradictions = m.server_failures = 0
    return steps.ended(m, s.After.JOIN)


def farewell(
    m: Membership, event: on.Unsubscribed | on.Closing, now: float
) -> tuple[s.After, float]:
    m.topics = ()
    if isinstance(event, on.Closing):
        return s.After.CLOSE, event.deadline
    return s.After.LEAVE, now + m.settings.request_timeout_ms / 1000


def leave_early(
    m: Membership, state: s.State, event: on.Unsubscribed | on.Closing, now: float
) -> Outcome:
    after, deadline = farewell(m, event, now)
    identity = steps.identity_of(state)
    static = m.settings.group_instance_id is not None
    if isinstance(state, s.Joining) and not identity.member_id and not static:
        # Left alone, the member that this JoinGroup makes would be a ghost in the group.
        return s.AwaitingIdentity(state.request, after, deadline), ()
    return steps.leave(m, identity.member_id, after, deadline, now)


def leave_as_owner(
    m: Membership, state: s.Owner, event: on.Unsubscribed | on.Closing, now: float
) -> Outcome:
    after, deadline = farewell(m, event, now)
    if not state.assignment:
        return steps.leave(m, state.generation.member_id, after, deadline, now)
    return steps.revoke(m, state, state.assignment, after)


def leave_when_settled(
    m: Membership, state: s.Busy, event: on.Unsubscribed | on.Closing, now: float
) -> Outcome:
    after, deadline = farewell(m, event, now)
    by = min(deadline, now + MAX_SETTLING_S)
    if state.leaving is not None:
        by = min(by, state.leaving.by)
        if state.leaving.after is s.After.CLOSE:
            after = s.After.CLOSE
    return replace(state, leaving=s.Departure(after, by)), ()  # type: ignore[type-var]


def leave_after_revocation(
    m: Membership, state: s.Revoking, event: on.Unsubscribed | on.Closing, now: float
) -> Outcome:
    after, _ = farewell(m, event, now)
    if state.after is s.After.CLOSE:
        return state, ()
    return replace(state, after=after), ()


def leave_known(
    m: Membership,
    state: s.AwaitingIdentity,
    event: on.JoinedAsFollower | on.JoinedAsLeader | on.MemberIdAssigned,
    now: float,
) -> Outcome:
    return steps.leave(m, event.member_id, state.after, state.until, now)


def left(
    m: Membership, state: s.AwaitingIdentity | s.Leaving, event: on.Event, now: float
) -> Outcome:
    if isinstance(event, on.Tick) and now < state.until:
        return state, ()
    return steps.ended(m, state.after)


def hurry(
    m: Membership, state: s.AwaitingIdentity | s.Leaving, event: on.Closing, now: float
) -> Outcome:
    m.topics = ()
    return replace(state, after=s.After.CLOSE, until=min(state.until, event.deadline)), ()


def stay_away(m: Membership, state: s.State, event: on.Unsubscribed, now: float) -> Outcome:
    m.topics = ()
    return state, ()


def come_back(m: Membership, state: s.Lapsed, event: on.ApplicationEntered, now: float) -> Outcome:
    return steps.ended(m, s.After.JOIN)
