"""Counters and metrics of a consumer."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING

from aiokafkawire.runtime.durations import Durations
from aiokafkawire.types import TopicPartition

if TYPE_CHECKING:
    from .partition import AssignedPartition

__all__ = ("ConsumerCounters", "Numbers")

MAX_LAGS = 1_000
"""The most partitions whose lag is a metric: those with the largest lag."""

Numbers = dict[str, int | float]


class ConsumerCounters:
    """Counters since the consumer was started."""

    def __init__(self) -> None:
        self.records_consumed = 0
        self.bytes_fetched = 0
        self.fetches = 0
        self.fetch_failures = 0
        self.commits = 0
        self.commit_failures = 0
        self.rebalances = 0
        self.fetch_latency = Durations()
        self.rebalance_latency = Durations()

    def record_fetch(self, latency_s: float) -> None:
        """Count a Fetch response, with its latency in seconds."""
        self.fetches += 1
        # Not `add`, because a call for each response would cost more.
        latency = self.fetch_latency
        latency.count += 1
        latency.sum_s += latency_s
        latency.latest_max_s = max(latency.latest_max_s, latency_s)

    def fetch_metrics(self) -> Numbers:
        """Return the metrics of Fetch or ShareFetch requests."""
        return {
            "fetches_total": self.fetches,
            "fetch_failures_total": self.fetch_failures,
            "fetch_latency_ms_avg": 1_000 * self.fetch_latency.average_s,
            "fetch_latency_ms_max": 1_000 * self.fetch_latency.max_s,
        }

    def snapshot(self, partitions: Collection[AssignedPartition]) -> Numbers:
        """Return all metrics, including the lag and buffers of the assigned partitions."""
        lags = {partition.tp: lag for partition in partitions if (lag := partition.lag) is not None}
        buffers = [partition.buffer for partition in partitions if partition.buffer is not None]
        return {
            "assigned_partitions": len(partitions),
            "paused_partitions": sum(partition.paused for partition in partitions),
            "records_consumed_total": self.records_consumed,
            "bytes_fetched_total": self.bytes_fetched,
            **self.fetch_metrics(),
            "records_lag_max": max(lags.values(), default=0),
            "buffered_records": sum(buffer.fetch_offset - buffer.position for buffer in buffers),
            "buffered_bytes": sum(buffer.size_bytes for buffer in buffers),
            "commits_total": self.commits,
            "commit_failures_total": self.commit_failures,
            "rebalances_total": self.rebalances,
            **_lag_by_partition(lags),
        }


def _lag_by_partition(lags: Mapping[TopicPartition, int]) -> Numbers:
    """Return the lag of each partition under its Prometheus name, at most `MAX_LAGS` of them."""
    chosen: Iterable[tuple[TopicPartition, int]] = lags.items()
    if len(lags) > MAX_LAGS:
        chosen = heapq.nlargest(MAX_LAGS, chosen, key=itemgetter(1))
    return {
        f'records_lag{{topic="{topic}",partition="{number}"}}': lag
        for (topic, number), lag in chosen
    }
