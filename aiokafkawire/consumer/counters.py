"""What a consumer counts."""

from __future__ import annotations

from collections.abc import Collection

from .partition import Partition

__all__ = ("Counters",)

Numbers = dict[str, int | float]


class Counters:
    """Counters since the consumer was entered. Who does something counts it."""

    def __init__(self) -> None:
        self.records_given = 0
        self.bytes_fetched = 0
        self.fetches = 0
        self.fetch_failures = 0
        self.commits = 0
        self.commit_failures = 0
        self.rebalances = 0
        self._latency_s = 0.0
        self._longest_s = 0.0

    def fetched(self, latency_s: float) -> None:
        """A fetch was answered after so long."""
        self.fetches += 1
        self._latency_s += latency_s
        self._longest_s = max(self._longest_s, latency_s)

    def snapshot(self, partitions: Collection[Partition]) -> Numbers:
        """All numbers, with what the owned partitions show at present."""
        lags = [lag for partition in partitions if (lag := partition.lag) is not None]
        buffers = [p.buffer for p in partitions if p.buffer is not None]
        return {
            "assigned_partitions": len(partitions),
            "paused_partitions": sum(partition.paused for partition in partitions),
            "records_consumed_total": self.records_given,
            "bytes_fetched_total": self.bytes_fetched,
            "fetches_total": self.fetches,
            "fetch_failures_total": self.fetch_failures,
            "fetch_latency_ms_avg": 1_000 * self._latency_s / self.fetches if self.fetches else 0.0,
            "fetch_latency_ms_max": 1_000 * self._longest_s,
            "records_lag_max": max(lags, default=0),
            "buffered_records": sum(b.fetch_offset - b.position for b in buffers),
            "buffered_bytes": sum(b.size_bytes for b in buffers),
            "commits_total": self.commits,
            "commit_failures_total": self.commit_failures,
            "rebalances_total": self.rebalances,
        }
