"""Actions shared by the handlers of several states. `table` has the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from aiokafkawire.types import NodeId

from . import events, states
from .context import MembershipContext
from .effects import (
    FindCoordinator,
    ForgetCoordinator,
    InterruptPoll,
    LogMessage,
    LosePartitions,
    MembershipEffect,
    RevokePartitions,
    SendJoin,
    SendLeave,
)

Outcome = tuple[states.MembershipState, Sequence[MembershipEffect]]
AnyInGeneration = TypeVar("AnyInGeneration", bound=states.InGeneration)

SUBSCRIBED = "the consumer subscribed"
SUBSCRIPTION_CHANGED = "the subscription changed"
REBALANCING = "the group is rebalancing"
"""Reasons in JoinGroup (KIP-800)."""

LEAVE_RESPONSE_TIMEOUT_S = 0.75
"""How long `close()` waits for the LeaveGroup response."""


def record_subscription(
    context: MembershipContext, state: states.MembershipState, event: events.Subscribed, now: float
) -> Outcome:
    """Store the topics for the next JoinGroup."""
    context.topics = event.topics
    return state, ()


# --- joining ----------------------------------------------------------------------------------


def find_coordinator(context: MembershipContext, identity: states.JoinIdentity) -> Outcome:
    request = context.new_request()
    return states.FindingCoordinator(identity, request), (FindCoordinator(request),)


def join(context: MembershipContext, node: NodeId | None, identity: states.JoinIdentity) -> Outcome:
    """Join at `node`, or find the coordinator first."""
    if node is None:
        return find_coordinator(context, identity)
    request = context.new_request()
    send = send_join(context, request, node, identity, ())
    return states.Joining(identity, node, context.topics, request), (send,)


def join_as_new_member(
    context: MembershipContext, reason: str, *, must_rejoin: bool = False
) -> Outcome:
    """Begin to join without a member id, if topics are subscribed."""
    if not context.topics:
        return states.Unjoined(must_rejoin), ()
    attempt = states.JoinAttempt(reason, must_rejoin=must_rejoin)
    return find_coordinator(context, states.JoinIdentity(attempt))


def send_join(
    context: MembershipContext,
    request: int,
    node: NodeId,
    identity: states.JoinIdentity,
    owned: states.Assignment,
) -> SendJoin:
    return SendJoin(
        request,
        node,
        identity.member_id,
        context.topics,
        context.session_timeout_ms,
        identity.last_generation,
        owned,
        identity.attempt.reason,
    )


def back_off_join(
    context: MembershipContext, identity: states.JoinIdentity, node: NodeId | None, now: float
) -> Outcome:
    identity = replace(identity, attempt=after_failure(identity.attempt))
    until = now + context.backoff_s(identity.attempt.failures)
    return states.BackingOff(identity, node, until), (ForgetCoordinator(),) if node is None else ()


def after_failure(attempt: states.JoinAttempt) -> states.JoinAttempt:
    return replace(attempt, failures=attempt.failures + 1)


def join_identity(
    state: states.AttemptingJoin | states.AwaitingAssignment | states.CooperativeRejoin,
) -> states.JoinIdentity:
    """Return the attempt, member id and generation that a state would join with again."""
    if isinstance(state, states.AttemptingJoin):
        return state.identity
    return states.JoinIdentity(state.attempt, state.generation.member_id, state.generation.number)


def member_id(state: states.MembershipState) -> str:
    """Return the member id that the coordinator knows; "" if there is none."""
    if isinstance(state, states.AttemptingJoin):
        return state.identity.member_id
    if isinstance(state, states.PollTimedOut):
        return state.member_id
    return state.generation.member_id if isinstance(state, states.InGeneration) else ""


def must_rejoin(state: states.MembershipState) -> bool:
    """Return whether the member rejoins after its next assignment; see `PollTimedOut`."""
    if isinstance(state, states.AttemptingJoin):
        return state.identity.attempt.must_rejoin
    if isinstance(state, states.AwaitingAssignment):
        return state.attempt.must_rejoin
    ended = (states.Unjoined, states.PollTimedOut, states.JoinFailed)
    return isinstance(state, ended) and state.must_rejoin


def loss_reason(event: events.RequestCompleted) -> str:
    if isinstance(event, events.IllegalGeneration):
        return "its generation has ended (ILLEGAL_GENERATION)"
    return "the coordinator does not know this member (UNKNOWN_MEMBER_ID)"


def with_heartbeat(state: AnyInGeneration, heartbeat: states.HeartbeatState) -> AnyInGeneration:
    return replace(state, heartbeat=heartbeat)  # type: ignore[type-var]


# --- rejoining --------------------------------------------------------------------------------


def partitions_to_revoke(context: MembershipContext, state: states.Assigned) -> states.Assignment:
    """Return the partitions that must be revoked before the member may rejoin.

    The eager protocol revokes all of them, the cooperative one those of unsubscribed topics.
    """
    if not context.settings.cooperative:
        return state.assignment
    topics = set(context.topics)
    return tuple(tp for tp in state.assignment if tp.topic not in topics)


def rebalance(
    context: MembershipContext, state: states.Assigned, reason: str, now: float
) -> Outcome:
    """Rejoin and give the coordinator the reason (KIP-800)."""
    # The response to a heartbeat in flight is ignored: it would report the same rebalance.
    heartbeat = context.new_heartbeat(state.heartbeat.node, now)
    stable = states.Stable(state.generation, heartbeat, state.assignment)
    return rejoin(context, stable, states.JoinAttempt(reason), now)


def rejoin(
    context: MembershipContext, state: states.Assigned, attempt: states.JoinAttempt, now: float
) -> Outcome:
    """Rejoin as the same member, after revoking what must be revoked."""
    generation, node, owned = state.generation, state.heartbeat.node, state.assignment
    identity = states.JoinIdentity(attempt, generation.member_id, generation.number)
    if not owned:
        return join(context, node, identity)
    to_revoke = partitions_to_revoke(context, state)
    if to_revoke:
        return revoke_when_polled(context, state, to_revoke, reason=attempt.reason)
    if node is None:
        return states.RejoinBackoff(generation, state.heartbeat, owned, attempt, now), ()
    request = context.new_request()
    joining = states.Rejoining(
        generation, state.heartbeat, owned, attempt, request, node, context.topics
    )
    return joining, (send_join(context, request, node, identity, owned),)


def revoke_when_polled(
    context: MembershipContext,
    state: states.Assigned,
    to_revoke: states.Assignment,
    *,
    reason: str,
    to_add: states.Assignment | None = None,
) -> Outcome:
    """Revoke now if the application waits in a poll, otherwise at its next poll."""
    if context.poll_timer.open_polls:
        return revoke(
            context, state, to_revoke, states.NextAction.JOIN, reason=reason, to_add=to_add
        )
    revocation_due = states.RevocationDue(
        state.generation, state.heartbeat, state.assignment, to_revoke, reason, to_add
    )
    return revocation_due, (InterruptPoll(),)


def revoke(
    context: MembershipContext,
    state: states.Assigned,
    to_revoke: states.Assignment,
    next_action: states.NextAction,
    *,
    reason: str = "",
    to_add: states.Assignment | None = None,
    owes_rejoin: bool = False,
) -> Outcome:
    """Revoke partitions; then rejoin for the `reason`, or leave."""
    request = context.new_request()
    revoking = states.Revoking(
        state.generation,
        state.heartbeat,
        state.assignment,
        to_revoke,
        request,
        next_action,
        reason,
        to_add,
        owes_rejoin,
    )
    return revoking, (RevokePartitions(request, to_revoke),)


def back_off_rejoin(
    context: MembershipContext, state: states.CooperativeRejoin, node: NodeId | None, now: float
) -> Outcome:
    """Rejoin with the owned partitions after a backoff. Without a node, find the coordinator."""
    attempt = after_failure(state.attempt)
    until = now + context.backoff_s(attempt.failures)
    heartbeat = context.new_heartbeat(node, now)
    if node is None:
        heartbeat = replace(heartbeat, next_at=until)
    waiting = states.RejoinBackoff(state.generation, heartbeat, state.assignment, attempt, until)
    return waiting, (ForgetCoordinator(),) if node is None else ()


def retry_join(
    context: MembershipContext,
    state: states.AttemptingJoin | states.AwaitingAssignment | states.CooperativeRejoin,
    now: float,
    *,
    node: NodeId | None,
) -> Outcome:
    """Retry as the same member after a failed JoinGroup or SyncGroup.

    `node` is the coordinator; if it is None, find the coordinator first.
    """
    if not isinstance(state, states.CooperativeRejoin):
        return back_off_join(context, join_identity(state), node, now)
    if state.pending_leave is not None:
        next_action = state.pending_leave.next_action
        return revoke(context, state, state.assignment, next_action, owes_rejoin=True)
    return back_off_rejoin(context, state, node, now)


# --- leaving ----------------------------------------------------------------------------------


def lose_partitions(state: states.MembershipState, reason: str) -> Sequence[MembershipEffect]:
    if isinstance(state, states.Assigned) and state.assignment:
        return (LosePartitions(state.assignment, reason),)
    return ()


def or_finish_leave(
    context: MembershipContext, state: states.MembershipState, outcome: Outcome
) -> Outcome:
    """Return `outcome`, or leave the group if the member was leaving already."""
    next_action = states.NextAction.JOIN
    if isinstance(state, states.CooperativeRejoin) and state.pending_leave is not None:
        next_action = state.pending_leave.next_action
    elif isinstance(state, states.Revoking):
        next_action = state.next_action
    if next_action is states.NextAction.JOIN:
        return outcome
    last = [
        effect
        for effect in outcome[1]
        if isinstance(effect, LosePartitions | SendLeave | LogMessage)
    ]
    left_state, effects = finish_leave(context, next_action)
    return left_state, (*last, *effects)


def leave_no_wait(
    context: MembershipContext, member_id: str, now: float, reason: str
) -> Sequence[MembershipEffect]:
    """Send LeaveGroup without waiting for the response. Static members do not leave (KIP-345)."""
    if not member_id or context.settings.group_instance_id is not None:
        return ()
    deadline = now + context.settings.request_timeout_ms / 1000
    return (SendLeave(context.new_request(), member_id, deadline, reason),)


def leave(
    context: MembershipContext,
    member_id: str,
    next_action: states.NextAction,
    deadline: float,
    now: float,
    *,
    owes_rejoin: bool = False,
) -> Outcome:
    # mutation: static-member-leaves-group
    if not member_id or not context.sends_leave_group(owes_rejoin=owes_rejoin):
        return finish_leave(context, next_action)
    request = context.new_request()
    reason = "the consumer unsubscribed"
    if next_action is states.NextAction.CLOSE:
        reason = "the consumer is being closed"
        deadline = min(deadline, now + LEAVE_RESPONSE_TIMEOUT_S)
    return states.Leaving(request, next_action, deadline), (
        SendLeave(request, member_id, deadline, reason),
    )


def finish_leave(
    context: MembershipContext, next_action: states.NextAction, *, must_rejoin: bool = False
) -> Outcome:
    """Close, or join again if the application has subscribed in the meantime."""
    if next_action is states.NextAction.CLOSE:
        return states.MembershipClosed(), ()
    return join_as_new_member(context, SUBSCRIBED, must_rejoin=must_rejoin)
