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
        index_of = {member.member_id: index for index, member in enumerate(ordered)}
        next_index = 0
        for topic, subscribers in by_topic(ordered):
            indexes = [index_of[subscriber.member_id] for subscriber in subscribers]
            position = bisect_left(indexes, next_index) % len(indexes)
            for number in range(partitions.get(topic, 0)):
                assignment[subscribers[position].member_id].append(TopicPartition(topic, number))
                next_index = (indexes[position] + 1) % len(ordered)
                position = (position + 1) % len(subscribers)
        return assignment
