"""The sticky division among members that all subscribe to the same topics."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from aiokafkawire.types import TopicPartition

from .base import java_order, java_table_order
from .racks import Racks

__all__ = ("divide_equally",)


def divide_equally(
    partitions: Sequence[TopicPartition],
    owned: Mapping[str, Sequence[TopicPartition]],
    racks: Racks,
) -> dict[str, list[TopicPartition]]:
    """Give each member its share, and of what it owned as much as the share allows.

    `partitions` are all, by topic and number; `owned` has all members. Numbers differ
    by one at most. Where racks matter, partitions are given within racks first.
    """
    shares = _Shares(len(partitions), owned)
    kept: set[TopicPartition] = set()
    for member_id in java_table_order(list(owned)):
        fit = [tp for tp in owned[member_id] if not racks.clash(member_id, tp)]
        fit.sort(key=lambda tp: (tp.partition, tp.topic))
        kept.update(shares.keep(member_id, fit))
    shares.sort()
    free = [tp for tp in partitions if tp not in kept]
    if racks:
        free.sort(key=racks.members_near)
        free = [tp for tp in free if not shares.give_near(tp, racks)]
    shares.give_in_turn(free)
    return shares.given


class _Shares:
    """Who has how much of a share.

    All get `least` partitions, and `extra` of the members one more. Members in `lacking` have
    fewer than `least`; those in `spare` have `least`, and may get the one more.
    """

    def __init__(self, count: int, members: Iterable[str]) -> None:
        self.given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        self._least, self._extra = divmod(count, len(self.given))
        self._lacking: list[str] = []
        self._spare: deque[str] = deque()
        self._turn = 0

    def keep(self, member_id: str, had: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Let a member keep what it had, as far as its share allows."""
        if len(had) < self._least:
            self._lacking.append(member_id)
        elif len(had) > self._least and self._extra:
            had = had[: self._least + 1]
            self._use_extra()
        else:
            had = had[: self._least]
            if self._extra:
                self._spare.append(member_id)
        self.given[member_id] += had
        return had

    def sort(self) -> None:
        """Order the members before they are given what they did not have."""
        self._lacking.sort(key=java_order)
        self._spare = deque(sorted(self._spare, key=java_order))

    def _use_extra(self) -> None:
        self._extra -= 1
        if not self._extra:
            self._spare.clear()

    def give_near(self, tp: TopicPartition, racks: Racks) -> bool:
        """Give the partition to a member near it, if one has room; lacking ones take turns."""
        lacking = self._lacking
        count = len(lacking)
        for step in range(count):
            at = (self._turn + step) % count
            if racks.match(lacking[at], tp):
                self._turn = self._give_lacking(tp, at)
                return True
        for at, member_id in enumerate(self._spare):
            if racks.match(member_id, tp):
                del self._spare[at]
                self.given[member_id].append(tp)
                self._use_extra()
                return True
        return False

    def _give_lacking(self, tp: TopicPartition, at: int) -> int:
        """Give to one that lacks partitions; returns the place of the next."""
        member_id = self._lacking[at]
        self.given[member_id].append(tp)
        if len(self.given[member_id]) < self._least:
            return at + 1
        del self._lacking[at]
        if self._extra:
            self._spare.append(member_id)
        return at

    def give_in_turn(self, free: Iterable[TopicPartition]) -> None:
        """Give all the rest: in turn to those that lack some, then one each to the others."""
        at = 0
        for tp in free:
            if self._lacking:
                at = self._give_lacking(tp, at % len(self._lacking))
            else:
                self.given[self._spare.popleft()].append(tp)
