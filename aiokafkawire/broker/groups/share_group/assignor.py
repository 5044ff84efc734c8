"""Simple assignor of share groups: members share partitions evenly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from aiokafkawire.broker.groups.consumer_group.assignors import Assignment

__all__ = ("NAME", "assign_simple")

NAME = "simple"

Slot = tuple[UUID, int]
"""A partition of a topic."""


def assign_simple(
    subscriptions: Mapping[str, Collection[UUID]],
    partitions: Mapping[UUID, Sequence[int]],
    previous: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Return partitions for each member.

    Each partition is assigned to the same number of members, and each member to about the same
    number of partitions. Members keep what they have as far as that allows. If members subscribe to
    different topics, each topic is assigned by itself, with some partitions to one member more.

    Args:
        subscriptions: Topics of each member.
        partitions: Partitions of each topic that can be assigned.
        previous: Partitions that members have now.
    """
    assigned: dict[str, set[Slot]] = {member: set() for member in subscriptions}
    topics = {topic for ids in subscriptions.values() for topic in ids if topic in partitions}
    order = [topic for topic in partitions if topic in topics]
    if len({frozenset(ids) for ids in subscriptions.values()}) <= 1:
        slots = [(topic, index) for topic in order for index in partitions[topic]]
        members = list(subscriptions)
        per_slot = -(-len(members) // max(len(slots), 1))
        _share(assigned, members, slots, previous, total=per_slot * len(slots))
    else:
        for topic in order:
            members = [member for member, ids in subscriptions.items() if topic in ids]
            slots = [(topic, each) for each in partitions[topic]]
            _share(assigned, members, slots, previous, total=max(len(members), len(slots)))
    return {member: _by_topic(slots) for member, slots in assigned.items()}


def _share(
    assigned: Mapping[str, set[Slot]],
    members: Sequence[str],
    slots: Sequence[Slot],
    previous: Mapping[str, Assignment],
    *,
    total: int,
) -> None:
    """Share partitions among members; add `total` assignments to `assigned`."""
    if not members or not slots:
        return
    known = set(slots)
    kept: dict[str, list[Slot]] = {
        member: [
            (topic, index)
            for topic, indexes in previous.get(member, {}).items()
            for index in reversed(indexes)
            if (topic, index) in known
        ]
        for member in members
    }
    # Members that have more, or fewer of other topics, get the odd partitions.
    order = sorted(members, key=lambda each: (-len(kept[each]), len(assigned[each])))
    sharing = _Sharing(assigned, order, slots, total)
    for member in order:
        for slot in kept[member]:
            if sharing.has_room(member, slot):
                sharing.give(member, slot)
    sharing.fill_all()


class _Sharing:
    """Members of some partitions while these are assigned."""

    def __init__(
        self,
        assigned: Mapping[str, set[Slot]],
        order: Sequence[str],
        slots: Sequence[Slot],
        total: int,
    ) -> None:
        self._assigned = assigned
        self._order = order
        least, extra = divmod(total, len(order))
        self._room = {member: least + (place < extra) for place, member in enumerate(order)}
        self._members: Counter[Slot] = Counter(dict.fromkeys(slots, 0))
        self._least_members, self._extra_slots = divmod(total, len(slots))

    def lacks_members(self, slot: Slot) -> bool:
        """Return True if more members may share a partition."""
        members = self._members[slot]
        return members < self._least_members or (
            members == self._least_members and self._extra_slots > 0
        )

    def has_room(self, member: str, slot: Slot) -> bool:
        """Return True if a member may get a partition."""
        is_new = slot not in self._assigned[member]
        return bool(self._room[member]) and is_new and self.lacks_members(slot)

    def give(self, member: str, slot: Slot) -> None:
        """Give a partition to a member."""
        self._assigned[member].add(slot)
        self._extra_slots -= self._members[slot] == self._least_members
        self._members[slot] += 1
        self._room[member] -= 1

    def fill_all(self) -> None:
        """Give all members their number of partitions."""
        for slot in self._members:
            while self._members[slot] < self._least_members:
                self.fill(slot)
        for member in self._order:
            while self._room[member]:
                open_slots = [each for each in self._members if self.lacks_members(each)]
                own = self._assigned[member]
                new = next((each for each in open_slots if each not in own), None)
                if new is None:
                    self.fill(open_slots[0])
                else:
                    self.give(member, new)

    def fill(self, slot: Slot) -> None:
        """Give a partition to another member, at the cost of another partition if need be."""
        for member in self._order:
            if self.has_room(member, slot):
                self.give(member, slot)
                return
        # Every member with room has this partition: another one takes it, and hands one over.
        receiver = next(member for member in self._order if self._room[member])
        for member in self._order:
            movable = self._assigned[member] - self._assigned[receiver]
            other = next((each for each in sorted(movable) if each in self._members), None)
            if slot not in self._assigned[member] and other is not None:
                self._assigned[member].remove(other)
                self._members[other] -= 1
                self._extra_slots += self._members[other] == self._least_members
                self._room[member] += 1
                self.give(member, slot)
                self.give(receiver, other)
                return
        raise AssertionError(f"no member can take partition {slot}")


def _by_topic(slots: Collection[Slot]) -> Assignment:
    topics: dict[UUID, list[int]] = {}
    for topic, index in sorted(slots, key=lambda each: (each[0].int, each[1])):
        topics.setdefault(topic, []).append(index)
    return {topic: tuple(indexes) for topic, indexes in topics.items()}
