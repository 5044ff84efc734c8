"""The range assignor: consecutive partitions of each topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafkawire.types import TopicPartition

from .base import Assignor, MemberSubscription, member_order

__all__ = ("RangeAssignor",)


class RangeAssignor(Assignor):
    """Each topic for itself: its members, in order, get consecutive partitions.

    The first ones get one more where it does not come out even. Topics with the same number of
    partitions and the same members are divided alike (what joins of streams count on).
    """

    name = "range"

    def assign(
        self,
        partitions: Mapping[str, int],
        members: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        ordered = sorted(members, key=member_order)
        for topic in sorted({topic for member in members for topic in member.topics}):
            readers = [member for member in ordered if topic in member.topics]
            each, more = divmod(partitions.get(topic, 0), len(readers))
            start = 0
            for index, member in enumerate(readers):
                end = start + each + (index < more)
                assignment[member.member_id] += (
                    TopicPartition(topic, partition) for partition in range(start, end)
                )
                start = end
        return assignment
