"""Handlers of heartbeats, and of a member that owns partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aiokafkawire.runtime.base import NEVER

from . import effects as do
from . import events as on
from . import states as s
from . import steps
from .steps import AnyInside, Outcome

if TYPE_CHECKING:
    from .membership import Membership


# --- heartbeats -------------------------------------------------------------------------------


def beat(m: Membership, state: AnyInside, now: float) -> tuple[AnyInside, Sequence[do.Effect]]:
    """Send what is due: a heartbeat, or a look-up of the coordinator."""
    pulse = state.pulse
    effects: tuple[do.Effect, ...] = ()
    if now >= pulse.session_ends:
        text = "no heartbeat was answered for a whole session timeout: looking for the coordinator"
        told: tuple[do.Effect, ...] = () if pulse.silent else (do.Note(text, warning=True),)
        effects = (*told, do.ForgetCoordinator(silent=pulse.node))
        pulse = replace(m.new_pulse(None, now), next_at=now, silent=True)
    if pulse.request is None and now >= pulse.next_at:
        request = m.new_request()
        if pulse.node is None:
            effects += (do.FindCoordinator(request),)
        else:
            effects += (
                do.SendHeartbeat(request, pulse.node, state.generation, pulse.session_ends),
            )
        pulse = replace(pulse, request=request)
    return steps.with_pulse(state, pulse), effects


def beat_on(m: Membership, state: s.Inside, event: on.Tick, now: float) -> Outcome:
    return beat(m, state, now)


def beat_at_once(m: Membership, state: s.Inside, event: on.Doubted, now: float) -> Outcome:
    return steps.with_pulse(state, replace(state.pulse, next_at=now)), ()


def beaten(m: Membership, state: s.Inside, event: on.Answer, now: float) -> Outcome:
    # mutation: heartbeats-stop-after-first
    after = steps.with_pulse(state, m.new_pulse(state.pulse.node, now))
    text = "heartbeats succeed again"
    return after, ((do.Note(text),) if state.pulse.silent else ())


def beat_there(m: Membership, state: s.Inside, event: on.CoordinatorFound, now: float) -> Outcome:
    pulse = replace(state.pulse, node=event.node, request=None, next_at=now)
    return steps.with_pulse(state, pulse), ()


def beat_later(m: Membership, state: s.Inside, event: on.Answer, now: float) -> Outcome:
    attempt = state.pulse.attempt + 1
    next_at = now + m.backoff_s(attempt)
    pulse = replace(state.pulse, request=None, attempt=attempt, next_at=next_at)
    return steps.with_pulse(state, pulse), ()


def beat_in_spite(m: Membership, state: s.Inside, event: on.ServerFailed, now: float) -> Outcome:
    """The session goes on as long as nobody says that it is over."""
    after, effects = beat_later(m, state, event, now)
    if state.pulse.attempt:
        return after, effects
    return after, (
        do.Note(f"heartbeat failed: {event.error}; trying again", warning=True),
        *effects,
    )


def beat_elsewhere(m: Membership, state: s.Inside, event: on.Answer, now: float) -> Outcome:
    attempt = state.pulse.attempt + 1
    next_at = now + m.backoff_s(attempt)
    # mutation: heartbeats-go-to-old-coordinator
    pulse = replace(state.pulse, request=None, attempt=attempt, next_at=next_at, node=None)
    return steps.with_pulse(state, pulse), (do.ForgetCoordinator(),)


# --- an owner of partitions -------------------------------------------------------------------


def resubscribe(m: Membership, state: s.Stable, event: on.Subscribed, now: float) -> Outcome:
    m.topics = event.topics
    if event.topics == state.generation.topics:
        return state, ()
    return steps.rebalance(m, state, "the subscription changed", now)


def resubscribe_due(
    m: Membership, state: s.RevocationDue, event: on.Subscribed, now: float
) -> Outcome:
    """What is subscribed to again need not go for that; what is not any more has to go too."""
    m.topics = event.topics
    if not m.settings.cooperative or state.coming is not None:
        return state, ()
    return steps.rejoin(m, state, now)


def rebalance(m: Membership, state: s.Owner, event: on.RebalanceBegan, now: float) -> Outcome:
    return steps.rebalance(m, state, "the group rebalances", now)


def rebalance_while_due(
    m: Membership, state: s.RevocationDue, event: on.RebalanceBegan, now: float
) -> Outcome:
    """Another rebalance began before the application let go of what the last one took.

    A keeper joins with that: it is nobody else's yet. The others need not wait for it.
    """
    if not m.settings.cooperative:
        return beaten(m, state, event, now)
    return steps.rebalance(m, state, "the group rebalances", now)


def rejoin_for(m: Membership, state: s.Stable, event: on.Rejoin, now: float) -> Outcome:
    after, effects = steps.rebalance(m, state, event.reason, now)
    return after, (do.Note(f"rejoining: {event.reason}"), *effects)


def revoke_now(m: Membership, state: s.RevocationDue, event: on.Event, now: float) -> Outcome:
    return steps.revoke(m, state, state.going, s.After.JOIN, state.coming)


def revoked(m: Membership, state: s.Revoking, event: on.Revoked, now: float) -> Outcome:
    gone = set(state.going)
    left = tuple(tp for tp in state.assignment if tp not in gone)
    if state.after is not s.After.JOIN:
        if left:
            return steps.revoke(m, replace(state, assignment=left), left, state.after)
        deadline = now + m.settings.request_timeout_ms / 1000
        return steps.leave(m, state.generation.member_id, state.after, deadline, now)
    told: tuple[do.Effect, ...] = ()
    if state.coming is not None:
        left = tuple(sorted((*left, *state.coming)))
        told = (do.AssignPartitions(state.coming),)
    after, effects = steps.rebalance(m, replace(state, assignment=left), m.reason, now)
    return after, (*told, *effects)


def forget_identity(m: Membership, state: s.Revoking, event: on.Answer, now: float) -> Outcome:
    """The partitions are lost while they are given back: only the new beginning differs."""
    generation = replace(state.generation, member_id="", number=s.NO_GENERATION)
    pulse = s.Pulse(state.pulse.node, None, NEVER, NEVER)
    going = set(state.going)
    kept = tuple(tp for tp in state.assignment if tp not in going)
    after = replace(state, generation=generation, pulse=pulse, assignment=state.going, coming=None)
    if not kept:
        return after, ()
    return after, (do.LosePartitions(kept, why_lost(event)),)


def why_lost(event: on.Answer) -> str:
    if isinstance(event, on.GenerationOutdated):
        return "its generation is over"
    return "the coordinator does not know this member"


def lose_and_rejoin(m: Membership, state: s.Owner, event: on.Answer, now: float) -> Outcome:
    identity = s.NOBODY
    if isinstance(event, on.GenerationOutdated):
        identity = replace(steps.identity_of(state), previous=s.NO_GENERATION)
    m.reason = why_lost(event)
    after, _ = steps.back_off(m, identity, state.pulse.node, now)
    return steps.or_leave(m, state, (after, steps.lose(state, m.reason)))


def watch(m: Membership, state: s.Owner, event: on.Tick, now: float) -> Outcome:
    if now < m.presence.deadline:
        return beat(m, state, now)
    limit = m.settings.max_poll_interval_ms
    reason = f"the application did not call for max_poll_interval_ms ({limit})"
    leave = steps.quiet_leave(m, state.generation.member_id, now, "max_poll_interval_ms passed")
    # A static member finds its generation as it was: what that took from it is still nobody's.
    m.owes_join = m.settings.cooperative and not isinstance(state, s.Stable)
    return s.Lapsed(), (do.Note(reason, warning=True), *steps.lose(state, reason), *leave)


# --- an owner on its way into the next generation ----------------------------------------------


def watch_keeper(m: Membership, state: s.Keeper, event: on.Tick, now: float) -> Outcome:
    departure = state.departure
    if departure is None:
        return watch(m, state, event, now)
    if now >= departure.by:
        return steps.revoke(m, state, state.assignment, departure.after)
    return beat(m, state, now)


def return_when_due(m: Membership, state: s.Returning, event: on.Tick, now: float) -> Outcome:
    if state.pulse.node is None or now < state.until or now >= m.presence.deadline:
        return watch(m, state, event, now)
    return steps.rejoin(m, state, now)


def join_elsewhere(
    m: Membership, state: s.Rejoining, event: on.CoordinatorFound, now: float
) -> Outcome:
    """Where the JoinGroup went nobody answers it any more, if that is not the coordinator now."""
    after, _ = beat_there(m, state, event, now)
    assert isinstance(after, s.Rejoining)
    if event.node == state.node:
        return after, ()
    return steps.try_again(m, after, event.node, now)


def outdated_while_joining(
    m: Membership, state: s.Rejoining, event: on.GenerationOutdated, now: float
) -> Outcome:
    """All have joined: the answer to JoinGroup is on its way, unless the session ends first."""
    if event.request == state.request:
        return lose_and_rejoin(m, state, event, now)
    next_at = now + m.settings.heartbeat_interval_ms / 1000
    return steps.with_pulse(state, replace(state.pulse, request=None, next_at=next_at)), ()
