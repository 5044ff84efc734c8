"""Racks of members and of replicas (KIP-881).

A consumer that reads from a replica of its own rack saves traffic between racks (KIP-392). So, as
far as balance allows, a partition goes to a member in whose rack it has a replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from aiokafkawire.types import TopicPartition

from .base import MemberSubscription

__all__ = ("Racks", "racks_matter")

NOWHERE: frozenset[str] = frozenset()


def racks_matter(members: Collection[str], partitions: Collection[frozenset[str]]) -> bool:
    """Whether it matters to members in these racks which partitions they get.

    It does not where no replica is in a rack of a member, or where all partitions have replicas
    in the same racks.
    """
    everywhere = NOWHERE.union(*partitions)
    return not everywhere.isdisjoint(members) and any(racks != everywhere for racks in partitions)


class Racks:
    """Who is where, of members and partitions that may meet; false where it does not matter."""

    def __init__(
        self,
        members: Sequence[MemberSubscription],
        partitions: Iterable[TopicPartition],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> None:
        self._of_member = {member.member_id: member.rack for member in members if member.rack}
        self._of_partition = {}
        if self._of_member and racks:
            self._of_partition = {tp: frozenset(racks.get(tp, ())) for tp in partitions}
        self._population = Counter(self._of_member.values())
        if not racks_matter(self._population, self._of_partition.values()):
            self._of_member, self._of_partition = {}, {}

    def __bool__(self) -> bool:
        return bool(self._of_member)

    def of(self, tp: TopicPartition) -> frozenset[str]:
        """Where this partition has replicas."""
        return self._of_partition.get(tp, NOWHERE)

    def match(self, member_id: str, tp: TopicPartition) -> bool:
        """Whether the member is where a replica is. False for a member of unknown rack."""
        return self._of_member.get(member_id) in self.of(tp)

    def clash(self, member_id: str, tp: TopicPartition) -> bool:
        """Whether the member would read this partition across racks."""
        return member_id in self._of_member and not self.match(member_id, tp)

    def members_near(self, tp: TopicPartition) -> int:
        """How many members are where a replica of this partition is."""
        return sum(self._population[rack] for rack in self.of(tp))
