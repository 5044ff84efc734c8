"""The round-robin assignor: one partition after the other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from aiokafkawire.types import TopicPartition

from .base import Assignor, MemberSubscription, by_topic, member_order

__all__ = ("RoundRobinAssignor",)


class RoundRobinAssignor(Assignor):
    """All partitions of all topics, in order, go to the members in turn.

    A member that does not subscribe to a partition's topic is passed over, so members with
    different subscriptions may get unequal numbers.
    """

    name = "roundrobin"

    def assign(
        self,
        partitions: Mapping[str, int],
        members: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        ordered = sorted(members, key=member_order)
        place = {member.member_id: index for index, member in enumerate(ordered)}
        turn = 0
        for topic, readers in by_topic(ordered):
            places = [place[reader.member_id] for reader in readers]
            at = bisect_left(places, turn) % len(places)
            for number in range(partitions.get(topic, 0)):
                assignment[readers[at].member_id].append(TopicPartition(topic, number))
                turn = (places[at] + 1) % len(ordered)
                at = (at + 1) % len(readers)
        return assignment
