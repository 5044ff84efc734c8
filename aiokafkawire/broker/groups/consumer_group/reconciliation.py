"""Reconciliation of a member with its target assignment (Kafka's CurrentAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from uuid import UUID

from aiokafkawire.broker.groups.consumer_group.assignors import Assignment
from aiokafkawire.broker.groups.consumer_group.member import (
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
    PartitionEpochs,
)

__all__ = ("RECONCILE", "Goal", "reconcile")


@dataclass(frozen=True, slots=True)
class Goal:
    """Target that a member is reconciled with.

    `owned` are the partitions that the member reports to own, None if the request lacks them.
    `is_owned` returns True for a partition that some member still owns.
    """

    epoch: int
    target: Assignment
    subscribed: AbstractSet[UUID]
    owned: OwnedPartitions | None
    is_owned: Callable[[UUID, int], bool]


def reconcile(member: ConsumerGroupMember, goal: Goal) -> ConsumerGroupMember:
    """Return the next state of a member, or the member itself if it must wait."""
    return RECONCILE[member.state](member, goal)


def _reconcile_stable(member: ConsumerGroupMember, goal: Goal) -> ConsumerGroupMember:
    if member.epoch != goal.epoch:
        return _next_assignment(member, goal)
    return _without_unsubscribed(member, goal)


def _reconcile_unrevoked(member: ConsumerGroupMember, goal: Goal) -> ConsumerGroupMember:
    if _owns_any(goal.owned, member.pending_revocation):
        return _without_unsubscribed(member, goal)
    return _next_assignment(member, goal)


def _next_assignment(member: ConsumerGroupMember, goal: Goal) -> ConsumerGroupMember:
    """Compare the assignment with the target: revoke first, then move to the target's epoch."""
    keep: dict[UUID, Mapping[int, int]] = {}
    revoke: dict[UUID, Mapping[int, int]] = {}
    gain: dict[UUID, Mapping[int, int]] = {}
    unreleased = False
    for topic in {**goal.target, **member.assigned}:
        wanted = frozenset(goal.target.get(topic, ())) if topic in goal.subscribed else frozenset()
        current = member.assigned.get(topic, {})
        own_pending = member.pending_revocation.get(topic, {})
        _put(keep, topic, {part: epoch for part, epoch in current.items() if part in wanted})
        _put(revoke, topic, {part: epoch for part, epoch in current.items() if part not in wanted})
        added = {}
        for part in sorted(wanted - current.keys()):
            # A partition that this member still has to revoke can only return to it.
            if part not in own_pending and goal.is_owned(topic, part):
                unreleased = True
            else:
                added[part] = goal.epoch
        _put(gain, topic, added)
    if _owns_any(goal.owned, revoke):
        return _unrevoked(member, keep, revoke)
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        assigned={
            topic: {**keep.get(topic, {}), **gain.get(topic, {})} for topic in {**keep, **gain}
        },
        pending_revocation={},
    )


def _without_unsubscribed(member: ConsumerGroupMember, goal: Goal) -> ConsumerGroupMember:
    """Take away topics that are not subscribed to, before a new target is computed."""
    revoke = {
        topic: parts for topic, parts in member.assigned.items() if topic not in goal.subscribed
    }
    if not revoke:
        return member
    keep = {topic: parts for topic, parts in member.assigned.items() if topic in goal.subscribed}
    pending = {
        topic: {**member.pending_revocation.get(topic, {}), **revoke.get(topic, {})}
        for topic in {**member.pending_revocation, **revoke}
    }
    if _owns_any(goal.owned, pending):
        return _unrevoked(member, keep, pending)
    return replace(member, previous_epoch=member.epoch, assigned=keep)


def _unrevoked(
    member: ConsumerGroupMember, keep: PartitionEpochs, revoke: PartitionEpochs
) -> ConsumerGroupMember:
    return replace(
        member,
        state=MemberState.UNREVOKED_PARTITIONS,
        previous_epoch=member.epoch,
        assigned=keep,
        pending_revocation=revoke,
    )


def _owns_any(owned: OwnedPartitions | None, partitions: PartitionEpochs) -> bool:
    """Return True unless the member reported that it owns none of the partitions."""
    if not partitions:
        return False
    if owned is None:
        return True
    return any(parts.keys() & owned.get(topic, ()) for topic, parts in partitions.items())


def _put(into: dict[UUID, Mapping[int, int]], topic: UUID, parts: Mapping[int, int]) -> None:
    if parts:
        into[topic] = parts


RECONCILE: Mapping[MemberState, Callable[[ConsumerGroupMember, Goal], ConsumerGroupMember]] = (
    MappingProxyType(
        {
            MemberState.STABLE: _reconcile_stable,
            MemberState.UNREVOKED_PARTITIONS: _reconcile_unrevoked,
            MemberState.UNRELEASED_PARTITIONS: _next_assignment,
        }
    )
)
"""Next state of a member by its state."""
