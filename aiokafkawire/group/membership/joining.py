"""Handlers of joining and rejoining: FindCoordinator, JoinGroup, assignment, SyncGroup.

A member in a `CooperativeRejoin` state keeps its partitions meanwhile. Any other member owns none
until it is `Stable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from aiokafkawire.errors import GroupFailed
from aiokafkawire.types import NodeId, TopicPartition

from . import actions, events, heartbeats, leaving, states
from .actions import Outcome
from .context import MembershipContext
from .effects import (
    AssignPartitions,
    ComputeAssignment,
    EnterGeneration,
    LogMessage,
    MembershipEffect,
    SendSync,
    WatchPartitionCounts,
)

OLD_BROKERS_SESSION_TIMEOUT_MS = 30_000
"""Highest session timeout that a 0.9 broker allows by default."""

MAX_PROTOCOL_VIOLATIONS = 5
"""The member fails after this many consecutive protocol violations."""

MAX_UNKNOWN_SERVER_ERRORS = 10
"""The member fails after this many consecutive UNKNOWN_SERVER_ERROR responses."""

HasAttempt = TypeVar("HasAttempt", bound=states.AwaitingAssignment | states.Rejoining)

REVOKED_FOR_OTHERS = "revoked partitions that are assigned to other members"

NO_ASSIGNMENTS: Mapping[str, bytes] = {}


def start(
    context: MembershipContext, state: states.MembershipState, event: events.Subscribed, now: float
) -> Outcome:
    context.topics = event.topics
    return actions.join_as_new_member(
        context, actions.SUBSCRIBED, must_rejoin=actions.must_rejoin(state)
    )


def join_at_coordinator(
    context: MembershipContext,
    state: states.FindingCoordinator,
    event: events.CoordinatorFound,
    now: float,
) -> Outcome:
    return actions.join(context, event.node, state.identity)


def find_coordinator_later(
    context: MembershipContext,
    state: states.AttemptingJoin,
    event: events.RequestCompleted,
    now: float,
) -> Outcome:
    return actions.back_off_join(context, state.identity, None, now)


def join_later(
    context: MembershipContext,
    state: states.Joining | states.Rejoining,
    event: events.RequestCompleted,
    now: float,
) -> Outcome:
    return actions.retry_join(context, state, now, node=state.node)


def on_unknown_server_error(
    context: MembershipContext,
    state: states.AttemptingJoin | states.AwaitingAssignment | states.CooperativeRejoin,
    event: events.UnknownServerErrorReceived,
    now: float,
) -> Outcome:
    """Retry, because the error may be temporary, and fail if it persists."""
    if isinstance(state, states.InGeneration) and event.request == state.heartbeat.request:
        return heartbeats.retry_heartbeat_after_error(context, state, event, now)
    context.unknown_server_errors += 1
    if context.unknown_server_errors >= MAX_UNKNOWN_SERVER_ERRORS:
        return leaving.fail(
            context, state, events.FatalErrorOccurred(event.request, event.error), now
        )
    next_state, effects = actions.retry_join(context, state, now, node=None)
    if context.unknown_server_errors > 1:
        return next_state, effects
    return next_state, (
        LogMessage(f"JoinGroup or SyncGroup failed: {event.error}; rejoining", warning=True),
        *effects,
    )


def join_as_new_member_later(
    context: MembershipContext, state: states.Joining, event: events.RequestCompleted, now: float
) -> Outcome:
    """Join without a member id: the coordinator does not know the current one."""
    attempt = replace(state.identity.attempt, reason=actions.loss_reason(event))
    return actions.back_off_join(context, states.JoinIdentity(attempt), state.node, now)


def join_when_due(
    context: MembershipContext, state: states.BackingOff, event: events.DeadlineReached, now: float
) -> Outcome:
    if now < state.until:
        return state, ()
    return actions.join(context, state.node, state.identity)


def join_with_member_id(
    context: MembershipContext, state: states.Joining, event: events.MemberIdAssigned, now: float
) -> Outcome:
    if state.identity.member_id or not event.member_id:
        return reject_member_id(context, state, event, now)
    return actions.join(context, state.node, replace(state.identity, member_id=event.member_id))


def reject_member_id(
    context: MembershipContext,
    state: states.Joining | states.Rejoining,
    event: events.MemberIdAssigned,
    now: float,
) -> Outcome:
    reason = f"MEMBER_ID_REQUIRED for member {actions.member_id(state)!r}"
    return on_protocol_violation(
        context, state, events.ProtocolViolation(event.request, reason), now
    )


def lower_session_timeout(
    context: MembershipContext,
    state: states.Joining | states.Rejoining,
    event: events.SessionTimeoutRejected,
    now: float,
) -> Outcome:
    rejected = context.session_timeout_ms
    if (
        not context.settings.session_timeout_is_default
        or rejected <= OLD_BROKERS_SESSION_TIMEOUT_MS
    ):
        return leaving.fail(
            context, state, events.FatalErrorOccurred(event.request, event.error), now
        )
    context.session_timeout_ms = OLD_BROKERS_SESSION_TIMEOUT_MS
    text = (
        f"the coordinator rejected the default session timeout of {rejected} ms;"
        f" retrying with {OLD_BROKERS_SESSION_TIMEOUT_MS} ms"
    )
    if isinstance(state, states.Rejoining):
        next_state, effects = actions.retry_join(context, state, now, node=state.node)
    else:
        next_state, effects = actions.join(context, state.node, state.identity)
    return next_state, (LogMessage(text), *effects)


def find_violation(
    identity: states.JoinIdentity, event: events.JoinedAsFollower | events.JoinedAsLeader
) -> str | None:
    """Return how a successful JoinGroup response violates the protocol, or None."""
    if not event.member_id:
        return "JoinGroup response without a member id"
    if identity.member_id and event.member_id != identity.member_id:
        return (
            f"JoinGroup response for member {event.member_id!r} instead of {identity.member_id!r}"
        )
    if event.generation < 0:
        return f"generation {event.generation}"
    if identity.member_id and event.generation < identity.last_generation:
        return f"generation {event.generation} follows generation {identity.last_generation}"
    if isinstance(event, events.JoinedAsLeader) and not event.skip_assignment:
        ids = [member.member_id for member in event.members]
        if event.member_id not in ids:
            return "this member is the leader, but not in the list of members"
        if len(set(ids)) != len(ids):
            return "a member is listed twice"
    return None


def joined(
    context: MembershipContext,
    state: states.Joining,
    event: events.JoinedAsFollower | events.JoinedAsLeader,
    now: float,
) -> Outcome:
    violation = find_violation(state.identity, event)
    if violation is not None:
        return on_protocol_violation(
            context, state, events.ProtocolViolation(event.request, violation), now
        )
    attempt = state.identity.attempt
    if context.topics != state.topics:
        # The subscription changed meanwhile: an assignment of this generation would not match.
        attempt = replace(attempt, reason=actions.SUBSCRIPTION_CHANGED)
        identity = states.JoinIdentity(attempt, event.member_id, event.generation)
        return actions.join(context, state.node, identity)
    generation = new_generation(event, state.topics)
    request = context.new_request()
    heartbeat = context.new_heartbeat(state.node, now)
    effects = next_requests(event, request, state.node, generation)
    if isinstance(effects[0], ComputeAssignment):
        return states.Assigning(generation, heartbeat, request, attempt), effects
    return states.Syncing(generation, heartbeat, request, attempt), effects


def rejoined(
    context: MembershipContext,
    state: states.Rejoining,
    event: events.JoinedAsFollower | events.JoinedAsLeader,
    now: float,
) -> Outcome:
    """Continue as `joined`, with the partitions of the previous generation."""
    violation = find_violation(actions.join_identity(state), event)
    if violation is not None:
        return on_protocol_violation(
            context, state, events.ProtocolViolation(event.request, violation), now
        )
    # mutation: missed-generation-ignored
    if event.generation > state.generation.number + 1 and not _coordinator_assigns(event):
        # In the missed generation, the partitions may have been assigned to other members.
        reason = "the group had a generation without this member"
        lost = actions.lose_partitions(state, reason)
        if state.pending_leave is not None:
            next_action = state.pending_leave.next_action
            deadline = now + context.settings.request_timeout_ms / 1000
            next_state, effects = actions.leave(
                context, event.member_id, next_action, deadline, now, owes_rejoin=True
            )
            return next_state, (*lost, *effects)
        attempt = replace(state.attempt, reason=reason)
        identity = states.JoinIdentity(attempt, event.member_id, event.generation)
        next_state, effects = actions.join(context, state.node, identity)
        return next_state, (*lost, *effects)
    generation = new_generation(event, state.topics)
    request = context.new_request()
    effects = next_requests(event, request, state.node, generation)
    assigns = isinstance(effects[0], ComputeAssignment)
    rejoin_state = states.Reassigning if assigns else states.Resyncing
    heartbeat = context.new_heartbeat(state.node, now)
    return rejoin_state(
        generation, heartbeat, state.assignment, request, state.attempt, state.pending_leave
    ), effects


def _coordinator_assigns(event: events.JoinedAsFollower | events.JoinedAsLeader) -> bool:
    """Return whether the coordinator tracks who owns the partitions (KIP-848).

    It assigns none to another member before this one has revoked it or is removed, so that
    generations may be missed.
    """
    return isinstance(event, events.JoinedAsFollower) and event.coordinator_assigns


def new_generation(
    event: events.JoinedAsFollower | events.JoinedAsLeader, topics: tuple[str, ...]
) -> states.Generation:
    is_leader = isinstance(event, events.JoinedAsLeader)
    return states.Generation(event.member_id, event.generation, event.protocol, topics, is_leader)


def next_requests(
    event: events.JoinedAsFollower | events.JoinedAsLeader,
    request: int,
    node: NodeId,
    generation: states.Generation,
) -> Sequence[MembershipEffect]:
    """Return the effects that follow JoinGroup: run the assignor, or send SyncGroup."""
    sync = SendSync(request, node, generation, NO_ASSIGNMENTS)
    if not isinstance(event, events.JoinedAsLeader):
        return (sync,)
    if event.skip_assignment:
        return WatchPartitionCounts(event.members), sync
    return (ComputeAssignment(request, event.protocol, event.members),)


def send_assignments(
    context: MembershipContext,
    state: states.Assigning | states.Reassigning,
    event: events.AssignmentComputed,
    now: float,
) -> Outcome:
    node = state.heartbeat.node
    if node is None:
        # The coordinator moved while the assignor ran, and the group may have changed.
        return actions.retry_join(context, state, now, node=None)
    request = context.new_request()
    send = SendSync(request, node, state.generation, event.assignments)
    if isinstance(state, states.Reassigning):
        return states.Resyncing(
            state.generation,
            state.heartbeat,
            state.assignment,
            request,
            state.attempt,
            state.pending_leave,
        ), (send,)
    return states.Syncing(state.generation, state.heartbeat, request, state.attempt), (send,)


def find_unsubscribed(
    state: states.AwaitingAssignment, event: events.Synced
) -> TopicPartition | None:
    """Return an assigned partition that is not subscribed; None if there is none."""
    subscribed = set(state.generation.topics)
    for tp in event.assignment:
        if tp.topic not in subscribed or tp.partition < 0:
            return tp
    return None


def reject_assignment(
    context: MembershipContext,
    state: states.AwaitingAssignment,
    event: events.Synced,
    unsubscribed: TopicPartition,
    now: float,
) -> Outcome:
    """Ignore the assignment and rejoin, so that the leader computes another one.

    A static member that comes back with another subscription gets the assignment of the old one.
    """
    violation = f"{unsubscribed} is assigned, but not subscribed"
    context.protocol_violations += 1
    if context.protocol_violations >= MAX_PROTOCOL_VIOLATIONS:
        return on_protocol_violation(
            context, state, events.ProtocolViolation(event.request, violation), now
        )
    state = with_reason(state, "the assignment does not match the subscription")
    next_state, effects = actions.retry_join(context, state, now, node=state.heartbeat.node)
    return next_state, (LogMessage(f"rejoining: {violation}"), *effects)


def with_reason(state: HasAttempt, reason: str) -> HasAttempt:
    return replace(state, attempt=replace(state.attempt, reason=reason))  # type: ignore[type-var]


def become_stable(
    context: MembershipContext, state: states.Syncing, event: events.Synced, now: float
) -> Outcome:
    unsubscribed = find_unsubscribed(state, event)
    if unsubscribed is not None:
        return reject_assignment(context, state, event, unsubscribed, now)
    assigned = tuple(sorted(dict.fromkeys(event.assignment)))
    return complete_rebalance(context, state, assigned, assigned, now)


def complete_rebalance(
    context: MembershipContext,
    state: states.Syncing | states.Resyncing,
    assigned: states.Assignment,
    to_add: states.Assignment,
    now: float,
) -> Outcome:
    """Own the assignment, unless the member has to rejoin."""
    context.protocol_violations = context.unknown_server_errors = 0
    stable = states.Stable(state.generation, state.heartbeat, assigned)
    effects = (EnterGeneration(stable.generation, assigned), AssignPartitions(to_add))
    if context.topics != stable.generation.topics:
        reason = actions.SUBSCRIPTION_CHANGED
    elif state.attempt.must_rejoin:
        reason = REVOKED_FOR_OTHERS
    else:
        return stable, effects
    next_state, more = actions.rebalance(context, stable, reason, now)
    return next_state, (*effects, *more)


def apply_cooperative_assignment(
    context: MembershipContext, state: states.Resyncing, event: events.Synced, now: float
) -> Outcome:
    """Add new partitions immediately; revoke those no longer assigned, then rejoin without them."""
    unsubscribed = find_unsubscribed(state, event)
    if unsubscribed is not None:
        return reject_assignment(context, state, event, unsubscribed, now)
    assigned = tuple(sorted(dict.fromkeys(event.assignment)))
    still_assigned, owned = set(assigned), set(state.assignment)
    to_revoke = tuple(tp for tp in state.assignment if tp not in still_assigned)
    # mutation: new-partition-dropped-in-cooperative-rebalance
    to_add = tuple(tp for tp in assigned if tp not in owned)
    if not to_revoke and state.pending_leave is None:
        return complete_rebalance(context, state, assigned, to_add, now)
    context.protocol_violations = context.unknown_server_errors = 0
    enter = EnterGeneration(state.generation, state.assignment)
    if state.pending_leave is not None:
        next_state, effects = actions.revoke(
            context,
            state,
            state.assignment,
            state.pending_leave.next_action,
            owes_rejoin=bool(to_revoke),
        )
    else:
        next_state, effects = actions.revoke_when_polled(
            context, state, to_revoke, reason=REVOKED_FOR_OTHERS, to_add=to_add
        )
    return next_state, (enter, *effects)


def on_protocol_violation(
    context: MembershipContext,
    state: states.Joining | states.AwaitingAssignment | states.CooperativeRejoin,
    event: events.ProtocolViolation,
    now: float,
) -> Outcome:
    """Rejoin as a new member; fail after too many consecutive violations."""
    if isinstance(state, states.InGeneration) and event.request == state.heartbeat.request:
        return heartbeats.coordinator_lost(context, state, event, now)
    text = f"the group coordinator violated the protocol: {event.reason}"
    identity = actions.join_identity(state)
    lost = actions.lose_partitions(state, text)
    leave = actions.leave_no_wait(context, identity.member_id, now, "protocol violation")
    context.protocol_violations += 1
    if context.protocol_violations >= MAX_PROTOCOL_VIOLATIONS:
        return actions.or_finish_leave(
            context,
            state,
            (
                states.JoinFailed(GroupFailed(text), must_rejoin=identity.attempt.must_rejoin),
                (*lost, *leave),
            ),
        )
    attempt = replace(identity.attempt, reason="the coordinator violated the protocol")
    next_state, effects = actions.back_off_join(context, states.JoinIdentity(attempt), None, now)
    log = LogMessage(text, warning=True)
    return actions.or_finish_leave(context, state, (next_state, (log, *lost, *leave, *effects)))


# --- errors before the assignment -------------------------------------------------------------


def rejoin_later(
    context: MembershipContext,
    state: states.AwaitingAssignment | states.Rejoining,
    event: events.RequestCompleted,
    now: float,
) -> Outcome:
    if event.request != state.request:
        return heartbeats.retry_heartbeat(context, state, event, now)
    return actions.retry_join(context, state, now, node=state.heartbeat.node)


def find_coordinator_and_rejoin(
    context: MembershipContext,
    state: states.AwaitingAssignment | states.Rejoining,
    event: events.RequestCompleted,
    now: float,
) -> Outcome:
    """Find the coordinator and rejoin. After a failed heartbeat, only find the coordinator."""
    if event.request != state.request:
        return heartbeats.coordinator_lost(context, state, event, now)
    return actions.retry_join(context, state, now, node=None)


def reset_and_rejoin(
    context: MembershipContext,
    state: states.AwaitingAssignment,
    event: events.RequestCompleted,
    now: float,
) -> Outcome:
    """Rejoin without a generation, and without a member id unless only the generation is wrong.

    With a new member id, the group would wait for the old member until its session times out.
    """
    keeps_id = isinstance(event, events.IllegalGeneration)
    member_id = state.generation.member_id if keeps_id else ""
    attempt = replace(state.attempt, reason=actions.loss_reason(event))
    identity = states.JoinIdentity(attempt, member_id)
    return actions.back_off_join(context, identity, state.heartbeat.node, now)


def on_rebalance_in_progress(
    context: MembershipContext,
    state: states.AwaitingAssignment | states.Rejoining,
    event: events.RebalanceInProgress,
    now: float,
) -> Outcome:
    """Rejoin if SyncGroup returned the error.

    Old brokers return it to heartbeats until SyncGroup completes, so those are ignored.
    """
    if event.request != state.request:
        return heartbeats.heartbeat_succeeded(context, state, event, now)
    state = with_reason(state, actions.REBALANCING)
    if state.attempt.failures or isinstance(state, states.CooperativeRejoin):
        return actions.retry_join(context, state, now, node=state.heartbeat.node)
    identity = actions.join_identity(state)
    identity = replace(identity, attempt=actions.after_failure(identity.attempt))
    return actions.join(context, state.heartbeat.node, identity)
