"""Actions shared by the handlers of several states. `table` has the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from aiokafkawire.errors import KafkaError
from aiokafkawire.group.membership import states as outside
from aiokafkawire.group.membership.actions import LEAVE_RESPONSE_TIMEOUT_S
from aiokafkawire.group.membership.effects import (
    AssignPartitions,
    EnterGeneration,
    FindCoordinator,
    InterruptPoll,
    LogMessage,
    LosePartitions,
    MembershipEffect,
    RevokePartitions,
)
from aiokafkawire.group.membership.states import NextAction
from aiokafkawire.group.topic_id_partition import Partitions, topic_partitions, without
from aiokafkawire.runtime.interfaces import NEVER

from . import states
from .context import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerProtocolContext
from .effects import RefreshTopics, SendConsumerHeartbeat, SendLeaveEpoch

Outcome = tuple[outside.MembershipState, Sequence[MembershipEffect]]
AnyInHeartbeats = TypeVar("AnyInHeartbeats", bound=states.InHeartbeats)

PROTOCOL = "consumer"


def with_heartbeat(state: AnyInHeartbeats, heartbeat: states.HeartbeatSchedule) -> AnyInHeartbeats:
    return replace(state, heartbeat=heartbeat)  # type: ignore[type-var]


# --- heartbeats -------------------------------------------------------------------------------


def join(now: float, attempt: int = 0) -> states.ConsumerJoining:
    """Return the state that finds the coordinator and joins at `now`."""
    return states.ConsumerJoining(states.HeartbeatSchedule(None, now, attempt=attempt))


def fields_to_report(
    context: ConsumerProtocolContext, state: states.InHeartbeats
) -> states.ReportedFields:
    # mutation: revocation-acknowledged-before-callback
    owned = state.owned if isinstance(state, states.InGroup) else ()
    return states.ReportedFields(context.topics, owned, context.pattern)


def _pattern_to_report(
    context: ConsumerProtocolContext, reported: states.ReportedFields | None
) -> str | None:
    if reported is not None and reported.pattern == context.pattern:
        return None
    return "" if context.pattern is None and context.had_pattern else context.pattern


def send_due_heartbeat(
    context: ConsumerProtocolContext, state: states.InHeartbeats, now: float
) -> Outcome:
    """Send a heartbeat, or FindCoordinator if the coordinator is unknown."""
    heartbeat = state.heartbeat
    if heartbeat.request is not None or now < heartbeat.next_at:
        return state, ()
    request = context.new_request()
    if heartbeat.node is None:
        return with_heartbeat(state, replace(heartbeat, request=request)), (
            FindCoordinator(request),
        )
    fields, reported = fields_to_report(context, state), heartbeat.reported
    epoch = state.epoch if isinstance(state, states.InGroup) else states.JOIN_EPOCH
    if heartbeat.keeps_alive:
        in_flight = replace(heartbeat, request=request, in_flight=None)
        return with_heartbeat(state, in_flight), (
            SendConsumerHeartbeat(
                request, heartbeat.node, epoch, full=False, topics=None, owned=None
            ),
        )
    send = SendConsumerHeartbeat(
        request,
        heartbeat.node,
        epoch,
        full=reported is None,
        topics=None if reported and reported.topics == fields.topics else fields.topics,
        owned=None if reported and reported.owned == fields.owned else fields.owned,
        pattern=_pattern_to_report(context, reported),
    )
    sent = with_heartbeat(state, replace(heartbeat, request=request, in_flight=fields))
    if isinstance(state, states.InGroup) and state.target.unresolved:
        # The coordinator assigns partitions once: they are unread until their topics are known.
        return sent, (send, RefreshTopics())
    return sent, (send,)


def lose_and_rejoin(
    context: ConsumerProtocolContext, state: states.InGroup, error: KafkaError, now: float
) -> Outcome:
    """Join again with epoch 0 and the same member id; the partitions belong to others now."""
    reason = f"the coordinator removed the member ({error.reason})"
    lost = (LosePartitions(topic_partitions(state.owned), reason),) if state.owned else ()
    joining = join(now, state.heartbeat.attempt)
    heartbeat = replace(joining.heartbeat, node=state.heartbeat.node)
    return with_heartbeat(joining, heartbeat), (LogMessage(f"rejoining: {reason}"), *lost)


# --- reconciling ------------------------------------------------------------------------------


def reconcile(context: ConsumerProtocolContext, state: states.InGroup, now: float) -> Outcome:
    """Take the next step towards the target assignment, if no revocation is running."""
    # mutation: assignment-applied-while-leaving
    if isinstance(state, states.ConsumerRevoking):
        return state, ()
    to_revoke = without(state.owned, state.target.partitions)
    if not to_revoke:
        return _assign(context, state, now)
    if context.poll_timer.open_polls:
        return revoke(context, state, to_revoke, NextAction.JOIN)
    due = states.ConsumerRevocationDue(state.heartbeat, state.epoch, state.owned, state.target)
    return due, (InterruptPoll(),)


def revoke(
    context: ConsumerProtocolContext,
    state: states.InGroup,
    to_revoke: Partitions,
    next_action: NextAction,
) -> Outcome:
    request = context.new_request()
    revoking = states.ConsumerRevoking(
        state.heartbeat, state.epoch, state.owned, state.target, to_revoke, request, next_action
    )
    return revoking, (RevokePartitions(request, topic_partitions(to_revoke)),)


def _assign(context: ConsumerProtocolContext, state: states.InGroup, now: float) -> Outcome:
    """Own the target partitions, and report them with the next heartbeat, at once."""
    to_add = without(state.target.partitions, state.owned)
    owned = state.target.partitions
    changed = owned != state.owned or isinstance(state, states.Reconciling)
    heartbeat = replace(state.heartbeat, next_at=now) if changed else state.heartbeat
    stable = states.ConsumerStable(heartbeat, state.epoch, owned, state.target)
    if not changed:
        return stable, ()
    generation = outside.Generation(
        context.settings.member_id, state.epoch, PROTOCOL, context.topics, is_leader=False
    )
    return stable, (
        EnterGeneration(generation, topic_partitions(owned)),
        AssignPartitions(topic_partitions(to_add)),
    )


def end_while_revoking(
    state: states.ConsumerRevoking, ended: outside.MembershipState
) -> states.ConsumerRevoking:
    """Stop heartbeats and keep only the partitions that are being revoked."""
    # mutation: fenced-member-sends-heartbeats
    silent = states.HeartbeatSchedule(state.heartbeat.node, NEVER)
    return replace(state, heartbeat=silent, owned=state.to_revoke, ended=ended)


# --- leaving ----------------------------------------------------------------------------------


def has_never_joined(state: states.InHeartbeats) -> bool:
    """Return True if the coordinator cannot know a member that is joining."""
    heartbeat = state.heartbeat
    # mutation: member-closed-while-joining-stays
    never_joined = heartbeat.in_flight is None and not heartbeat.attempt
    return isinstance(state, states.ConsumerJoining) and never_joined


def send_leave(context: ConsumerProtocolContext, now: float, reason: str) -> SendLeaveEpoch:
    """Return the effect that leaves for an error; a static member keeps its assignment."""
    deadline = now + context.settings.request_timeout_ms / 1000
    epoch = LEAVE_EPOCH if context.settings.group_instance_id is None else LEAVE_STATIC_EPOCH
    return SendLeaveEpoch(context.new_request(), epoch, deadline, reason)


def leave(
    context: ConsumerProtocolContext,
    state: states.InHeartbeats,
    next_action: NextAction,
    now: float,
    deadline: float | None = None,
) -> Outcome:
    """Send the leave epoch, unless the coordinator cannot know the member."""
    epoch = context.leave_epoch
    if epoch is None or has_never_joined(state):
        return finish(context, next_action, now)
    reason = "the consumer unsubscribed"
    until = now + context.settings.request_timeout_ms / 1000
    if next_action is NextAction.CLOSE:
        reason = "the consumer is being closed"
        until = now + LEAVE_RESPONSE_TIMEOUT_S
    if deadline is not None:
        until = min(until, deadline)
    request = context.new_request()
    context.may_be_known = False
    return outside.Leaving(request, next_action, until), (
        SendLeaveEpoch(request, epoch, until, reason),
    )


def finish(context: ConsumerProtocolContext, next_action: NextAction, now: float) -> Outcome:
    """Return the state outside the group: closed, unsubscribed, or joining with new topics."""
    if next_action is NextAction.CLOSE:
        return outside.MembershipClosed(), ()
    return (join(now) if context.is_subscribed else outside.Unjoined()), ()


def or_leave(
    context: ConsumerProtocolContext, next_action: NextAction, outcome: Outcome, now: float
) -> Outcome:
    """Return `outcome`, or the state outside the group if the member was leaving already."""
    if next_action is NextAction.JOIN:
        return outcome
    state, _ = finish(context, next_action, now)
    return state, outcome[1]
