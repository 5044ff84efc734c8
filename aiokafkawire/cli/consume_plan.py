"""Where `consume` starts in each partition, where it stops, and what it prints in between."""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from aiokafkawire.cli.arguments import OffsetArgument, OffsetKind
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.formats import RecordFormatter
from aiokafkawire.cli.progress import ERASE_LINE, Progress
from aiokafkawire.cli.standard_streams import print_stderr
from aiokafkawire.cli.streams import OutputStream
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.records import Records
from aiokafkawire.types import TopicPartition, by_topic

__all__ = ("POLL_MS", "ConsumePlan", "Reader", "format_partitions", "topic_pattern")

POLL_MS = 500
"""How long to wait for records before looking whether the end is reached."""


@dataclass(frozen=True, slots=True)
class ConsumePlan:
    """What to read. `partitions` and `start` are for reading without a `group`.

    `until_ms` stops each partition at the first record of that time or later; with
    `exit_at_end` it stops where it ended when reading began.
    """

    topics: tuple[str, ...]
    group: str | None = None
    partitions: tuple[int, ...] = ()
    start: OffsetArgument = OffsetArgument(OffsetKind.BEGINNING)
    until_ms: int | None = None
    exit_at_end: bool = False
    count: int | None = None
    quiet: bool = False


class Reader(RebalanceListener):
    """Reads and prints what a plan says. Listens to the group's rebalances."""

    def __init__(
        self,
        consumer: Consumer,
        plan: ConsumePlan,
        formatter: RecordFormatter,
        output: OutputStream,
    ) -> None:
        self._consumer = consumer
        self._plan = plan
        self._formatter = formatter
        self._output = output
        self._stop_offsets: dict[TopicPartition, int] = {}
        self._remaining = plan.count
        self._assigned = False

    # --- where to start and stop -------------------------------------------------------------

    async def prepare(self) -> None:
        """Choose the partitions and their positions. Raises `UnknownTopic`, `CommandFailed`."""
        if self._plan.group is not None:
            await self._subscribe()
            return
        (topic,) = self._plan.topics
        known = await self._consumer.partitions_for(topic)
        for partition in self._plan.partitions:
            if partition not in known:
                last = max(known)
                raise CommandFailed(
                    f"topic {topic!r} has no partition {partition}, only 0 to {last}"
                )
        selected = [TopicPartition(topic, n) for n in self._plan.partitions or known]
        self._consumer.assign(selected)
        # A fetch from elsewhere than the start would hold back the one that matters.
        self._consumer.pause(*selected)
        await self._seek_to_start(selected)
        self._consumer.resume(*selected)
        if self._plan.exit_at_end or self._plan.until_ms is not None:
            self._stop_offsets = await self._find_stop_offsets(selected)
        self._assigned = True

    async def _subscribe(self) -> None:
        pattern = topic_pattern(self._plan.topics)
        known = await self._consumer.topics()
        for text in _missing_topics(self._plan.topics, pattern, known):
            if self._plan.exit_at_end:
                raise CommandFailed(text)
            # The group waits for it, and takes it up when somebody makes it.
            self._note(f"% {text} (yet)")
        topics = () if pattern else self._plan.topics
        self._consumer.subscribe(topics, pattern=pattern, listener=self)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        if partitions or not self._consumer.assignment():
            self._note_change("assigned", partitions)
        if self._plan.exit_at_end:
            self._stop_offsets.update(await self._find_stop_offsets(partitions))
        self._assigned = True

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._drop_stop_offsets("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._drop_stop_offsets("lost", partitions)

    def _drop_stop_offsets(self, change: str, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self._note_change(change, partitions)
        for tp in partitions:
            self._stop_offsets.pop(tp, None)

    def _note_change(self, change: str, partitions: Collection[TopicPartition]) -> None:
        self._note(f"% group {self._plan.group}: {change} {format_partitions(partitions)}")

    async def _seek_to_start(self, selected: Sequence[TopicPartition]) -> None:
        start, consumer = self._plan.start, self._consumer
        if start.kind is OffsetKind.STORED:
            await consumer.seek_to_committed(*selected)
            return
        log_starts = await consumer.beginning_offsets(*selected)
        log_ends = await consumer.end_offsets(*selected)
        if start.kind is OffsetKind.FROM_TIME:
            found = await consumer.offsets_for_times(dict.fromkeys(selected, start.number))
        for tp in selected:
            first = log_starts[tp]
            match start.kind:
                case OffsetKind.END:
                    first = max(first, log_ends[tp] - start.number)
                case OffsetKind.FROM_TIME:
                    found_offset = found[tp]
                    first = log_ends[tp] if found_offset is None else found_offset.offset
                case OffsetKind.OFFSET:
                    first = min(max(first, start.number), log_ends[tp])
                    if start.number > first:
                        self._note(f"% {tp.topic} [{tp.partition}] ends at {first} already")
            consumer.seek(tp, first)

    async def _find_stop_offsets(
        self, selected: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        if not selected:
            return {}
        stops = await self._consumer.end_offsets(*selected)
        if self._plan.until_ms is not None:
            found = await self._consumer.offsets_for_times(
                dict.fromkeys(selected, self._plan.until_ms)
            )
            stops.update({tp: each.offset for tp, each in found.items() if each is not None})
        return stops

    # --- reading -----------------------------------------------------------------------------

    async def run(self, progress: Progress) -> None:
        """Read until the plan is carried out, for ever if it has no end."""
        most = self._consumer.config.max_poll_records
        while not (await self._reached_end() or self._remaining == 0):
            limit = most if self._remaining is None else min(most, self._remaining)
            fetched = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=limit)
            for tp, records in fetched.items():
                wanted = self._before_stop_offset(tp, records)
                await self._output.write(b"".join(map(self._formatter, wanted)))
                progress.count += len(wanted)
                if self._remaining is not None:
                    self._remaining -= len(wanted)

    def _before_stop_offset(self, tp: TopicPartition, records: Records) -> Records:
        """What stands before the stop; in a group all, since all of it will be committed."""
        stop = self._stop_offsets.get(tp)
        if stop is None or self._plan.group is not None or records.next_offset <= stop:
            return records
        return records[: bisect_left(records.offsets(), stop)]

    async def _reached_end(self) -> bool:
        """Whether every partition has come to its stop."""
        if not (self._plan.exit_at_end or self._plan.until_ms is not None):
            return False
        for tp, stop in list(self._stop_offsets.items()):
            position = await self._consumer.position(tp)
            if position >= stop and tp not in self._consumer.paused():
                self._consumer.pause(tp)
                self._note(f"% Reached end of {tp.topic} [{tp.partition}] at offset {stop}")
        return self._assigned and self._consumer.paused() >= self._stop_offsets.keys()

    def _note(self, text: str) -> None:
        if not self._plan.quiet:
            before = ERASE_LINE if sys.stderr.isatty() else ""
            print_stderr(f"{before}{text}")


def format_partitions(partitions: Collection[TopicPartition]) -> str:
    """The partitions of each topic: orders [0, 1], refunds [2]."""
    parts = [
        f"{topic} {[tp.partition for tp in tps]}"
        for topic, tps in by_topic(sorted(partitions)).items()
    ]
    return ", ".join(parts) or "no partitions"


def _missing_topics(topics: Sequence[str], pattern: str | None, known: Sequence[str]) -> list[str]:
    """What of the topics that are to be read is not there."""
    if pattern is None:
        return [f"topic {name} does not exist" for name in topics if name not in known]
    if any(re.fullmatch(pattern, name) for name in known):
        return []
    return [f"no topic matches {' '.join(topics)}"]


def topic_pattern(topics: Sequence[str]) -> str | None:
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
