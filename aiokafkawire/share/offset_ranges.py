"""Values by offset, stored by range: records are acquired and acknowledged in ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ("OffsetRanges", "consecutive")

T = TypeVar("T")


class OffsetRanges(Generic[T]):
    """A value for each of some offsets. Iterating yields (first offset, last offset, value).

    Ranges do not overlap, and adjacent ones have different values.
    """

    __slots__ = ("_firsts", "_lasts", "_values")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._values: list[T] = []

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int, T]]:
        """Iterate over the ranges as they are now."""
        return iter([*zip(self._firsts, self._lasts, self._values, strict=True)])

    def get(self, offset: int) -> T | None:
        """Return the value of an offset, or None."""
        index = bisect_left(self._lasts, offset)
        if index == len(self._firsts) or offset < self._firsts[index]:
            return None
        return self._values[index]

    def covers(self, first: int, last: int, value: T) -> bool:
        """Return whether one range with this value, the same object, has all these offsets."""
        index = bisect_left(self._lasts, last)
        return (
            index < len(self._firsts)
            and self._firsts[index] <= first
            and self._values[index] is value
        )

    def within(self, first: int, last: int) -> list[tuple[int, int, T]]:
        """Return the ranges between two offsets, cut to these."""
        start, stop = self._overlap(first, last)
        return [
            (max(first, self._firsts[index]), min(last, self._lasts[index]), self._values[index])
            for index in range(start, stop)
        ]

    def filled(self, first: int, last: int, default: T) -> list[tuple[int, int, T]]:
        """Return ranges for all offsets between two; `default` is the value of those without."""
        ranges: list[tuple[int, int, T]] = []
        for begin, end, value in self.within(first, last):
            if first < begin:
                ranges.append((first, begin - 1, default))
            ranges.append((begin, end, value))
            first = end + 1
        if first <= last:
            ranges.append((first, last, default))
        return ranges

    def set(self, first: int, last: int, value: T) -> None:
        """Set the value of all offsets from `first` to `last`."""
        index = len(self._firsts)
        if index and first <= self._lasts[-1]:
            self.remove(first, last)
            index = bisect_left(self._firsts, first)
        if index and self._lasts[index - 1] == first - 1 and self._values[index - 1] == value:
            index -= 1
            first = self._firsts[index]
            self._delete(index, index + 1)
        if (
            index < len(self._firsts)
            and self._firsts[index] == last + 1
            and self._values[index] == value
        ):
            last = self._lasts[index]
            self._delete(index, index + 1)
        self._insert(index, first, last, value)

    def remove(self, first: int, last: int) -> None:
        """Remove the values of all offsets from `first` to `last`."""
        start, stop = self._overlap(first, last)
        if start == stop:
            return
        before, after = self._firsts[start], self._lasts[stop - 1]
        value_before, value_after = self._values[start], self._values[stop - 1]
        self._delete(start, stop)
        if last < after:
            self._insert(start, last + 1, after, value_after)
        if before < first:
            self._insert(start, before, first - 1, value_before)

    def clear(self) -> None:
        """Remove all values."""
        self._delete(0, len(self._firsts))

    def _overlap(self, first: int, last: int) -> tuple[int, int]:
        """Return the indexes [start, stop) of the ranges with offsets from `first` to `last`."""
        start = bisect_left(self._lasts, first)
        return start, max(start, bisect_right(self._firsts, last))

    def _insert(self, index: int, first: int, last: int, value: T) -> None:
        self._firsts.insert(index, first)
        self._lasts.insert(index, last)
        self._values.insert(index, value)

    def _delete(self, start: int, stop: int) -> None:
        del self._firsts[start:stop], self._lasts[start:stop], self._values[start:stop]


def consecutive(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last offset of each range of consecutive offsets."""
    if isinstance(offsets, range) and offsets.step == 1:
        return [(offsets.start, offsets.stop - 1)] if offsets else []
    ranges: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if ranges and offset == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], offset
        else:
            ranges.append((offset, offset))
    return ranges
