"""Choice of the least and the most loaded subscribers of a topic."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ("LoadBalancer",)


class LoadBalancer:
    """Gives out the least and the most loaded of some members, in the order of Kafka's.

    Members are sorted by load. The least loaded ones are the range [0, `_low_end`), each with
    `_low_level` partitions before its turn; the most loaded ones are [`_high_start`, `_high_end`).
    The caller changes `sizes` after each call, so that the ranges grow towards each other.
    """

    def __init__(self, members: Sequence[int], sizes: Sequence[int]) -> None:
        """Sort the members; `sizes` is the number of partitions of every member of the group."""
        self._sizes = sizes
        self._members = sorted(members, key=lambda member: (sizes[member], member))
        low, high = sizes[self._members[0]], sizes[self._members[-1]]
        self.imbalance = high - low
        self._low_end, self._low_level, self._low_next = 0, low - 1, 0
        self._high_start = self._high_end = len(self._members)
        self._high_level, self._high_next = high + 1, len(self._members) - 1

    def is_balanced(self) -> bool:
        """Return True if no move can improve the balance."""
        return self._high_level - self._low_level <= 1

    def next_least_loaded(self) -> int:
        """Return the member that gets the next partition."""
        if self._low_next >= self._low_end:
            # Each member of the range has got one: the range may grow.
            self._low_level += 1
            while self._low_end < len(self._members) and self._has_size(
                self._low_end, self._low_level
            ):
                self._low_end += 1
            self._low_next = 0
        self._low_next += 1
        return self._members[self._low_next - 1]

    def next_most_loaded(self) -> int | None:
        """Return the member that gives up the next partition, None if there is no more."""
        if self._high_next < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                # All members of the range were excluded.
                self._high_level = self._sizes[self._members[self._high_start - 1]]
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._has_size(self._high_start - 1, self._high_level):
                self._high_start -= 1
            self._high_next = self._high_end - 1
        if self._high_next < 0:
            return None
        self._high_next -= 1
        return self._members[self._high_next + 1]

    def exclude_most_loaded(self) -> None:
        """Exclude the member that `next_most_loaded` returned last: it has nothing to give up."""
        self._high_end -= 1
        last, end = self._high_next + 1, self._high_end
        self._members[last], self._members[end] = self._members[end], self._members[last]

    def _has_size(self, place: int, size: int) -> bool:
        return self._sizes[self._members[place]] == size
