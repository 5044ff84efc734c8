"""Handlers of assignments. A member of a share group takes each assignment at once.

Members share partitions, so nothing is revoked and the coordinator waits for no acknowledgement.
"""

from __future__ import annotations

from dataclasses import replace

from aiokafkawire.group.consumer_protocol import events, leaving, states
from aiokafkawire.group.consumer_protocol.actions import Outcome
from aiokafkawire.group.consumer_protocol.context import ConsumerProtocolContext
from aiokafkawire.group.consumer_protocol.effects import RefreshTopics
from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership.effects import LogMessage, MembershipEffect

from .effects import ReplaceAssignment

UNASSIGNED_INTERVAL_S = 0.5
"""Longest heartbeat interval without partitions: after the first join of a group, the coordinator
initializes the share partitions, and the assignment comes with a later heartbeat."""


def joined(
    context: ConsumerProtocolContext,
    state: states.ConsumerJoining,
    event: events.HeartbeatResponded,
    now: float,
) -> Outcome:
    context.may_be_known = True
    stable = states.ConsumerStable(state.heartbeat, event.epoch)
    log = LogMessage(f"joined as {context.settings.member_id} with member epoch {event.epoch}")
    next_state, effects = responded(context, stable, event, now)
    return next_state, (log, *effects)


def responded(
    context: ConsumerProtocolContext,
    state: states.ConsumerStable,
    event: events.HeartbeatResponded,
    now: float,
) -> Outcome:
    """Store the epoch, and take the assignment if there is one."""
    reported = state.heartbeat.in_flight  # None after a heartbeat with only the epoch
    changed = reported is not None and reported.topics != context.topics
    target = state.target if event.target is None else event.target
    interval_s = event.interval_s
    if target == states.NOTHING_ASSIGNED:
        interval_s = min(interval_s, UNASSIGNED_INTERVAL_S)
    heartbeat = states.HeartbeatSchedule(
        state.heartbeat.node, now if changed else now + interval_s, reported=reported
    )
    stable = replace(state, heartbeat=heartbeat, epoch=event.epoch)
    if event.target is None:
        return stable, ()
    # The metadata lacks the names of topics that are assigned and were just deleted.
    known = {owned.topic_id: owned.topic for owned in state.owned}
    return _assign(stable, event.target.resolve(known))


def topics_resolved(
    context: ConsumerProtocolContext,
    state: states.ConsumerStable,
    event: events.TopicsResolved,
    now: float,
) -> Outcome:
    """Read partitions of topics that were unknown: the coordinator assigns them only once."""
    target = state.target.resolve(event.names)
    return (state, ()) if target is state.target else _assign(state, target)


def leave(
    context: ConsumerProtocolContext,
    state: states.ConsumerStable,
    event: shared.Unsubscribed | shared.CloseRequested,
    now: float,
) -> Outcome:
    """Leave the group. The share sessions close when no record is held."""
    next_state, effects = leaving.leave_without_partitions(context, state, event, now)
    return next_state, (*effects, ReplaceAssignment(()))


def _assign(state: states.ConsumerStable, target: states.TargetAssignment) -> Outcome:
    effects: tuple[MembershipEffect, ...] = (RefreshTopics(),) if target.unresolved else ()
    if target.partitions != state.owned:
        effects = (*effects, ReplaceAssignment(target.partitions))
    return replace(state, owned=target.partitions, target=target), effects
