"""Offset ranges, and how they are split among tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiokafkawire.types import TopicPartition

__all__ = ("OffsetRange", "split_ranges")


class OffsetRange(NamedTuple):
    """The offsets of one partition from `start` to `end` (exclusive)."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; compaction and transaction markers leave fewer records."""
        return self.end - self.start


def split_ranges(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """Drop empty ranges and split large ones, one range per task.

    Ranges are first split to at most `max_records_per_partition` offsets. If there are still fewer
    than `min_partitions`, large ranges are split further in proportion to their size. As in Spark's
    connector, ranges whose share is a single task do not count in that proportion, so the result
    has about `min_partitions` ranges.

    Args:
        ranges: The offset ranges to read.
        min_partitions: `minPartitions`. None does not split for the number of tasks.
        max_records_per_partition: `maxRecordsPerPartition`. None does not limit ranges.

    Returns:
        The ranges, sorted by topic, partition and offset.
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
    """Return the share of `parts` in proportion to `size`, at least one."""
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
