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


def beat(m: Membership, state: AnyInside, now: float) -> tuple[AnyInside, Sequence[do.Effect]]:
    """Send what is due: a heartbeat, or a look-up of the coordinator."""
    pulse = state.pulse
    effects: tuple[do.Effect, ...] = ()
    if now >= pulse.session_ends:
        pulse = replace(m.new_pulse(None, now), next_at=now)
        text = "no heartbeat was answered for a whole session timeout"
        effects = (do.Note(text, warning=True), do.ForgetCoordinator())
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
    return steps.with_pulse(state, m.new_pulse(state.pulse.node, now)), ()


def beat_there(m: Membership, state: s.Inside, event: on.CoordinatorFound, now: float) -> Outcome:
    pulse = replace(state.pulse, node=event.node, request=None, next_at=now)
    return steps.with_pulse(state, pulse), ()


def beat_later(m: Membership, state: s.Inside, event: on.Answer, now: float) -> Outcome:
    attempt = state.pulse.attempt + 1
    next_at = now + m.backoff_s(attempt)
    pulse = replace(state.pulse, request=None, attempt=attempt, next_at=next_at)
    return steps.with_pulse(state, pulse), ()


def beat_elsewhere(m: Membership, state: s.Inside, event: on.Answer, now: float) -> Outcome:
    attempt = state.pulse.attempt + 1
    next_at = now + m.backoff_s(attempt)
    pulse = replace(state.pulse, request=None, attempt=attempt, next_at=next_at, node=None)
    return steps.with_pulse(state, pulse), (do.ForgetCoordinator(),)


# --- an owner of partitions -------------------------------------------------------------------


def resubscribe(m: Membership, state: s.Stable, event: on.Subscribed, now: float) -> Outcome:
    m.topics = event.topics
    if event.topics == state.generation.topics:
        return state, ()
    return steps.rebalance(m, state, event, now)


def rejoin_for(m: Membership, state: s.Stable, event: on.Rejoin, now: float) -> Outcome:
    after, effects = steps.rebalance(m, state, event, now)
    return after, (do.Note(f"joining the group again: {event.reason}"), *effects)


def revoke_now(m: Membership, state: s.Owner, event: on.Event, now: float) -> Outcome:
    return steps.revoke(m, state, s.After.JOIN)


def revoked(m: Membership, state: s.Revoking, event: on.Revoked, now: float) -> Outcome:
    if state.after is s.After.JOIN:
        return steps.rejoin(m, state)
    deadline = now + m.settings.request_timeout_ms / 1000
    return steps.leave(m, state.generation.member_id, state.after, deadline)


def forget_identity(m: Membership, state: s.Revoking, event: on.Answer, now: float) -> Outcome:
    """The partitions are lost while they are given back: only the new beginning differs."""
    generation = replace(state.generation, member_id="", number=s.NO_GENERATION)
    pulse = s.Pulse(state.pulse.node, None, NEVER, NEVER)
    return replace(state, generation=generation, pulse=pulse), ()


def lose_and_rejoin(m: Membership, state: s.Owner, event: on.Answer, now: float) -> Outcome:
    if isinstance(event, on.GenerationOutdated):
        identity, reason = steps.identity_of(state), "its generation is over"
    else:
        identity, reason = s.NOBODY, "the coordinator does not know this member"
    after, _ = steps.back_off(m, identity, state.pulse.node, now)
    return after, steps.lose(state, reason)


def watch(m: Membership, state: s.Stable | s.RevocationDue, event: on.Tick, now: float) -> Outcome:
    if now < m.presence.deadline:
        return beat(m, state, now)
    limit = m.settings.max_poll_interval_ms
    reason = f"the application did not call for max_poll_interval_ms ({limit})"
    leave = steps.quiet_leave(m, state.generation.member_id, now, "max_poll_interval_ms passed")
    return s.Lapsed(), (do.Note(reason, warning=True), *steps.lose(state, reason), *leave)
