"""Where `consume` starts in each partition, where it stops, and what it prints in between."""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from aiokafkawire.cli.arguments import Place, Position
from aiokafkawire.cli.formats import Printer
from aiokafkawire.cli.problems import Failure
from aiokafkawire.cli.progress import ERASE_LINE, Progress
from aiokafkawire.cli.standard import note
from aiokafkawire.cli.streams import Output
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.records import Records
from aiokafkawire.types import TopicPartition, by_topic

__all__ = ("POLL_MS", "Plan", "Reader", "describe", "pattern_of")

POLL_MS = 500
"""How long to wait for records before looking whether the end is reached."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read. `partitions` and `start` are for reading without a `group`.

    `until_ms` stops each partition at the first record of that time or later; with
    `exit_at_end` it stops where it ended when reading began.
    """

    topics: tuple[str, ...]
    group: str | None = None
    partitions: tuple[int, ...] = ()
    start: Position = Position(Place.BEGINNING)
    until_ms: int | None = None
    exit_at_end: bool = False
    count: int | None = None
    quiet: bool = False


class Reader(RebalanceListener):
    """Reads and prints what a plan says. Listens to the group's rebalances."""

    def __init__(self, consumer: Consumer, plan: Plan, printer: Printer, output: Output) -> None:
        self._consumer = consumer
        self._plan = plan
        self._printer = printer
        self._output = output
        self._stops: dict[TopicPartition, int] = {}
        self._left = plan.count
        self._assigned = False

    # --- where to start and stop -------------------------------------------------------------

    async def prepare(self) -> None:
        """Choose the partitions and their positions. Raises `UnknownTopic`, `Failure`."""
        if self._plan.group is not None:
            await self._subscribe()
            return
        (topic,) = self._plan.topics
        known = await self._consumer.partitions_for(topic)
        for partition in self._plan.partitions:
            if partition not in known:
                last = max(known)
                raise Failure(f"topic {topic!r} has no partition {partition}, only 0 to {last}")
        chosen = [TopicPartition(topic, n) for n in self._plan.partitions or known]
        self._consumer.assign(chosen)
        # A fetch from elsewhere than the start would hold back the one that matters.
        self._consumer.pause(*chosen)
        await self._start(chosen)
        self._consumer.resume(*chosen)
        if self._plan.exit_at_end or self._plan.until_ms is not None:
            self._stops = await self._find_stops(chosen)
        self._assigned = True

    async def _subscribe(self) -> None:
        pattern = pattern_of(self._plan.topics)
        known = await self._consumer.topics()
        for text in _missing(self._plan.topics, pattern, known):
            if self._plan.exit_at_end:
                raise Failure(text)
            # The group waits for it, and takes it up when somebody makes it.
            self._note(f"% {text} (yet)")
        topics = () if pattern else self._plan.topics
        self._consumer.subscribe(topics, pattern=pattern, listener=self)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        if partitions or not self._consumer.assignment():
            self._note_change("assigned", partitions)
        if self._plan.exit_at_end:
            self._stops.update(await self._find_stops(partitions))
        self._assigned = True

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._forget("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._forget("lost", partitions)

    def _forget(self, how: str, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self._note_change(how, partitions)
        for tp in partitions:
            self._stops.pop(tp, None)

    def _note_change(self, how: str, partitions: Collection[TopicPartition]) -> None:
        self._note(f"% group {self._plan.group}: {how} {describe(partitions)}")

    async def _start(self, chosen: Sequence[TopicPartition]) -> None:
        start, consumer = self._plan.start, self._consumer
        if start.place is Place.STORED:
            await consumer.seek_to_committed(*chosen)
            return
        begins = await consumer.beginning_offsets(*chosen)
        ends = await consumer.end_offsets(*chosen)
        if start.place is Place.FROM_TIME:
            found = await consumer.offsets_for_times(dict.fromkeys(chosen, start.number))
        for tp in chosen:
            first = begins[tp]
            match start.place:
                case Place.END:
                    first = max(first, ends[tp] - start.number)
                case Place.FROM_TIME:
                    at = found[tp]
                    first = ends[tp] if at is None else at.offset
                case Place.OFFSET:
                    first = min(max(first, start.number), ends[tp])
                    if start.number > first:
                        self._note(f"% {tp.topic} [{tp.partition}] ends at {first} already")
            consumer.seek(tp, first)

    async def _find_stops(self, chosen: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if not chosen:
            return {}
        stops = await self._consumer.end_offsets(*chosen)
        if self._plan.until_ms is not None:
            found = await self._consumer.offsets_for_times(
                dict.fromkeys(chosen, self._plan.until_ms)
            )
            stops.update({tp: at.offset for tp, at in found.items() if at is not None})
        return stops

    # --- reading -----------------------------------------------------------------------------

    async def run(self, progress: Progress) -> None:
        """Read until the plan is carried out, for ever if it has no end."""
        most = self._consumer.config.max_poll_records
        while not (await self._at_the_end() or self._left == 0):
            limit = most if self._left is None else min(most, self._left)
            given = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=limit)
            for tp, records in given.items():
                wanted = self._before_stop(tp, records)
                await self._output.write(b"".join(map(self._printer, wanted)))
                progress.count += len(wanted)
                if self._left is not None:
                    self._left -= len(wanted)

    def _before_stop(self, tp: TopicPartition, records: Records) -> Records:
        """What stands before the stop; in a group all, since all of it will be committed."""
        stop = self._stops.get(tp)
        if stop is None or self._plan.group is not None or records.next_offset <= stop:
            return records
        return records[: bisect_left(records.offsets(), stop)]

    async def _at_the_end(self) -> bool:
        """Whether every partition has come to its stop."""
        if not (self._plan.exit_at_end or self._plan.until_ms is not None):
            return False
        for tp, stop in list(self._stops.items()):
            position = await self._consumer.position(tp)
            if position >= stop and tp not in self._consumer.paused():
                self._consumer.pause(tp)
                self._note(f"% Reached end of {tp.topic} [{tp.partition}] at offset {stop}")
        return self._assigned and self._consumer.paused() >= self._stops.keys()

    def _note(self, text: str) -> None:
        if not self._plan.quiet:
            before = ERASE_LINE if sys.stderr.isatty() else ""
            note(f"{before}{text}")


def describe(partitions: Collection[TopicPartition]) -> str:
    """The partitions of each topic: orders [0, 1], refunds [2]."""
    told = [
        f"{topic} {[tp.partition for tp in tps]}"
        for topic, tps in by_topic(sorted(partitions)).items()
    ]
    return ", ".join(told) or "no partitions"


def _missing(topics: Sequence[str], pattern: str | None, known: Sequence[str]) -> list[str]:
    """What of the topics that are to be read is not there."""
    if pattern is None:
        return [f"topic {name} does not exist" for name in topics if name not in known]
    if any(re.fullmatch(pattern, name) for name in known):
        return []
    return [f"no topic matches {' '.join(topics)}"]


def pattern_of(topics: Sequence[str]) -> str | None:
    """One regular expression for topics of which some start with ^; None if none does."""
    if not any(topic.startswith("^") for topic in topics):
        return None
    parts = []
    for topic in topics:
        if not topic.startswith("^"):
            parts.append(re.escape(topic))
        elif topic.endswith("$"):
            parts.append(topic[1:-1])
        else:
            parts.append(f"(?:{topic[1:]}).*")
    return "|".join(f"(?:{part})" for part in parts)
