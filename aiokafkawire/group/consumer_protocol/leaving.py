"""Handlers of the end of a membership: leaving, fencing, fatal errors."""

from __future__ import annotations

from dataclasses import replace

from aiokafkawire.errors import FencedInstanceId, KafkaError
from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.actions import LEAVE_RESPONSE_TIMEOUT_S
from aiokafkawire.group.membership.effects import LogMessage, LosePartitions
from aiokafkawire.group.membership.states import NextAction
from aiokafkawire.group.topic_id_partition import topic_partitions, without

from . import actions, events, states
from .actions import Outcome
from .context import ConsumerProtocolContext
from .effects import UseClassicProtocol


def _clear_subscription(
    context: ConsumerProtocolContext, event: shared.Unsubscribed | shared.CloseRequested
) -> NextAction:
    context.set_subscription()
    if isinstance(event, shared.CloseRequested):
        context.leave_operation = event.operation
    return NextAction.CLOSE if isinstance(event, shared.CloseRequested) else NextAction.LEAVE


def leave_without_partitions(
    context: ConsumerProtocolContext,
    state: outside.MembershipState,
    event: shared.Unsubscribed | shared.CloseRequested,
    now: float,
) -> Outcome:
    next_action = _clear_subscription(context, event)
    if not isinstance(state, states.InHeartbeats):
        return actions.finish(context, next_action, now)
    deadline = event.deadline if isinstance(event, shared.CloseRequested) else None
    return actions.leave(context, state, next_action, now, deadline)


def revoke_and_leave(
    context: ConsumerProtocolContext,
    state: states.InGroup,
    event: shared.Unsubscribed | shared.CloseRequested,
    now: float,
) -> Outcome:
    if not state.owned:
        return leave_without_partitions(context, state, event, now)
    return actions.revoke(context, state, state.owned, _clear_subscription(context, event))


def leave_after_revocation(
    context: ConsumerProtocolContext,
    state: states.ConsumerRevoking,
    event: shared.Unsubscribed | shared.CloseRequested,
    now: float,
) -> Outcome:
    next_action = _clear_subscription(context, event)
    if state.next_action is NextAction.CLOSE:
        return state, ()
    return replace(state, next_action=next_action), ()


def check_poll_timer(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    event: shared.DeadlineReached,
    now: float,
) -> Outcome:
    """Leave if the application did not poll for max_poll_interval_ms; the next poll rejoins."""
    if not state.checks_poll_timer or now < context.poll_timer.deadline:
        return actions.send_due_heartbeat(context, state, now)
    limit = context.settings.max_poll_interval_ms
    reason = f"the application did not poll within max_poll_interval_ms ({limit})"
    log = LogMessage(reason, warning=True)
    if actions.has_never_joined(state):
        return outside.PollTimedOut(), (log,)
    owned = state.owned if isinstance(state, states.InGroup) else ()
    lost = (LosePartitions(topic_partitions(owned), reason),) if owned else ()
    leave = actions.send_leave(context, now, "max_poll_interval_ms exceeded")
    context.may_be_known = False
    return states.LeavingUnpolled(leave.request, leave.deadline), (log, *lost, leave)


def left(
    context: ConsumerProtocolContext,
    state: outside.Leaving,
    event: shared.MembershipEvent,
    now: float,
) -> Outcome:
    if isinstance(event, shared.DeadlineReached) and now < state.until:
        return state, ()
    # mutation: leave-never-completes
    return actions.finish(context, state.next_action, now)


def store_topics(
    context: ConsumerProtocolContext,
    state: outside.MembershipState,
    event: shared.Subscribed | shared.Unsubscribed,
    now: float,
) -> Outcome:
    if isinstance(event, shared.Subscribed):
        context.set_subscription(event.topics, event.pattern)
    else:
        context.set_subscription()
    return state, ()


def rejoin_after_leaving(
    context: ConsumerProtocolContext,
    state: states.LeavingUnpolled,
    event: shared.PollStarted,
    now: float,
) -> Outcome:
    """Join when the leave is answered: a join that overtakes it would be undone by it."""
    return replace(state, rejoins=True), ()


def left_unpolled(
    context: ConsumerProtocolContext,
    state: states.LeavingUnpolled,
    event: shared.MembershipEvent,
    now: float,
) -> Outcome:
    if isinstance(event, shared.DeadlineReached) and now < state.until:
        return state, ()
    return (
        actions.finish(context, NextAction.JOIN, now)
        if state.rejoins
        else (outside.PollTimedOut(), ())
    )


def stop_while_leaving(
    context: ConsumerProtocolContext,
    state: states.LeavingUnpolled,
    event: shared.Unsubscribed | shared.CloseRequested,
    now: float,
) -> Outcome:
    next_action, until = _clear_subscription(context, event), state.until
    if isinstance(event, shared.CloseRequested):
        until = min(until, event.deadline, now + LEAVE_RESPONSE_TIMEOUT_S)
    return outside.Leaving(state.request, next_action, until), ()


def rejoin_in_poll(
    context: ConsumerProtocolContext,
    state: outside.MembershipState,
    event: shared.PollStarted,
    now: float,
) -> Outcome:
    return actions.finish(context, NextAction.JOIN, now)


# --- errors -----------------------------------------------------------------------------------


def fail(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    event: shared.FatalErrorOccurred,
    now: float,
) -> Outcome:
    """End the membership. Other members get the partitions at once, not after the session."""
    ended, effects = _end(context, state, outside.JoinFailed(event.error), event.error, now)
    if isinstance(state, states.InGroup) and isinstance(ended, outside.JoinFailed):
        effects = (*effects, actions.send_leave(context, now, "the member failed"))
    return ended, effects


def fall_back_or_fail(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    event: events.ProtocolUnavailable,
    now: float,
) -> Outcome:
    """Use the classic protocol instead, if allowed and if the member has not joined before."""
    if context.may_fall_back and context.pattern is None:
        return outside.MembershipClosed(), (UseClassicProtocol(event.error),)
    return fail(context, state, shared.FatalErrorOccurred(event.request, event.error), now)


def fail_to_join(
    context: ConsumerProtocolContext,
    state: states.ConsumerJoining,
    event: events.MemberFenced,
    now: float,
) -> Outcome:
    """A coordinator must accept epoch 0, so this is no fencing."""
    return outside.JoinFailed(event.error), ()


def fence(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    event: shared.InstanceFenced,
    now: float,
) -> Outcome:
    error = FencedInstanceId(
        f"another member uses group_instance_id {context.settings.group_instance_id!r}",
        broker=event.error.broker,
        api=event.error.api,
    )
    return _end(context, state, outside.Fenced(error), error, now)


def _end(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    ended: outside.JoinFailed | outside.Fenced,
    error: KafkaError,
    now: float,
) -> Outcome:
    """Lose all partitions but those that are being revoked, and end the membership."""
    owned = state.owned if isinstance(state, states.InGroup) else ()
    if isinstance(state, states.ConsumerRevoking):
        owned = without(owned, state.to_revoke)
    lost = (LosePartitions(topic_partitions(owned), str(error)),) if owned else ()
    if isinstance(state, states.ConsumerRevoking):
        return actions.end_while_revoking(state, ended), lost
    return ended, lost


def retry_after_failure(
    context: ConsumerProtocolContext,
    state: outside.JoinFailed,
    event: shared.PollStarted,
    now: float,
) -> Outcome:
    """Join again after the error was reported: the cause may be fixed, such as permissions."""
    return actions.finish(context, NextAction.JOIN, now) if state.reported else (state, ())
