"""What one task reads, and how much of it one task is given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiokafkawire.types import TopicPartition

__all__ = ("OffsetRange", "divide")


class OffsetRange(NamedTuple):
    """The offsets of one partition from `start` up to `end`, which is not part of it."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets: fewer records may stand there (compaction, transaction markers)."""
        return self.end - self.start


def divide(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """Ranges for tasks: what is empty is left out, what is large is split.

    First no range has more than `max_records_per_partition` offsets; then, if these are fewer than
    `min_partitions`, large ones are split in proportion to their size, into about so many (as the
    JVM's connector does it: ranges whose share is one task are left out of the proportion).
    The order is that of topic, partition and offset.
    """
    whole = sorted(part for part in ranges if part.size > 0)
    if max_records_per_partition is not None:
        limit = max_records_per_partition
        whole = [piece for part in whole for piece in _split(part, -(-part.size // limit))]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(part.size for part in whole)
    small = {part for part in whole if _share(part.size, total, min_partitions) == 1}
    left = total - sum(part.size for part in small)
    parts_left = max(min_partitions - len(small), 1)
    return [
        piece
        for part in whole
        for piece in _split(part, 1 if part in small else _share(part.size, left, parts_left))
    ]


def _share(size: int, total: int, parts: int) -> int:
    """Of so many parts, those that are its own: at least one."""
    return max(math.floor(size / total * parts + 0.5), 1)


def _split(part: OffsetRange, count: int) -> Sequence[OffsetRange]:
    pieces = []
    start = part.start
    for left in range(count, 0, -1):
        end = start + (part.end - start) // left
        if end > start:
            pieces.append(OffsetRange(part.topic_partition, start, end))
        start = end
    return pieces
