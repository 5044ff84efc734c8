"""Handlers of joining and of heartbeats, which a member sends in all states of a membership."""

from __future__ import annotations

from dataclasses import replace

from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.effects import (
    ForgetCoordinator,
    LogMessage,
    MembershipEffect,
)
from aiokafkawire.group.membership.states import NextAction

from . import actions, events, leaving, states
from .actions import Outcome
from .context import ConsumerProtocolContext
from .effects import ChangeEpoch, RaiseError, RefreshTopics

UNRELEASED_LIMIT_S = 75.0
"""Wait of a static member for its predecessor: the longest session timeout that brokers allow by
default (60 s), and a margin."""


# --- sending ----------------------------------------------------------------------------------


def start(
    context: ConsumerProtocolContext,
    state: outside.MembershipState,
    event: shared.Subscribed,
    now: float,
) -> Outcome:
    context.set_subscription(event.topics, event.pattern)
    return actions.join(now), ()


def send_now(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    event: shared.MembershipEvent,
    now: float,
) -> Outcome:
    if isinstance(state, states.ConsumerRevoking) and state.ended is not None:
        # The membership has ended: a heartbeat with its epoch could start it again.
        return state, ()
    return actions.with_heartbeat(state, replace(state.heartbeat, next_at=now)), ()


def resubscribe(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    event: shared.Subscribed,
    now: float,
) -> Outcome:
    """Store the topics, and report them at once to a coordinator that is known."""
    context.set_subscription(event.topics, event.pattern)
    if state.heartbeat.attempt and not state.heartbeat.keeps_alive:
        # The next heartbeat waits for a backoff, and reports the topics anyway.
        return state, ()
    heartbeat = replace(state.heartbeat, keeps_alive=False)
    return send_now(context, actions.with_heartbeat(state, heartbeat), event, now)


def coordinator_found(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    event: shared.CoordinatorFound,
    now: float,
) -> Outcome:
    heartbeat = replace(state.heartbeat, node=event.node, request=None, next_at=now)
    return actions.with_heartbeat(state, heartbeat), ()


# --- failures ---------------------------------------------------------------------------------


def retry(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    event: shared.RequestCompleted,
    now: float,
) -> Outcome:
    """Send a full heartbeat after a backoff: the coordinator may have missed the last one."""
    if isinstance(state, states.ConsumerJoining) and state.heartbeat.in_flight is not None:
        context.may_be_known = True
    return _back_off(context, state, now)


def _back_off(context: ConsumerProtocolContext, state: states.InHeartbeats, now: float) -> Outcome:
    attempt = state.heartbeat.attempt + 1
    heartbeat = states.HeartbeatSchedule(
        state.heartbeat.node, now + context.backoff_s(attempt), attempt=attempt
    )
    return actions.with_heartbeat(state, heartbeat), ()


def retry_elsewhere(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    event: shared.RequestCompleted,
    now: float,
) -> Outcome:
    """Find the coordinator, which has moved or does not respond. The epoch stays."""
    next_state, _ = retry(context, state, event, now)
    assert isinstance(next_state, states.InHeartbeats)
    heartbeat = replace(next_state.heartbeat, node=None)
    return actions.with_heartbeat(next_state, heartbeat), (ForgetCoordinator(),)


def retry_after_error(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    event: shared.UnknownServerErrorReceived,
    now: float,
) -> Outcome:
    """Retry, because the error may be temporary, and fail if it persists."""
    limit_s = context.settings.default_api_timeout_ms / 1000
    since = state.heartbeat.failing_since
    if since is not None and now >= since + limit_s:
        return leaving.fail(
            context, state, shared.FatalErrorOccurred(event.request, event.error), now
        )
    next_state, _ = retry(context, state, event, now)
    assert isinstance(next_state, states.InHeartbeats)
    heartbeat = replace(next_state.heartbeat, failing_since=now if since is None else since)
    next_state = actions.with_heartbeat(next_state, heartbeat)
    if since is not None:
        return next_state, ()
    text = f"heartbeat failed: {event.error}; retrying for up to {limit_s:g} s"
    return next_state, (LogMessage(text, warning=True),)


def raise_and_stay(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    event: events.TopicsUnauthorized,
    now: float,
) -> Outcome:
    """Stay in the group, and report the topics again after a heartbeat without them.

    A coordinator that refuses the topics does not count the heartbeat for the session.
    """
    next_state, _ = _back_off(context, state, now)
    assert isinstance(next_state, states.InHeartbeats)
    in_group = isinstance(state, states.InGroup)
    heartbeat = replace(next_state.heartbeat, keeps_alive=in_group)
    return actions.with_heartbeat(next_state, heartbeat), (RaiseError(event.error),)


def wait_until_released(
    context: ConsumerProtocolContext,
    state: states.ConsumerJoining,
    event: events.InstanceIdUnreleased,
    now: float,
) -> Outcome:
    """Wait until the predecessor's session has timed out: it was killed, or runs beside this.

    The coordinator also refuses a member that it knows, such as after a lost response to its join.
    That member leaves with epoch -2, and joins again.
    """
    if context.may_be_known:
        context.may_be_known = False
        leave = actions.send_leave(context, now, "the coordinator has a former join")
        return outside.Leaving(leave.request, NextAction.JOIN, leave.deadline), (leave,)
    if state.unreleased_until is not None and now >= state.unreleased_until:
        return outside.JoinFailed(event.error), ()
    next_state, _ = _back_off(context, state, now)
    assert isinstance(next_state, states.ConsumerJoining)
    if state.unreleased_until is not None:
        return next_state, ()
    text = (
        f"another member with group_instance_id {context.settings.group_instance_id!r} has not"
        f" left; joining again for up to {UNRELEASED_LIMIT_S:.0f} s, until its session times out"
    )
    return replace(next_state, unreleased_until=now + UNRELEASED_LIMIT_S), (
        LogMessage(text, warning=True),
    )


def lose_and_rejoin(
    context: ConsumerProtocolContext, state: states.InGroup, event: events.MemberFenced, now: float
) -> Outcome:
    return actions.lose_and_rejoin(context, state, event.error, now)


# --- success ----------------------------------------------------------------------------------


def _after_response(
    state: states.InHeartbeats, interval_s: float, now: float
) -> states.HeartbeatSchedule:
    return states.HeartbeatSchedule(
        state.heartbeat.node, now + interval_s, reported=state.heartbeat.in_flight
    )


def joined(
    context: ConsumerProtocolContext,
    state: states.ConsumerJoining,
    event: events.HeartbeatResponded,
    now: float,
) -> Outcome:
    context.may_fall_back = False
    context.may_be_known = True
    heartbeat = _after_response(state, event.interval_s, now)
    stable = states.ConsumerStable(heartbeat, event.epoch)
    log = LogMessage(f"joined as {context.settings.member_id} with member epoch {event.epoch}")
    next_state, effects = _with_target(context, stable, event.target, now)
    return next_state, (log, ChangeEpoch(event.epoch, ()), *effects)


def responded(
    context: ConsumerProtocolContext,
    state: states.InGroup,
    event: events.HeartbeatResponded,
    now: float,
) -> Outcome:
    """Store the epoch before the assignment: later commits are sent with it."""
    heartbeat = _after_response(state, event.interval_s, now)
    reported = heartbeat.reported
    if reported is not None and reported != actions.fields_to_report(context, state):
        heartbeat = replace(heartbeat, next_at=now)
    effects: tuple[MembershipEffect, ...] = ()
    if event.epoch != state.epoch:
        effects = (ChangeEpoch(event.epoch, state.owned),)
    # mutation: epoch-ignored-while-leaving
    updated = replace(state, heartbeat=heartbeat, epoch=event.epoch)  # type: ignore[type-var]
    next_state, more = _with_target(context, updated, event.target, now)
    return next_state, (*effects, *more)


def _with_target(
    context: ConsumerProtocolContext,
    state: states.InGroup,
    target: states.TargetAssignment | None,
    now: float,
) -> Outcome:
    if target is None:
        return state, ()
    # The metadata lacks the names of topics that are owned and were just deleted.
    target = target.resolve({owned.topic_id: owned.topic for owned in state.owned})
    refresh = (RefreshTopics(),) if target.unresolved else ()
    updated = replace(state, target=target)  # type: ignore[type-var]
    next_state, effects = actions.reconcile(context, updated, now)
    return next_state, (*refresh, *effects)
