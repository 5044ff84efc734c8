"""Failures of records that no call has raised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from aiokafkawire.errors import DeliveriesFailed
from aiokafkawire.types import TopicPartition

__all__ = ("MAX_NAMED_PARTITIONS", "CountedFailures", "FailedBatch", "UnreportedFailures")

MAX_NAMED_PARTITIONS = 20
"""Number of partitions that an error text lists."""


@dataclass(slots=True)
class CountedFailures:
    """Failed records of a batch that are counted in `UnreportedFailures`, in one of its rounds."""

    round: int
    count: int = 0


class FailedBatch(Protocol):
    """A batch whose failed records are counted; implemented by `BatchFuture`."""

    topic: str
    partition: int
    counted: CountedFailures | None


class UnreportedFailures:
    """Counts the failed records that no call has raised yet, by partition.

    Attributes:
        disabled: Count nothing, because failures are reported in another way.
        round: Number of times that the count was reset. A `FailedBatch` knows in which round its
            records were counted.
    """

    __slots__ = ("_counts", "_first", "disabled", "round")

    def __init__(self, *, disabled: bool = False) -> None:
        self.disabled = disabled
        self._counts: Counter[TopicPartition] = Counter()
        self._first: Exception | None = None
        self.round = 0

    @property
    def count(self) -> int:
        """Number of failed records that no call has raised."""
        return self._counts.total()

    def add(self, future: FailedBatch, count: int, error: Exception) -> None:
        """Count `count` records of a failed batch."""
        if count <= 0 or self.disabled:
            return
        counted = future.counted
        if counted is None or counted.round != self.round:
            counted = future.counted = CountedFailures(self.round)
        counted.count += count
        self._counts[TopicPartition(future.topic, future.partition)] += count
        if self._first is None:
            self._first = error

    def mark_reported(self, future: FailedBatch) -> None:
        """Subtract one record of a batch: a call has raised its failure."""
        counted = future.counted
        if counted is None or counted.round != self.round or not counted.count:
            return
        counted.count -= 1
        topic_partition = TopicPartition(future.topic, future.partition)
        self._counts[topic_partition] -= 1
        if not self._counts[topic_partition]:
            del self._counts[topic_partition]
        if not self._counts:
            self._first = None

    def take(self) -> DeliveriesFailed | None:
        """Return the error for all counted failures, or None, and reset the count."""
        counts, first = self._counts, self._first
        self._counts, self._first = Counter(), None
        self.round += 1
        count = counts.total()
        if not count:
            return None
        text = "1 record was" if count == 1 else f"{count} records were"
        failure = DeliveriesFailed(
            f"{text} not delivered, and no call has raised the error (not awaited, or the wait was"
            f" cancelled): {_named(counts)}; the first error: {first}",
            count=count,
            counts=counts,
            first=first,
        )
        failure.__cause__ = first
        return failure


def _named(counts: Mapping[TopicPartition, int]) -> str:
    named = [f"{count} of {topic}-{number}" for (topic, number), count in sorted(counts.items())]
    more = len(named) - MAX_NAMED_PARTITIONS
    if more > 0:
        named[MAX_NAMED_PARTITIONS:] = [f"and of {more} more partitions"]
    return ", ".join(named)
