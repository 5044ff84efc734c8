"""Handlers of the ends: leaving, being fenced, being refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiokafkawire.errors import MemberFenced

from . import events as on
from . import states as s
from . import steps
from .steps import Outcome

if TYPE_CHECKING:
    from .membership import Membership


def fence(m: Membership, state: s.State, event: on.InstanceFenced, now: float) -> Outcome:
    error = MemberFenced(
        f"another member runs with group_instance_id {m.settings.group_instance_id!r}",
        broker=event.error.broker,
        api=event.error.api,
    )
    return s.Fenced(error), steps.lose(state, str(error))


def fail(m: Membership, state: s.State, event: on.Refused, now: float) -> Outcome:
    effects = steps.lose(state, str(event.error))
    if isinstance(state, s.Arriving):
        # The others wait for this member until its session ends, unless it says goodbye.
        effects = steps.quiet_leave(m, state.generation.member_id, now, "it failed")
    return s.Failed(event.error), effects


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
    if isinstance(state, s.Joining) and not identity.member_id:
        # Left alone, the member that this JoinGroup makes would be a ghost in the group.
        return s.AwaitingIdentity(state.request, after, deadline), ()
    return steps.leave(m, identity.member_id, after, deadline)


def leave_as_owner(
    m: Membership, state: s.Owner, event: on.Unsubscribed | on.Closing, now: float
) -> Outcome:
    after, deadline = farewell(m, event, now)
    if not state.assignment:
        return steps.leave(m, state.generation.member_id, after, deadline)
    return steps.revoke(m, state, after)


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
    return steps.leave(m, event.member_id, state.after, state.until)


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
