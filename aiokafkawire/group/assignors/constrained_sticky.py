"""Sticky assignment for members that all subscribe to the same topics."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from aiokafkawire.types import TopicPartition

from .base import java_order, java_table_order
from .racks import RackInfo

__all__ = ("assign_constrained",)


def assign_constrained(
    partitions: Sequence[TopicPartition],
    owned: Mapping[str, Sequence[TopicPartition]],
    rack_info: RackInfo,
) -> dict[str, list[TopicPartition]]:
    """Return an assignment in which members keep owned partitions up to their quota.

    `partitions` are all partitions, by topic and number; `owned` has all members. The numbers of
    partitions differ by one at most. With known racks, members get partitions of their rack first.
    """
    quotas = _Quotas(len(partitions), owned)
    kept: set[TopicPartition] = set()
    for member_id in java_table_order(list(owned)):
        keepable = [tp for tp in owned[member_id] if not rack_info.racks_mismatch(member_id, tp)]
        keepable.sort(key=lambda tp: (tp.partition, tp.topic))
        kept.update(quotas.keep(member_id, keepable))
    quotas.sort()
    unassigned = [tp for tp in partitions if tp not in kept]
    if rack_info:
        unassigned.sort(key=rack_info.count_members_in_rack)
        unassigned = [tp for tp in unassigned if not quotas.assign_in_rack(tp, rack_info)]
    quotas.assign_round_robin(unassigned)
    return quotas.assignment


class _Quotas:
    """Assigned partitions and quotas of the members.

    Each member gets `_min_quota` partitions; `_over_min_quota_left` more members get one in
    addition. `_under_min_quota` are the members with fewer than the minimum, `_at_min_quota` those
    that have it and may get one more.
    """

    def __init__(self, count: int, members: Iterable[str]) -> None:
        self.assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        self._min_quota, self._over_min_quota_left = divmod(count, len(self.assignment))
        self._under_min_quota: list[str] = []
        self._at_min_quota: deque[str] = deque()
        self._next = 0

    def keep(
        self, member_id: str, owned_before: Sequence[TopicPartition]
    ) -> Sequence[TopicPartition]:
        """Let a member keep partitions up to its quota, and return these."""
        if len(owned_before) < self._min_quota:
            self._under_min_quota.append(member_id)
        elif len(owned_before) > self._min_quota and self._over_min_quota_left:
            owned_before = owned_before[: self._min_quota + 1]
            self._take_over_min_quota()
        else:
            owned_before = owned_before[: self._min_quota]
            if self._over_min_quota_left:
                self._at_min_quota.append(member_id)
        self.assignment[member_id] += owned_before
        return owned_before

    def sort(self) -> None:
        """Sort the members before unassigned partitions are distributed."""
        self._under_min_quota.sort(key=java_order)
        self._at_min_quota = deque(sorted(self._at_min_quota, key=java_order))

    def _take_over_min_quota(self) -> None:
        self._over_min_quota_left -= 1
        if not self._over_min_quota_left:
            self._at_min_quota.clear()

    def assign_in_rack(self, tp: TopicPartition, rack_info: RackInfo) -> bool:
        """Assign the partition to the next member below its quota in a replica's rack, if any."""
        under = self._under_min_quota
        count = len(under)
        for step in range(count):
            index = (self._next + step) % count
            if rack_info.racks_match(under[index], tp):
                self._next = self._assign_under_min_quota(tp, index)
                return True
        for index, member_id in enumerate(self._at_min_quota):
            if rack_info.racks_match(member_id, tp):
                del self._at_min_quota[index]
                self.assignment[member_id].append(tp)
                self._take_over_min_quota()
                return True
        return False

    def _assign_under_min_quota(self, tp: TopicPartition, index: int) -> int:
        """Assign to a member under the minimum quota. Return the index of the next such member."""
        member_id = self._under_min_quota[index]
        self.assignment[member_id].append(tp)
        if len(self.assignment[member_id]) < self._min_quota:
            return index + 1
        del self._under_min_quota[index]
        if self._over_min_quota_left:
            self._at_min_quota.append(member_id)
        return index

    def assign_round_robin(self, unassigned: Iterable[TopicPartition]) -> None:
        """Assign the rest: in turn to members under the minimum quota, then one to each other."""
        index = 0
        for tp in unassigned:
            if self._under_min_quota:
                index = self._assign_under_min_quota(tp, index % len(self._under_min_quota))
            else:
                self.assignment[self._at_min_quota.popleft()].append(tp)
