"""Reads of members that join and leave, with what they show about rebalances."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import anyio

from verify.soak.checker import Span

__all__ = ("ChurnRecord", "Read", "Wait", "check_epochs", "describe_ms", "waits")

SHOWN = 5
STALL_INTERVAL_S = 0.05


class Read(NamedTuple):
    """Records that a member processed; `epoch` is its generation or member epoch.

    `created` is the time of the oldest of the records, in the clock of `at`.
    """

    at: float
    created: float
    member: str
    epoch: int
    span: Span


class Wait(NamedTuple):
    """Time in which records waited before a read."""

    seconds: float
    read: Read


class Waits(NamedTuple):
    """Waits for partitions that stayed with their member, and for those that moved."""

    stayed: tuple[Wait, ...]
    moved: tuple[Wait, ...]


@dataclass
class ChurnRecord:
    """Everything that the members of a group did.

    `stalls` has, for each time, how long this process did not run: it delays all members alike.
    """

    reads: list[Read] = field(default_factory=list)
    join_seconds: list[float] = field(default_factory=list)
    """For each member, the time from its start until it first owned partitions."""
    stalls: list[tuple[float, float]] = field(default_factory=list)
    began: float = field(default_factory=time.time)

    def describe_waits(self, waits: Sequence[Wait]) -> str:
        """Return the times of some waits as text, with the place of the longest."""
        text = describe_ms([wait.seconds for wait in waits])
        if waits:
            seconds, read = max(waits)
            after = read.at - self.began - seconds
            text += (
                f" (partition {read.span.partition} of {read.member}, {after:.1f} s after start)"
            )
        return text

    async def watch_stalls(self) -> None:
        """Record when this process does not run, until cancelled."""
        while True:
            before = time.time()
            await anyio.sleep(STALL_INTERVAL_S)
            self.stalls.append((before - self.began, time.time() - before - STALL_INTERVAL_S))


def waits(record: ChurnRecord) -> Waits:
    """Return how long records waited before each read, by what happened to the partition.

    A record waits from its creation, or from the read before it if that was later.
    """
    by_partition: dict[int, list[Read]] = defaultdict(list)
    for read in record.reads:
        by_partition[read.span.partition].append(read)
    stayed, moved = [], []
    for reads in by_partition.values():
        for before, read in pairwise(sorted(reads)):
            waited = read.at - max(before.at, read.created)
            waits_of_kind = stayed if before.member == read.member else moved
            waits_of_kind.append(Wait(waited, read))
    return Waits(tuple(stayed), tuple(moved))


def check_epochs(reads: Iterable[Read]) -> list[str]:
    """Check that no record was processed by two members of one epoch."""
    owners: Mapping[tuple[int, int], list[Read]] = defaultdict(list)
    for read in reads:
        owners[read.epoch, read.span.partition].append(read)
    twice = []
    for (epoch, partition), some in sorted(owners.items()):
        reached, last = 0, ""
        for read in sorted(some, key=lambda each: each.span):
            if read.span.first < reached and read.member != last:
                twice.append(f"{partition}@{read.span.first} by {last} and {read.member} ({epoch})")
            if read.span.end > reached:
                reached, last = read.span.end, read.member
    if not twice:
        return []
    return [f"{len(twice)} reads of two members of one epoch: {', '.join(twice[:SHOWN])}"]


def describe_ms(seconds: Sequence[float]) -> str:
    """Return median and longest of some times as text."""
    if not seconds:
        return "none"
    median, longest = statistics.median(seconds), max(seconds)
    return f"median {median * 1000:,.0f} ms, longest {longest * 1000:,.0f} ms"
