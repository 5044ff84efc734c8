"""Handlers of rebalances of a member with partitions: revocation, loss, rejoin."""

from __future__ import annotations

from dataclasses import replace

from aiokafkawire.runtime.interfaces import NEVER

from . import actions, events, heartbeats, states
from .actions import Outcome
from .context import MembershipContext
from .effects import AssignPartitions, LogMessage, LosePartitions, MembershipEffect

# --- a member with an assignment --------------------------------------------------------------


def resubscribe(
    context: MembershipContext, state: states.Stable, event: events.Subscribed, now: float
) -> Outcome:
    context.topics = event.topics
    if event.topics == state.generation.topics:
        return state, ()
    return actions.rebalance(context, state, actions.SUBSCRIPTION_CHANGED, now)


def resubscribe_before_revocation(
    context: MembershipContext, state: states.RevocationDue, event: events.Subscribed, now: float
) -> Outcome:
    """Update the partitions to revoke to the changed subscription (cooperative)."""
    context.topics = event.topics
    if not context.settings.cooperative or state.to_add is not None:
        return state, ()
    attempt = states.JoinAttempt(actions.SUBSCRIPTION_CHANGED)
    return actions.rejoin(context, state, attempt, now)


def rebalance(
    context: MembershipContext,
    state: states.Assigned,
    event: events.RebalanceInProgress,
    now: float,
) -> Outcome:
    return _rebalance_and_log(context, state, actions.REBALANCING, now)


def rebalance_before_revocation(
    context: MembershipContext,
    state: states.RevocationDue,
    event: events.RebalanceInProgress,
    now: float,
) -> Outcome:
    """Rejoin before the pending revocation (cooperative).

    The partitions to revoke are not assigned to another member yet, so this member rejoins with
    them and the others need not wait for the application. Only a group that becomes a consumer
    group meanwhile may assign them, whether this member rejoins or not.
    """
    if not context.settings.cooperative:
        return heartbeats.heartbeat_succeeded(context, state, event, now)
    return _rebalance_and_log(context, state, actions.REBALANCING, now)


def rejoin_on_request(
    context: MembershipContext, state: states.Stable, event: events.RejoinRequested, now: float
) -> Outcome:
    return _rebalance_and_log(context, state, event.reason, now)


def _rebalance_and_log(
    context: MembershipContext, state: states.Assigned, reason: str, now: float
) -> Outcome:
    next_state, effects = actions.rebalance(context, state, reason, now)
    return next_state, (LogMessage(f"rejoining: {reason}"), *effects)


def revoke_now(
    context: MembershipContext,
    state: states.RevocationDue,
    event: events.MembershipEvent,
    now: float,
) -> Outcome:
    return actions.revoke(
        context,
        state,
        state.to_revoke,
        states.NextAction.JOIN,
        reason=state.reason,
        to_add=state.to_add,
    )


def revoked(
    context: MembershipContext, state: states.Revoking, event: events.PartitionsRevoked, now: float
) -> Outcome:
    revoked_now = set(state.to_revoke)
    remaining = tuple(tp for tp in state.assignment if tp not in revoked_now)
    if state.next_action is not states.NextAction.JOIN:
        next_action, owes_rejoin = state.next_action, state.owes_rejoin
        if remaining:
            left = replace(state, assignment=remaining)
            return actions.revoke(context, left, remaining, next_action, owes_rejoin=owes_rejoin)
        deadline = now + context.settings.request_timeout_ms / 1000
        member_id = state.generation.member_id
        return actions.leave(
            context, member_id, next_action, deadline, now, owes_rejoin=owes_rejoin
        )
    assign: tuple[MembershipEffect, ...] = ()
    if state.to_add is not None:
        remaining = tuple(sorted((*remaining, *state.to_add)))
        assign = (AssignPartitions(state.to_add),)
    next_state, effects = actions.rebalance(
        context, replace(state, assignment=remaining), state.reason, now
    )
    return next_state, (*assign, *effects)


def forget_member_id(
    context: MembershipContext, state: states.Revoking, event: events.RequestCompleted, now: float
) -> Outcome:
    """Clear the lost membership; the member joins as a new one after the revocation.

    Report all partitions that are not being revoked as lost.
    """
    reason = actions.loss_reason(event)
    generation = replace(state.generation, member_id="", number=states.NO_GENERATION)
    heartbeat = states.HeartbeatState(state.heartbeat.node, None, NEVER, NEVER)
    to_revoke = set(state.to_revoke)
    lost = tuple(tp for tp in state.assignment if tp not in to_revoke)
    # Of the assignment, only the partitions whose revocation is in progress remain.
    next_state = replace(
        state,
        generation=generation,
        heartbeat=heartbeat,
        assignment=state.to_revoke,
        reason=reason,
        to_add=None,
    )
    return next_state, ((LosePartitions(lost, reason),) if lost else ())


def lose_and_rejoin(
    context: MembershipContext, state: states.Assigned, event: events.RequestCompleted, now: float
) -> Outcome:
    reason = actions.loss_reason(event)
    identity = states.JoinIdentity(states.JoinAttempt(reason))
    if isinstance(event, events.IllegalGeneration):
        failures = state.attempt.failures if isinstance(state, states.CooperativeRejoin) else 0
        identity = states.JoinIdentity(
            states.JoinAttempt(reason, failures), state.generation.member_id
        )
    next_state, _ = actions.back_off_join(context, identity, state.heartbeat.node, now)
    lost = actions.lose_partitions(state, reason)
    return actions.or_finish_leave(context, state, (next_state, lost))


def check_poll_timer(
    context: MembershipContext, state: states.Assigned, event: events.DeadlineReached, now: float
) -> Outcome:
    if now < context.poll_timer.deadline:
        return heartbeats.send_due_heartbeat(context, state, now)
    limit = context.settings.max_poll_interval_ms
    reason = f"the application did not poll within max_poll_interval_ms ({limit})"
    member_id = state.generation.member_id
    leave = actions.leave_no_wait(context, member_id, now, "max_poll_interval_ms exceeded")
    static = context.settings.group_instance_id is not None
    must_rejoin = static and context.settings.cooperative and not isinstance(state, states.Stable)
    return states.PollTimedOut(must_rejoin, member_id if static else ""), (
        LogMessage(reason, warning=True),
        *actions.lose_partitions(state, reason),
        *leave,
    )


# --- a member in a cooperative rejoin ---------------------------------------------------------


def check_pending_leave(
    context: MembershipContext,
    state: states.CooperativeRejoin,
    event: events.DeadlineReached,
    now: float,
) -> Outcome:
    pending_leave = state.pending_leave
    if pending_leave is None:
        return check_poll_timer(context, state, event, now)
    if now >= pending_leave.deadline:
        next_action = pending_leave.next_action
        return actions.revoke(context, state, state.assignment, next_action, owes_rejoin=True)
    return heartbeats.send_due_heartbeat(context, state, now)


def rejoin_when_due(
    context: MembershipContext,
    state: states.RejoinBackoff,
    event: events.DeadlineReached,
    now: float,
) -> Outcome:
    if state.heartbeat.node is None or now < state.until or now >= context.poll_timer.deadline:
        return check_poll_timer(context, state, event, now)
    return actions.rejoin(context, state, state.attempt, now)


def rejoin_at_new_coordinator(
    context: MembershipContext, state: states.Rejoining, event: events.CoordinatorFound, now: float
) -> Outcome:
    """Send JoinGroup again if the coordinator moved: the old one does not respond to it."""
    next_state, _ = heartbeats.coordinator_found(context, state, event, now)
    assert isinstance(next_state, states.Rejoining)
    if event.node == state.node:
        return next_state, ()
    return actions.retry_join(context, next_state, now, node=event.node)


def illegal_generation_while_rejoining(
    context: MembershipContext, state: states.Rejoining, event: events.IllegalGeneration, now: float
) -> Outcome:
    """Ignore the error if a heartbeat returned it: the JoinGroup response follows."""
    if event.request == state.request:
        return lose_and_rejoin(context, state, event, now)
    next_at = now + context.settings.heartbeat_interval_ms / 1000
    return actions.with_heartbeat(
        state, replace(state.heartbeat, request=None, next_at=next_at)
    ), ()
