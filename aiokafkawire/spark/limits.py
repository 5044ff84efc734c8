"""Rate limit and trigger delay of the micro-batches of a stream."""

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
    """Compute the end offsets of a batch of about `limit` offsets.

    The limit is shared among the partitions in proportion to their new offsets. As in Spark's
    connector, each partition with new offsets gets at least one, so the batch exceeds `limit` if
    there are more such partitions.

    Args:
        limit: `maxOffsetsPerTrigger`.
        start: The start offset of every partition in `latest`.
        latest: The log end offset of each partition.
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
    """Delay of micro-batches with fewer than `min_rows` new offsets (`minOffsetsPerTrigger`).

    A batch is delayed until `max_delay_s` (`maxTriggerDelay`) have passed since the previous one.
    The first batch is never delayed.
    """

    def __init__(self, min_rows: int, max_delay_s: float) -> None:
        self._min_rows = min_rows
        self._max_delay_s = max_delay_s
        self._last: float | None = None

    def should_wait(self, available: int, now: float) -> bool:
        """Return whether to delay the batch; if not, it is taken to begin at `now`.

        Args:
            available: The number of new offsets in all partitions.
            now: The current time of a monotonic clock, in seconds.
        """
        last = self._last
        if last is not None and now - last < self._max_delay_s and available < self._min_rows:
            return True
        self._last = now
        return False
