"""The round-robin assignor."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from aiokafkawire.types import TopicPartition

from .base import Assignor, MemberSubscription, member_order, members_by_topic

__all__ = ("RoundRobinAssignor",)


class RoundRobinAssignor(Assignor):
    """Assigns the partitions of all topics to the members in turn.

    Members that do not subscribe to the topic are skipped, so members with different subscriptions
    may get different numbers of partitions.
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
        for topic, subscribers in members_by_topic(ordered):
            indexes = [index_of[subscriber.member_id] for subscriber in subscribers]
            position = bisect_left(indexes, next_index) % len(indexes)
            for number in range(partitions.get(topic, 0)):
                assignment[subscribers[position].member_id].append(TopicPartition(topic, number))
                next_index = (indexes[position] + 1) % len(ordered)
                position = (position + 1) % len(subscribers)
        return assignment
