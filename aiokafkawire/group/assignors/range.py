"""The range assignor: consecutive partitions of each topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from aiokafkawire.types import TopicPartition

from .base import Assignor, MemberSubscription, by_topic, member_order
from .racks import use_rack_aware_assignment

__all__ = ("RangeAssignor",)

Assignment = dict[str, list[TopicPartition]]


class RangeAssignor(Assignor):
    """Each topic for itself: its members, in order, get consecutive partitions.

    The first ones get one more where it does not come out even. Topics with the same number of
    partitions and the same members are divided alike (what joins of streams count on).

    Where members and replicas tell their racks, members first get partitions of their own rack,
    within the same numbers (KIP-881); partitions of one number of such alike topics stay together.
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
            for topic, subscribers in by_topic(sorted(members, key=member_order))
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
    """One topic being divided. A member gets `each` partitions, `more` of them one more."""

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
                frozenset(racks.get(self.partition(n), ())) for n in range(count)
            ]
        self.is_rack_aware = use_rack_aware_assignment(
            set(self._member_racks.values()), self._replica_racks
        )

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.name, number)

    def racks_match(self, subscriber: str, number: int) -> bool:
        """Whether the reader's rack, if it has one, has a replica of this partition."""
        rack = self._member_racks.get(subscriber)
        return rack is None or (bool(self._replica_racks) and rack in self._replica_racks[number])

    def max_assignable(self, subscriber: str) -> int:
        """How many partitions the reader may still get."""
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
        """Give each reader, in order, the first free partitions near it, as far as it has room."""
        for subscriber in self.subscribers:
            matching = (
                n
                for n in range(self.count)
                if n not in self._assigned_numbers and self.racks_match(subscriber, n)
            )
            self.assign_numbers(
                subscriber, list(islice(matching, self.max_assignable(subscriber))), assignment
            )

    def assign_ranges(self, assignment: Assignment) -> None:
        """Give each reader, in order, the next free partitions, until it has its share."""
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
    """Topics grouped by readers and number of partitions."""
    groups: dict[tuple[tuple[str, ...], int], list[_TopicAssignmentState]] = {}
    for topic in topics:
        groups.setdefault((topic.subscribers, topic.count), []).append(topic)
    return groups.values()


def _assign_co_partitioned(topics: Sequence[_TopicAssignmentState], assignment: Assignment) -> None:
    """Give partitions of one number, of all these topics, to a reader that is near them all."""
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
