"""Handlers of the end of a membership: leaving, fencing, fatal errors."""

from __future__ import annotations

from dataclasses import replace

from aiokafkawire.errors import FencedInstanceId

from . import actions, events, states
from .actions import Outcome
from .context import MemberContext, MembershipContext

LEAVE_DURING_REBALANCE_TIMEOUT_S = 0.3
"""How long a leaving member waits for the end of a rebalance."""


def fence(
    context: MembershipContext,
    state: states.MembershipState,
    event: events.InstanceFenced,
    now: float,
) -> Outcome:
    error = FencedInstanceId(
        f"another member uses group_instance_id {context.settings.group_instance_id!r}",
        broker=event.error.broker,
        api=event.error.api,
    )
    return actions.or_finish_leave(
        context, state, (states.Fenced(error), actions.lose_partitions(state, str(error)))
    )


def fail(
    context: MembershipContext,
    state: states.MembershipState,
    event: events.FatalErrorOccurred,
    now: float,
) -> Outcome:
    effects = actions.lose_partitions(state, str(event.error))
    if isinstance(state, states.AwaitingAssignment):
        # Without LeaveGroup, the rebalance would wait for this member until its session times out.
        leave = actions.leave_no_wait(context, state.generation.member_id, now, "the member failed")
        effects = (*effects, *leave)
    failed = states.JoinFailed(event.error, must_rejoin=actions.must_rejoin(state))
    return actions.or_finish_leave(context, state, (failed, effects))


def mark_reported(
    context: MemberContext,
    state: states.JoinFailed | states.Fenced,
    event: events.GroupErrorReported,
    now: float,
) -> Outcome:
    return replace(state, reported=True), ()


def retry_after_failure(
    context: MembershipContext, state: states.JoinFailed, event: events.PollStarted, now: float
) -> Outcome:
    """Join again: the cause may be fixed, such as permissions or other members' settings."""
    if not state.reported:
        return state, ()
    context.protocol_violations = context.unknown_server_errors = 0
    return actions.join_as_new_member(
        context, "the last attempt failed", must_rejoin=state.must_rejoin
    )


def clear_subscription(
    context: MembershipContext, event: events.Unsubscribed | events.CloseRequested, now: float
) -> tuple[states.NextAction, float]:
    """Return the action that follows the revocation, and the deadline of LeaveGroup."""
    context.topics = ()
    if isinstance(event, events.CloseRequested):
        context.leave_operation = event.operation
        return states.NextAction.CLOSE, event.deadline
    return states.NextAction.LEAVE, now + context.settings.request_timeout_ms / 1000


def leave_without_partitions(
    context: MembershipContext,
    state: states.MembershipState,
    event: events.Unsubscribed | events.CloseRequested,
    now: float,
) -> Outcome:
    next_action, deadline = clear_subscription(context, event, now)
    member_id, must_rejoin = actions.member_id(state), actions.must_rejoin(state)
    if member_id:
        return actions.leave(
            context, member_id, next_action, deadline, now, owes_rejoin=must_rejoin
        )
    if isinstance(state, states.Joining) and context.sends_leave_group(owes_rejoin=must_rejoin):
        # Without LeaveGroup, the member that this JoinGroup creates would stay in the group until
        # its session times out.
        if must_rejoin:
            # The response comes at once, or the rebalance that the member owes is in progress.
            deadline = min(deadline, now + LEAVE_DURING_REBALANCE_TIMEOUT_S)
        return states.AwaitingMemberId(state.request, next_action, deadline), ()
    return actions.finish_leave(context, next_action, must_rejoin=must_rejoin)


def revoke_and_leave(
    context: MembershipContext,
    state: states.Assigned,
    event: events.Unsubscribed | events.CloseRequested,
    now: float,
) -> Outcome:
    next_action, deadline = clear_subscription(context, event, now)
    if not state.assignment:
        return actions.leave(context, state.generation.member_id, next_action, deadline, now)
    owes_rejoin = not isinstance(state, states.Stable)
    return actions.revoke(context, state, state.assignment, next_action, owes_rejoin=owes_rejoin)


def leave_after_rebalance(
    context: MembershipContext,
    state: states.CooperativeRejoinInFlight,
    event: events.Unsubscribed | events.CloseRequested,
    now: float,
) -> Outcome:
    next_action, deadline = clear_subscription(context, event, now)
    deadline = min(deadline, now + LEAVE_DURING_REBALANCE_TIMEOUT_S)
    if state.pending_leave is not None:
        deadline = min(deadline, state.pending_leave.deadline)
        if state.pending_leave.next_action is states.NextAction.CLOSE:
            next_action = states.NextAction.CLOSE
    return replace(state, pending_leave=states.PendingLeave(next_action, deadline)), ()  # type: ignore[type-var]


def leave_after_revocation(
    context: MembershipContext,
    state: states.Revoking,
    event: events.Unsubscribed | events.CloseRequested,
    now: float,
) -> Outcome:
    next_action, _ = clear_subscription(context, event, now)
    if state.next_action is states.NextAction.CLOSE:
        return state, ()
    owes_rejoin = state.owes_rejoin or state.next_action is states.NextAction.JOIN
    return replace(state, next_action=next_action, owes_rejoin=owes_rejoin), ()


def leave_with_member_id(
    context: MembershipContext,
    state: states.AwaitingMemberId,
    event: events.JoinedAsFollower | events.JoinedAsLeader | events.MemberIdAssigned,
    now: float,
) -> Outcome:
    # Only a member that sends LeaveGroup waits for its id.
    return actions.leave(
        context, event.member_id, state.next_action, state.until, now, owes_rejoin=True
    )


def left(
    context: MembershipContext,
    state: states.AwaitingMemberId | states.Leaving,
    event: events.MembershipEvent,
    now: float,
) -> Outcome:
    if isinstance(event, events.DeadlineReached) and now < state.until:
        return state, ()
    return actions.finish_leave(context, state.next_action)


def shorten_leave(
    context: MemberContext,
    state: states.AwaitingMemberId | states.Leaving,
    event: events.CloseRequested,
    now: float,
) -> Outcome:
    context.topics = ()
    return replace(
        state, next_action=states.NextAction.CLOSE, until=min(state.until, event.deadline)
    ), ()


def stay_left(
    context: MembershipContext,
    state: states.MembershipState,
    event: events.Unsubscribed,
    now: float,
) -> Outcome:
    context.topics = ()
    return state, ()


def rejoin_after_poll_timeout(
    context: MembershipContext, state: states.PollTimedOut, event: events.PollStarted, now: float
) -> Outcome:
    return actions.join_as_new_member(
        context, "max_poll_interval_ms was exceeded", must_rejoin=state.must_rejoin
    )
