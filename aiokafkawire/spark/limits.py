"""How much one micro-batch of a stream reads."""

from __future__ import annotations

import math
from collections.abc import Mapping

from aiokafkawire.types import TopicPartition

from .offsets import PartitionOffsets

__all__ = ("TriggerDelay", "rate_limit")

MAX_OFFSET = 2**63 - 1


def rate_limit(
    limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> PartitionOffsets:
    """Where a batch of about `limit` offsets ends, shared in proportion to what each has.

    Each partition that has something gets at least one (as in the JVM's connector), so that more
    partitions than `limit` make a larger batch. `start` has an offset for each partition.
    """
    sizes = {tp: end - start[tp] for tp, end in latest.items() if end > start[tp]}
    total = sum(sizes.values())
    ends = dict(latest)
    for tp, size in sizes.items():
        share = limit * (size / total)
        rows = math.ceil(share) if share < 1 else math.floor(share)
        ends[tp] = min(latest[tp], start[tp] + rows, MAX_OFFSET)
    return ends


class TriggerDelay:
    """Whether a batch has to wait, as fewer than `min_rows` offsets are there.

    It waits at most `max_delay_s` after the batch before; the first never does.
    """

    def __init__(self, min_rows: int, max_delay_s: float) -> None:
        self._min_rows = min_rows
        self._max_delay_s = max_delay_s
        self._last: float | None = None

    def should_wait(self, available: int, now: float) -> bool:
        """False means that the batch begins now: `available` are the offsets that are there."""
        last = self._last
        if last is not None and now - last < self._max_delay_s and available < self._min_rows:
            return True
        self._last = now
        return False
