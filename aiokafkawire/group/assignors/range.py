"""The range assignor: consecutive partitions of each topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from aiokafkawire.types import TopicPartition

from .base import Assignor, MemberSubscription, by_topic, member_order
from .racks import racks_matter

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
            _Topic(topic, partitions[topic], readers, racks)
            for topic, readers in by_topic(sorted(members, key=member_order))
            if partitions.get(topic, 0) > 0
        ]
        if any(topic.racks_matter for topic in topics):
            for alike in _alike(topics):
                if len(alike) > 1:
                    _give_rows(alike, assignment)
                elif alike[0].racks_matter:
                    alike[0].give_near(assignment)
        for topic in topics:
            topic.give_rest(assignment)
        return assignment


class _Topic:
    """One topic being divided. A member gets `each` partitions, `more` of them one more."""

    def __init__(
        self,
        name: str,
        count: int,
        readers: Sequence[MemberSubscription],
        racks: Mapping[TopicPartition, tuple[str, ...]],
    ) -> None:
        self.name = name
        self.count = count
        self.readers = tuple(reader.member_id for reader in readers)
        self._each, self._more = divmod(count, len(readers))
        self._given = dict.fromkeys(self.readers, 0)
        self._taken: set[int] = set()
        self._rack_of = {reader.member_id: reader.rack for reader in readers if reader.rack}
        self._replicas: Sequence[frozenset[str]] = ()
        if self._rack_of and racks:
            self._replicas = [frozenset(racks.get(self.partition(n), ())) for n in range(count)]
        self.racks_matter = racks_matter(set(self._rack_of.values()), self._replicas)

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.name, number)

    def near(self, reader: str, number: int) -> bool:
        """Whether the reader's rack, if it has one, has a replica of this partition."""
        rack = self._rack_of.get(reader)
        return rack is None or (bool(self._replicas) and rack in self._replicas[number])

    def room(self, reader: str) -> int:
        """How many partitions the reader may still get."""
        return max(0, self._each + (self._more > 0) - self._given[reader])

    def give(self, reader: str, numbers: Sequence[int], assignment: Assignment) -> None:
        assignment[reader] += map(self.partition, numbers)
        self._given[reader] += len(numbers)
        if numbers and self._given[reader] > self._each:
            self._more -= 1
        self._taken.update(numbers)

    def give_near(self, assignment: Assignment) -> None:
        """Give each reader, in order, the first free partitions near it, as far as it has room."""
        for reader in self.readers:
            near = (n for n in range(self.count) if n not in self._taken and self.near(reader, n))
            self.give(reader, list(islice(near, self.room(reader))), assignment)

    def give_rest(self, assignment: Assignment) -> None:
        """Give each reader, in order, the next free partitions, until it has its share."""
        free = (number for number in range(self.count) if number not in self._taken)
        for reader in self.readers:
            if len(self._taken) == self.count:
                break
            self.give(reader, list(islice(free, self.room(reader))), assignment)


def _alike(topics: Iterable[_Topic]) -> Iterable[list[_Topic]]:
    """Topics grouped by readers and number of partitions."""
    groups: dict[tuple[tuple[str, ...], int], list[_Topic]] = {}
    for topic in topics:
        groups.setdefault((topic.readers, topic.count), []).append(topic)
    return groups.values()


def _give_rows(topics: Sequence[_Topic], assignment: Assignment) -> None:
    """Give partitions of one number, of all these topics, to a reader that is near them all."""
    readers = list(topics[0].readers)
    for number in range(topics[0].count):
        for reader in readers:
            if all(topic.room(reader) and topic.near(reader, number) for topic in topics):
                for topic in topics:
                    topic.give(reader, [number], assignment)
                if not any(topic.room(reader) for topic in topics):
                    readers.remove(reader)
                break
