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
        context.join_reason,
    )


def back_off_join(
    context: MembershipContext, identity: states.JoinIdentity, node: NodeId | None, now: float
) -> Outcome:
    identity = replace(identity, attempt=identity.attempt + 1)
    until = now + context.backoff_s(identity.attempt)
    return states.BackingOff(identity, node, until), (ForgetCoordinator(),) if node is None else ()


def join_identity(state: states.MembershipState) -> states.JoinIdentity:
    """Return the member id and generation that a state would rejoin with."""
    if isinstance(state, states.AttemptingJoin):
        return state.identity
    if isinstance(state, states.InGeneration):
        attempt = (
            state.attempt
            if isinstance(state, states.AwaitingAssignment | states.CooperativeRejoin)
            else 0
        )
        return states.JoinIdentity(state.generation.member_id, state.generation.number, attempt)
    return states.NEW_MEMBER


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
    context.join_reason = reason
    # The response to a heartbeat in flight is ignored: it would report the same rebalance.
    heartbeat = context.new_heartbeat(state.heartbeat.node, now)
    return rejoin(context, states.Stable(state.generation, heartbeat, state.assignment), now)


def rejoin(context: MembershipContext, state: states.InGeneration, now: float) -> Outcome:
    """Rejoin as the same member, after revoking what must be revoked."""
    identity = join_identity(state)
    node = state.heartbeat.node
    if not isinstance(state, states.Assigned) or not state.assignment:
        return join(context, node, identity)
    to_revoke = partitions_to_revoke(context, state)
    if to_revoke:
        return revoke_when_polled(context, state, to_revoke, None)
    owned = state.assignment
    if node is None:
        return states.RejoinBackoff(
            state.generation, state.heartbeat, owned, identity.attempt, now
        ), ()
    request = context.new_request()
    joining = states.Rejoining(
        state.generation, state.heartbeat, owned, identity.attempt, request, node, context.topics
    )
    return joining, (send_join(context, request, node, identity, owned),)


def revoke_when_polled(
    context: MembershipContext,
    state: states.Assigned,
    to_revoke: states.Assignment,
    to_add: states.Assignment | None,
) -> Outcome:
    """Revoke now if the application waits in a poll, otherwise at its next poll."""
    if context.poll_timer.open_polls:
        return revoke(context, state, to_revoke, states.NextAction.JOIN, to_add)
    revocation_due = states.RevocationDue(
        state.generation, state.heartbeat, state.assignment, to_revoke, to_add
    )
    return revocation_due, (InterruptPoll(),)


def revoke(
    context: MembershipContext,
    state: states.Assigned,
    to_revoke: states.Assignment,
    next_action: states.NextAction,
    to_add: states.Assignment | None = None,
) -> Outcome:
    request = context.new_request()
    revoking = states.Revoking(
        state.generation, state.heartbeat, state.assignment, to_revoke, request, next_action, to_add
    )
    return revoking, (RevokePartitions(request, to_revoke),)


def back_off_rejoin(
    context: MembershipContext, state: states.CooperativeRejoin, node: NodeId | None, now: float
) -> Outcome:
    """Rejoin with the owned partitions after a backoff. Without a node, find the coordinator."""
    attempt = state.attempt + 1
    until = now + context.backoff_s(attempt)
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
        return revoke(context, state, state.assignment, state.pending_leave.next_action)
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
    left_state, effects = close_or_join(context, next_action)
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
) -> Outcome:
    # mutation: static-member-leaves-group
    if not member_id or context.settings.group_instance_id is not None:
        return close_or_join(context, next_action)
    request = context.new_request()
    reason = "the consumer unsubscribed"
    if next_action is states.NextAction.CLOSE:
        reason = "the consumer is being closed"
        deadline = min(deadline, now + LEAVE_RESPONSE_TIMEOUT_S)
    return states.Leaving(request, next_action, deadline), (
        SendLeave(request, member_id, deadline, reason),
    )


def close_or_join(context: MembershipContext, next_action: states.NextAction) -> Outcome:
    if next_action is states.NextAction.CLOSE:
        return states.MembershipClosed(), ()
    context.join_reason = "the consumer subscribed"
    return (
        find_coordinator(context, states.NEW_MEMBER) if context.topics else (states.Unjoined(), ())
    )
