"""Sticky assignment for members with different subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafkawire.types import TopicPartition

from .base import MemberSubscription, java_order
from .previous_assignment import PreviousAssignment
from .racks import RackInfo

__all__ = ("MAX_SWAPS_PER_PARTITION", "assign_general")

MAX_SWAPS_PER_PARTITION = 4
"""Limit per partition of moves that return another partition of the topic instead."""

Subscribers = Sequence[int]
"""Indexes of the members that subscribe to a topic."""


def assign_general(
    partitions: Mapping[str, int],
    members: Sequence[MemberSubscription],
    previous: PreviousAssignment,
    rack_info: RackInfo,
) -> dict[str, list[TopicPartition]]:
    """Return an assignment as balanced as the subscriptions allow, with few movements.

    `partitions` has the number of partitions per subscribed topic; `members` are sorted.
    """
    subscribers: dict[str, list[int]] = {topic: [] for topic in partitions}
    for index, member in enumerate(members):
        for topic in dict.fromkeys(member.topics):
            if topic in subscribers:
                subscribers[topic].append(index)
    topics = sorted(partitions, key=lambda topic: (len(subscribers[topic]), java_order(topic)))
    all_partitions = [
        TopicPartition(topic, n) for topic in topics for n in range(partitions[topic])
    ]
    owners = _PartitionOwners(members, subscribers)
    ids = [member.member_id for member in members]
    indexes = {member_id: index for index, member_id in enumerate(ids)}
    revoked = False
    for index, member in enumerate(members):
        subscribed = set(member.topics)
        for tp in previous.owned[member.member_id]:
            if tp.topic in subscribed and not rack_info.racks_mismatch(member.member_id, tp):
                owners.assign(tp, index)
            else:
                revoked = True
    unassigned = [tp for tp in all_partitions if tp not in owners.owner]
    _assign_unassigned(owners, unassigned, rack_info, ids)
    previous_owners = {tp: indexes[member_id] for tp, member_id in previous.previous_owners.items()}
    movable = [tp for tp in all_partitions if len(subscribers[tp.topic]) > 1]
    movements = _PartitionMovements(owners, previous_owners, MAX_SWAPS_PER_PARTITION * len(movable))
    if not revoked:
        # Newly assigned partitions move first, which is often enough.
        movements.improve([tp for tp in unassigned if len(subscribers[tp.topic]) > 1])
    movements.improve(movable)
    assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in ids}
    for tp in all_partitions:
        assignment[ids[owners.owner[tp]]].append(tp)
    return assignment


class _PartitionOwners:
    """Current owner of each partition, and the load of each member."""

    def __init__(
        self, members: Sequence[MemberSubscription], subscribers: Mapping[str, Subscribers]
    ) -> None:
        self.subscribers = subscribers
        self.owner: dict[TopicPartition, int] = {}
        self._members = len(members)
        # Number of partitions times number of members, plus the index: the minimum is the first
        # of the members with the fewest partitions.
        self._weights = list(range(self._members))

    def count(self, index: int) -> int:
        return self._weights[index] // self._members

    def assign(self, tp: TopicPartition, index: int) -> None:
        previous_owner = self.owner.get(tp)
        if previous_owner is not None:
            self._weights[previous_owner] -= self._members
        self._weights[index] += self._members
        self.owner[tp] = index

    def least_loaded(self, subscribers: Subscribers) -> int:
        """Return the member with the fewest partitions."""
        return min(map(self._weights.__getitem__, subscribers)) % self._members


def _assign_unassigned(
    owners: _PartitionOwners,
    unassigned: Sequence[TopicPartition],
    rack_info: RackInfo,
    ids: Sequence[str],
) -> None:
    """Assign the partitions to the least loaded members, first to those in a replica's rack."""
    in_rack: dict[tuple[str, frozenset[str]], Subscribers] = {}
    for tp in unassigned if rack_info else ():
        key = tp.topic, rack_info.replica_racks(tp)
        if key not in in_rack:
            in_rack[key] = [
                i for i in owners.subscribers[tp.topic] if not rack_info.racks_mismatch(ids[i], tp)
            ]
        if in_rack[key]:
            owners.assign(tp, owners.least_loaded(in_rack[key]))
    for tp in unassigned:
        if tp not in owners.owner:
            owners.assign(tp, owners.least_loaded(owners.subscribers[tp.topic]))


class _PartitionMovements:
    """Movements of partitions between members."""

    def __init__(
        self,
        owners: _PartitionOwners,
        previous_owners: Mapping[TopicPartition, int],
        max_swaps: int,
    ) -> None:
        self._owners = owners
        self._previous_owners = previous_owners
        self._swaps_left = max_swaps
        self._movements: dict[TopicPartition, tuple[int, int]] = {}
        self._by_route: dict[tuple[str, int, int], dict[TopicPartition, None]] = {}

    def improve(self, movable: Sequence[TopicPartition]) -> None:
        """Move these partitions while that improves the balance."""
        improved = True
        while improved:
            improved = False
            for tp in movable:
                target = self._find_better_owner(tp)
                if target is not None:
                    self._move(self._partition_to_move(tp, target), target)
                    improved = True

    def _find_better_owner(self, tp: TopicPartition) -> int | None:
        """Return the previous owner or the least loaded member if that improves the balance."""
        owners = self._owners
        most = owners.count(owners.owner[tp]) - 1
        previous_owner = self._previous_owners.get(tp)
        if previous_owner is not None and owners.count(previous_owner) < most:
            return previous_owner
        least_loaded = owners.least_loaded(owners.subscribers[tp.topic])
        return least_loaded if owners.count(least_loaded) < most else None

    def _partition_to_move(self, tp: TopicPartition, target: int) -> TopicPartition:
        """Return the partition itself, or one of the topic that moved away from `target` before."""
        source = self._movements[tp][0] if tp in self._movements else self._owners.owner[tp]
        candidates = self._by_route.get((tp.topic, target, source))
        if not candidates or not self._swaps_left:
            return tp
        self._swaps_left -= 1
        return next(iter(candidates))

    def _move(self, tp: TopicPartition, target: int) -> None:
        source = self._owners.owner[tp]
        if tp in self._movements:
            source, last_target = self._movements.pop(tp)
            del self._by_route[tp.topic, source, last_target][tp]
        if source != target:
            self._movements[tp] = source, target
            self._by_route.setdefault((tp.topic, source, target), {})[tp] = None
        self._owners.assign(tp, target)
