"""What one task reads, and how much of it one task is given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiokafkawire.types import TopicPartition

__all__ = ("OffsetRange", "split_ranges")


class OffsetRange(NamedTuple):
    """The offsets of one partition from `start` up to `end`, which is not part of it."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets: fewer records may stand there (compaction, transaction markers)."""
        return self.end - self.start


def split_ranges(
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
    pieces = sorted(piece for piece in ranges if piece.size > 0)
    if max_records_per_partition is not None:
        limit = max_records_per_partition
        pieces = [piece for whole in pieces for piece in _split(whole, -(-whole.size // limit))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.size for piece in pieces)
    unsplit = {piece for piece in pieces if _share(piece.size, total, min_partitions) == 1}
    remaining = total - sum(piece.size for piece in unsplit)
    parts_left = max(min_partitions - len(unsplit), 1)
    return [
        piece
        for whole in pieces
        for piece in _split(
            whole, 1 if whole in unsplit else _share(whole.size, remaining, parts_left)
        )
    ]


def _share(size: int, total: int, parts: int) -> int:
    """Of so many parts, those that are its own: at least one."""
    return max(math.floor(size / total * parts + 0.5), 1)


def _split(offset_range: OffsetRange, count: int) -> Sequence[OffsetRange]:
    pieces = []
    start = offset_range.start
    for remaining in range(count, 0, -1):
        end = start + (offset_range.end - start) // remaining
        if end > start:
            pieces.append(OffsetRange(offset_range.topic_partition, start, end))
        start = end
    return pieces
