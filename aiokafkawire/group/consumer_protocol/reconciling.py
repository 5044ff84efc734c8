"""Handlers of the reconciliation: the member goes from its owned to its target partitions.

Partitions are revoked first, when the application polls. The heartbeat that follows reports what is
left, which releases the revoked partitions for other members.
"""

from __future__ import annotations

from dataclasses import replace

from aiokafkawire.group.membership import events as shared
from aiokafkawire.group.membership.states import NextAction
from aiokafkawire.group.topic_id_partition import without

from . import actions, events, states
from .actions import Outcome
from .context import ConsumerProtocolContext


def topics_resolved(
    context: ConsumerProtocolContext,
    state: states.InGroup,
    event: events.TopicsResolved,
    now: float,
) -> Outcome:
    """Own partitions of topics that were unknown: the coordinator assigns them only once."""
    target = state.target.resolve(event.names)
    if target is state.target:
        return state, ()
    return actions.reconcile(context, replace(state, target=target), now)  # type: ignore[type-var]


def revoke_in_poll(
    context: ConsumerProtocolContext,
    state: states.ConsumerRevocationDue,
    event: shared.PollStarted,
    now: float,
) -> Outcome:
    to_revoke = without(state.owned, state.target.partitions)
    return actions.revoke(context, state, to_revoke, NextAction.JOIN)


def revoked(
    context: ConsumerProtocolContext,
    state: states.ConsumerRevoking,
    event: shared.PartitionsRevoked,
    now: float,
) -> Outcome:
    left = without(state.owned, state.to_revoke)
    if state.ended is not None:
        return actions.or_leave(context, state.next_action, (state.ended, ()), now)
    if state.next_action is not NextAction.JOIN:
        if left:
            return actions.revoke(context, replace(state, owned=left), left, state.next_action)
        return actions.leave(context, state, state.next_action, now)
    due = states.ConsumerRevocationDue(state.heartbeat, state.epoch, left, state.target)
    return actions.reconcile(context, due, now)


def fenced_while_revoking(
    context: ConsumerProtocolContext,
    state: states.ConsumerRevoking,
    event: events.MemberFenced,
    now: float,
) -> Outcome:
    """Join again after the revocation. All other partitions are lost."""
    rejoining, effects = actions.lose_and_rejoin(
        context,
        replace(state, owned=without(state.owned, state.to_revoke)),
        event.error,
        now,
    )
    return actions.end_while_revoking(state, rejoining), effects
