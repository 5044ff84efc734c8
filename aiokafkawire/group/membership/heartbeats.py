"""Handlers of heartbeats, which a member sends in all states of a generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from . import actions, events, states
from .actions import AnyInGeneration, Outcome
from .context import MembershipContext
from .effects import FindCoordinator, ForgetCoordinator, LogMessage, MembershipEffect, SendHeartbeat


def send_due_heartbeat(
    context: MembershipContext, state: AnyInGeneration, now: float
) -> tuple[AnyInGeneration, Sequence[MembershipEffect]]:
    """Send a heartbeat, or FindCoordinator if the coordinator is unknown, when it is due."""
    heartbeat = state.heartbeat
    effects: tuple[MembershipEffect, ...] = ()
    if now >= heartbeat.session_ends:
        text = "no heartbeat response for a whole session timeout; finding the coordinator"
        log: tuple[MembershipEffect, ...] = (
            () if heartbeat.timeout_logged else (LogMessage(text, warning=True),)
        )
        effects = (*log, ForgetCoordinator(unresponsive_node=heartbeat.node))
        heartbeat = replace(context.new_heartbeat(None, now), next_at=now, timeout_logged=True)
    if heartbeat.request is None and now >= heartbeat.next_at:
        request = context.new_request()
        if heartbeat.node is None:
            effects += (FindCoordinator(request),)
        else:
            effects += (
                SendHeartbeat(request, heartbeat.node, state.generation, heartbeat.session_ends),
            )
        heartbeat = replace(heartbeat, request=request)
    return actions.with_heartbeat(state, heartbeat), effects


def on_deadline(
    context: MembershipContext,
    state: states.InGeneration,
    event: events.DeadlineReached,
    now: float,
) -> Outcome:
    return send_due_heartbeat(context, state, now)


def heartbeat_now(
    context: MembershipContext, state: states.InGeneration, event: events.CommitRejected, now: float
) -> Outcome:
    return actions.with_heartbeat(state, replace(state.heartbeat, next_at=now)), ()


def heartbeat_succeeded(
    context: MembershipContext,
    state: states.InGeneration,
    event: events.RequestCompleted,
    now: float,
) -> Outcome:
    # mutation: heartbeats-stop-after-first
    next_state = actions.with_heartbeat(state, context.new_heartbeat(state.heartbeat.node, now))
    text = "heartbeats succeed again"
    return next_state, ((LogMessage(text),) if state.heartbeat.timeout_logged else ())


def coordinator_found(
    context: MembershipContext,
    state: states.InGeneration,
    event: events.CoordinatorFound,
    now: float,
) -> Outcome:
    heartbeat = replace(state.heartbeat, node=event.node, request=None, next_at=now)
    return actions.with_heartbeat(state, heartbeat), ()


def retry_heartbeat(
    context: MembershipContext,
    state: states.InGeneration,
    event: events.RequestCompleted,
    now: float,
) -> Outcome:
    attempt = state.heartbeat.attempt + 1
    next_at = now + context.backoff_s(attempt)
    heartbeat = replace(state.heartbeat, request=None, attempt=attempt, next_at=next_at)
    return actions.with_heartbeat(state, heartbeat), ()


def retry_heartbeat_after_error(
    context: MembershipContext,
    state: states.InGeneration,
    event: events.UnknownServerErrorReceived,
    now: float,
) -> Outcome:
    """Keep the membership: the session lasts until its timeout or a fatal error code."""
    next_state, effects = retry_heartbeat(context, state, event, now)
    if state.heartbeat.attempt:
        return next_state, effects
    return next_state, (
        LogMessage(f"heartbeat failed: {event.error}; retrying", warning=True),
        *effects,
    )


def coordinator_lost(
    context: MembershipContext,
    state: states.InGeneration,
    event: events.RequestCompleted,
    now: float,
) -> Outcome:
    attempt = state.heartbeat.attempt + 1
    next_at = now + context.backoff_s(attempt)
    # mutation: heartbeats-go-to-old-coordinator
    heartbeat = replace(state.heartbeat, request=None, attempt=attempt, next_at=next_at, node=None)
    return actions.with_heartbeat(state, heartbeat), (ForgetCoordinator(),)
