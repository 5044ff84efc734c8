"""Racks of members and of replicas (KIP-881).

Consumers that fetch from a replica in their rack avoid traffic between racks (KIP-392). So
partitions are assigned to members in a rack of a replica, as far as balance allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from aiokafkawire.types import TopicPartition

from .base import MemberSubscription

__all__ = ("RackInfo", "use_rack_aware_assignment")

NO_RACKS: frozenset[str] = frozenset()


def use_rack_aware_assignment(
    members: Collection[str], partitions: Collection[frozenset[str]]
) -> bool:
    """Return whether racks can influence the assignment.

    They cannot if no replica is in a member's rack, or if all partitions have replicas in the same
    racks.
    """
    everywhere = NO_RACKS.union(*partitions)
    return not everywhere.isdisjoint(members) and any(racks != everywhere for racks in partitions)


class RackInfo:
    """Racks of members and replicas. False if racks do not influence the assignment."""

    def __init__(
        self,
        members: Sequence[MemberSubscription],
        partitions: Iterable[TopicPartition],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> None:
        self._member_racks = {member.member_id: member.rack for member in members if member.rack}
        self._partition_racks = {}
        if self._member_racks and racks:
            self._partition_racks = {tp: frozenset(racks.get(tp, ())) for tp in partitions}
        self._members_per_rack = Counter(self._member_racks.values())
        if not use_rack_aware_assignment(self._members_per_rack, self._partition_racks.values()):
            self._member_racks, self._partition_racks = {}, {}

    def __bool__(self) -> bool:
        return bool(self._member_racks)

    def replica_racks(self, tp: TopicPartition) -> frozenset[str]:
        """Return the racks of the partition's replicas."""
        return self._partition_racks.get(tp, NO_RACKS)

    def racks_match(self, member_id: str, tp: TopicPartition) -> bool:
        """Return whether a replica is in the member's rack. False if that is unknown."""
        return self._member_racks.get(member_id) in self.replica_racks(tp)

    def racks_mismatch(self, member_id: str, tp: TopicPartition) -> bool:
        """Return whether the member would fetch the partition from another rack."""
        return member_id in self._member_racks and not self.racks_match(member_id, tp)

    def count_members_in_rack(self, tp: TopicPartition) -> int:
        """Return the number of members in the racks of the partition's replicas."""
        return sum(self._members_per_rack[rack] for rack in self.replica_racks(tp))
