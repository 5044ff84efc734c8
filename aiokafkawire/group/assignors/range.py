"""The range assignor: consecutive partitions of each topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from aiokafkawire.types import TopicPartition

from .base import Assignor, MemberSubscription, member_order, members_by_topic
from .racks import use_rack_aware_assignment

__all__ = ("RangeAssignor",)

Assignment = dict[str, list[TopicPartition]]


class RangeAssignor(Assignor):
    """Assigns consecutive partitions of each topic to its members, in order.

    The first members get one partition more if the number is not divisible. Topics with the same
    number of partitions and the same members (co-partitioned topics) get the same assignment, which
    stream joins rely on.

    With known racks, members first get partitions with a replica in their rack, without changing
    the number of partitions per member (KIP-881). Partitions of the same number of co-partitioned
    topics stay together.
    """

    name = "range"

    def assign(
        self,
        partitions: Mapping[str, int],
        members: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> dict[str, list[TopicPartition]]:
        assignment: Assignment = {member.member_id: [] for member in members}
        topics = [
            _TopicAssignmentState(topic, partitions[topic], subscribers, racks)
            for topic, subscribers in members_by_topic(sorted(members, key=member_order))
            if partitions.get(topic, 0) > 0
        ]
        if any(topic.is_rack_aware for topic in topics):
            for co_partitioned in _co_partitioned(topics):
                if len(co_partitioned) > 1:
                    _assign_co_partitioned(co_partitioned, assignment)
                elif co_partitioned[0].is_rack_aware:
                    co_partitioned[0].assign_with_rack_matching(assignment)
        for topic in topics:
            topic.assign_ranges(assignment)
        return assignment


class _TopicAssignmentState:
    """State of the assignment of one topic.

    Each member gets `_per_member` partitions, `_members_with_extra` of them one more.
    """

    def __init__(
        self,
        name: str,
        count: int,
        subscribers: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> None:
        self.name = name
        self.count = count
        self.subscribers = tuple(subscriber.member_id for subscriber in subscribers)
        self._per_member, self._members_with_extra = divmod(count, len(subscribers))
        self._assigned_count = dict.fromkeys(self.subscribers, 0)
        self._assigned_numbers: set[int] = set()
        self._member_racks = {
            subscriber.member_id: subscriber.rack for subscriber in subscribers if subscriber.rack
        }
        self._replica_racks: Sequence[frozenset[str]] = ()
        if self._member_racks and racks:
            self._replica_racks = [
                frozenset(racks.get(self.partition(number), ())) for number in range(count)
            ]
        self.is_rack_aware = use_rack_aware_assignment(
            set(self._member_racks.values()), self._replica_racks
        )

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.name, number)

    def racks_match(self, subscriber: str, partition_number: int) -> bool:
        """Return True if the member has no rack, or its rack has a replica of the partition."""
        rack = self._member_racks.get(subscriber)
        return rack is None or (
            bool(self._replica_racks) and rack in self._replica_racks[partition_number]
        )

    def max_assignable(self, subscriber: str) -> int:
        """Return how many more partitions the member may get."""
        return max(
            0, self._per_member + (self._members_with_extra > 0) - self._assigned_count[subscriber]
        )

    def assign_numbers(
        self, subscriber: str, numbers: Sequence[int], assignment: Assignment
    ) -> None:
        assignment[subscriber] += map(self.partition, numbers)
        self._assigned_count[subscriber] += len(numbers)
        if numbers and self._assigned_count[subscriber] > self._per_member:
            self._members_with_extra -= 1
        self._assigned_numbers.update(numbers)

    def assign_with_rack_matching(self, assignment: Assignment) -> None:
        """Assign each member the first unassigned partitions of its rack, up to its quota."""
        for subscriber in self.subscribers:
            matching = (
                number
                for number in range(self.count)
                if number not in self._assigned_numbers and self.racks_match(subscriber, number)
            )
            self.assign_numbers(
                subscriber, list(islice(matching, self.max_assignable(subscriber))), assignment
            )

    def assign_ranges(self, assignment: Assignment) -> None:
        """Assign each member the next unassigned partitions, up to its quota."""
        unassigned = (
            number for number in range(self.count) if number not in self._assigned_numbers
        )
        for subscriber in self.subscribers:
            if len(self._assigned_numbers) == self.count:
                break
            self.assign_numbers(
                subscriber, list(islice(unassigned, self.max_assignable(subscriber))), assignment
            )


def _co_partitioned(
    topics: Iterable[_TopicAssignmentState],
) -> Iterable[list[_TopicAssignmentState]]:
    """Group topics by members and number of partitions."""
    groups: dict[tuple[tuple[str, ...], int], list[_TopicAssignmentState]] = {}
    for topic in topics:
        groups.setdefault((topic.subscribers, topic.count), []).append(topic)
    return groups.values()


def _assign_co_partitioned(topics: Sequence[_TopicAssignmentState], assignment: Assignment) -> None:
    """Assign partitions of one number of all topics to a member whose rack matches all of them."""
    subscribers = list(topics[0].subscribers)
    for number in range(topics[0].count):
        for subscriber in subscribers:
            if all(
                topic.max_assignable(subscriber) and topic.racks_match(subscriber, number)
                for topic in topics
            ):
                for topic in topics:
                    topic.assign_numbers(subscriber, [number], assignment)
                if not any(topic.max_assignable(subscriber) for topic in topics):
                    subscribers.remove(subscriber)
                break
