"""The sticky assignors: balanced, with as few partition movements as possible (KIP-54, KIP-429)."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence

from aiokafkawire.types import TopicPartition

from .base import Assignor, MemberSubscription, java_order, members_by_topic
from .constrained_sticky import assign_constrained
from .general_sticky import assign_general
from .previous_assignment import (
    NO_GENERATION,
    OwnedPartitions,
    decode_generation,
    decode_owned,
    encode_generation,
    encode_owned,
    resolve_previous_assignment,
)
from .racks import RackInfo

__all__ = ("CooperativeStickyAssignor", "StickyAssignor")


class _Sticky(Assignor):
    @abstractmethod
    def _owned(self, member: MemberSubscription) -> OwnedPartitions:
        """Return the partitions that a member owned according to its subscription."""

    def assign(
        self,
        partitions: Mapping[str, int],
        members: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> dict[str, list[TopicPartition]]:
        return self._assign_with_disputes(partitions, members, racks)[0]

    def _assign_with_disputes(
        self,
        partitions: Mapping[str, int],
        members: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> tuple[dict[str, list[TopicPartition]], frozenset[TopicPartition]]:
        """Return the assignment, and the partitions that several members claim to own."""
        ordered = sorted(members, key=lambda member: java_order(member.member_id))
        counts = {
            topic: partitions[topic]
            for topic, _ in members_by_topic(ordered)
            if partitions.get(topic, 0) > 0
        }
        previous = resolve_previous_assignment(ordered, counts, self._owned)
        all_partitions = [
            TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)
        ]
        rack_info = RackInfo(ordered, all_partitions, racks)
        if len({frozenset(member.topics) for member in ordered}) == 1:
            return assign_constrained(all_partitions, previous.owned, rack_info), previous.disputed
        return assign_general(counts, ordered, previous, rack_info), frozenset()


class StickyAssignor(_Sticky):
    """Balances partitions and moves as few as possible (KIP-54).

    Members still revoke all partitions in each rebalance and get most of them back. With
    `CooperativeStickyAssignor` they keep them. With known racks, a partition may move to a member
    in a replica's rack.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._last: OwnedPartitions | None = None

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return None if self._last is None else encode_owned(*self._last)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:
        self._last = OwnedPartitions(tuple(partitions), generation_id)

    def _owned(self, member: MemberSubscription) -> OwnedPartitions:
        return decode_owned(member.user_data)


class CooperativeStickyAssignor(_Sticky):
    """Sticky assignor for members that keep their partitions while they rejoin (KIP-429).

    A partition moves in two generations: the first revokes it from its owner, which rejoins; the
    second assigns it to the new owner.
    """

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return encode_generation(self._generation)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation_id: int) -> None:
        self._generation = generation_id

    def _owned(self, member: MemberSubscription) -> OwnedPartitions:
        generation = member.generation
        if generation < 0:
            generation = decode_generation(member.user_data)
        return OwnedPartitions(member.owned, generation)

    def assign(
        self,
        partitions: Mapping[str, int],
        members: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> dict[str, list[TopicPartition]]:
        assignment, disputed = self._assign_with_disputes(partitions, members, racks)
        holders = Counter(tp for member in members for tp in set(member.owned))
        for member in members:
            had = set(member.owned)
            assignment[member.member_id] = [
                tp
                for tp in assignment[member.member_id]
                if tp not in disputed and (tp in had or not holders[tp])
            ]
        return assignment
