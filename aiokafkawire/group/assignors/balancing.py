"""The sticky division among members of different subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafkawire.types import TopicPartition

from .base import MemberSubscription, java_order
from .claims import Claims
from .racks import Racks

__all__ = ("MAX_SWAPS_PER_PARTITION", "divide_unequally")

MAX_SWAPS_PER_PARTITION = 4
"""How often, for each partition, another one may be moved in its stead; then no more are."""

Readers = Sequence[int]
"""Members of one topic, as indexes."""


def divide_unequally(
    partitions: Mapping[str, int],
    members: Sequence[MemberSubscription],
    claims: Claims,
    racks: Racks,
) -> dict[str, list[TopicPartition]]:
    """Balance the members as far as their subscriptions allow, moving as little as possible.

    `partitions` has the topics that somebody subscribes to; members come in order.
    """
    readers: dict[str, list[int]] = {topic: [] for topic in partitions}
    for index, member in enumerate(members):
        for topic in dict.fromkeys(member.topics):
            if topic in readers:
                readers[topic].append(index)
    topics = sorted(partitions, key=lambda topic: (len(readers[topic]), java_order(topic)))
    every = [TopicPartition(topic, n) for topic in topics for n in range(partitions[topic])]
    table = _Table(members, readers)
    ids = [member.member_id for member in members]
    indexes = {member_id: index for index, member_id in enumerate(ids)}
    revoked = False
    for index, member in enumerate(members):
        subscribed = set(member.topics)
        for tp in claims.owned[member.member_id]:
            if tp.topic in subscribed and not racks.clash(member.member_id, tp):
                table.place(tp, index)
            else:
                revoked = True
    free = [tp for tp in every if tp not in table.owner]
    _fill(table, free, racks, ids)
    former = {tp: indexes[member_id] for tp, member_id in claims.former.items()}
    movable = [tp for tp in every if len(readers[tp.topic]) > 1]
    moves = _Moves(table, former, MAX_SWAPS_PER_PARTITION * len(movable))
    if not revoked:
        # What is new to its owner moves first; often nothing else has to.
        moves.improve([tp for tp in free if len(readers[tp.topic]) > 1])
    moves.improve(movable)
    given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in ids}
    for tp in every:
        given[ids[table.owner[tp]]].append(tp)
    return given


class _Table:
    """Who has which partition, and who of the readers of a topic has the fewest."""

    def __init__(
        self, members: Sequence[MemberSubscription], readers: Mapping[str, Readers]
    ) -> None:
        self.readers = readers
        self.owner: dict[TopicPartition, int] = {}
        self._members = len(members)
        # Numbers of partitions times the number of members, plus the index: one comparison
        # finds the member with the fewest partitions, and of these the first.
        self._weights = list(range(self._members))

    def count(self, index: int) -> int:
        return self._weights[index] // self._members

    def place(self, tp: TopicPartition, index: int) -> None:
        former = self.owner.get(tp)
        if former is not None:
            self._weights[former] -= self._members
        self._weights[index] += self._members
        self.owner[tp] = index

    def least(self, readers: Readers) -> int:
        """The one with the fewest partitions."""
        return min(map(self._weights.__getitem__, readers)) % self._members


def _fill(table: _Table, free: Sequence[TopicPartition], racks: Racks, ids: Sequence[str]) -> None:
    """Give the free partitions to those that have the fewest; within racks first."""
    near: dict[tuple[str, frozenset[str]], Readers] = {}
    for tp in free if racks else ():
        key = tp.topic, racks.of(tp)
        if key not in near:
            near[key] = [i for i in table.readers[tp.topic] if not racks.clash(ids[i], tp)]
        if near[key]:
            table.place(tp, table.least(near[key]))
    for tp in free:
        if tp not in table.owner:
            table.place(tp, table.least(table.readers[tp.topic]))


class _Moves:
    """Moves of partitions between members, and which were made."""

    def __init__(self, table: _Table, former: Mapping[TopicPartition, int], max_swaps: int) -> None:
        self._table = table
        self._former = former
        self._swaps_left = max_swaps
        self._made: dict[TopicPartition, tuple[int, int]] = {}
        self._between: dict[tuple[str, int, int], dict[TopicPartition, None]] = {}

    def improve(self, movable: Sequence[TopicPartition]) -> None:
        """Move these partitions as long as it brings members nearer to each other."""
        again = True
        while again:
            again = False
            for tp in movable:
                target = self._target(tp)
                if target is not None:
                    self._move(self._in_stead_of(tp, target), target)
                    again = True

    def _target(self, tp: TopicPartition) -> int | None:
        """Who had better have it: its former owner, or who has the fewest."""
        table = self._table
        most = table.count(table.owner[tp]) - 1
        former = self._former.get(tp)
        if former is not None and table.count(former) < most:
            return former
        least = table.least(table.readers[tp.topic])
        return least if table.count(least) < most else None

    def _in_stead_of(self, tp: TopicPartition, target: int) -> TopicPartition:
        """A partition of the topic that came from `target`, which had better go back there."""
        source = self._made[tp][0] if tp in self._made else self._table.owner[tp]
        came = self._between.get((tp.topic, target, source))
        if not came or not self._swaps_left:
            return tp
        self._swaps_left -= 1
        return next(iter(came))

    def _move(self, tp: TopicPartition, target: int) -> None:
        source = self._table.owner[tp]
        if tp in self._made:
            source, last = self._made.pop(tp)
            del self._between[tp.topic, source, last][tp]
        if source != target:
            self._made[tp] = source, target
            self._between.setdefault((tp.topic, source, target), {})[tp] = None
        self._table.place(tp, target)
