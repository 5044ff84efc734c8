"""Execution of `consume`: start and stop offsets of each partition, and the poll loop."""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from aiokafkawire.cli.arguments import OffsetArgument, OffsetKind
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.formats import RecordFormatter
from aiokafkawire.cli.log_lines import hide_missing_topics
from aiokafkawire.cli.progress import ERASE_LINE, Progress
from aiokafkawire.cli.standard_streams import print_stderr
from aiokafkawire.cli.streams import OutputStream
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import KafkaError
from aiokafkawire.records import Records
from aiokafkawire.types import TopicPartition, no_partition_text, partitions_by_topic

__all__ = ("POLL_MS", "ConsumePlan", "Reader", "format_partitions", "topic_pattern")

POLL_MS = 500
"""Timeout of a poll, after which the stop offsets are checked."""

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Topics that no pattern matches."""

RESET_TEXTS = {
    "earliest": "at the first record",
    "latest": "at the end; -o beginning starts at the first record",
}
"""Start of a group's partition without a committed offset, by `auto_offset_reset`."""


@dataclass(frozen=True, slots=True)
class ConsumePlan:
    """Topics and offsets to read. `partitions` and `start` apply only without a `group`.

    `until_ms` stops each partition at the first record of that time or later. `exit_at_end` stops
    it at the end offset it had at the start.
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
    """Consumes and prints the records of a plan; the rebalance listener of its group."""

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

    # --- start and stop offsets --------------------------------------------------------------

    async def prepare(self) -> None:
        """Assign or subscribe, and set positions. Raises `UnknownTopic` or `CommandFailed`."""
        if self._plan.group is not None:
            await self._subscribe()
            return
        (topic,) = self._plan.topics
        known = await self._consumer.partitions_for(topic)
        for partition in self._plan.partitions:
            if partition not in known:
                raise CommandFailed(no_partition_text(topic, partition, known))
        selected = [TopicPartition(topic, n) for n in self._plan.partitions or known]
        self._consumer.assign(selected)
        # A fetch before the seek would delay the fetch from the start offset.
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
            # The group picks up the topic when it is created.
            self._note(f"% {text} yet")
        if not self._plan.quiet:
            hide_missing_topics([name for name in self._plan.topics if name not in known])
        topics = () if pattern else self._plan.topics
        self._consumer.subscribe(topics, pattern=pattern, listener=self)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        if partitions or not self._consumer.assignment():
            self._note_change("assigned", partitions)
        if partitions and not self._plan.quiet:
            await self._note_not_committed(partitions)
        if self._plan.exit_at_end:
            self._stop_offsets.update(await self._find_stop_offsets(partitions))
        self._assigned = True

    async def _note_not_committed(self, partitions: Collection[TopicPartition]) -> None:
        """Report where reading starts without a committed offset."""
        policy = self._consumer.config.auto_offset_reset
        try:
            committed = await self._consumer.committed(*partitions)
        except KafkaError:
            return  # The consumer looks up the offsets again and raises the error.
        missing = [tp for tp, offset in committed.items() if offset is None]
        if missing and policy != "none":
            where = RESET_TEXTS.get(policy, f"as auto_offset_reset={policy} says")
            self._note(
                f"% group {self._plan.group}: no committed offset for {format_partitions(missing)}:"
                f" starting {where}"
            )

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
            offsets = await consumer.offsets_for_times(dict.fromkeys(selected, start.number))
        for tp in selected:
            first = log_starts[tp]
            match start.kind:
                case OffsetKind.END:
                    first = max(first, log_ends[tp] - start.number)
                case OffsetKind.FROM_TIME:
                    offset = offsets[tp]
                    first = log_ends[tp] if offset is None else offset.offset
                case OffsetKind.OFFSET:
                    first = min(max(first, start.number), log_ends[tp])
                    if start.number > first:
                        self._note(
                            f"% {tp.topic} [{tp.partition}] starts at its end offset {first}"
                        )
            consumer.seek(tp, first)

    async def _find_stop_offsets(
        self, selected: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        if not selected:
            return {}
        stops = await self._consumer.end_offsets(*selected)
        if self._plan.until_ms is not None:
            offsets = await self._consumer.offsets_for_times(
                dict.fromkeys(selected, self._plan.until_ms)
            )
            stops.update({tp: each.offset for tp, each in offsets.items() if each is not None})
        return stops

    # --- poll loop ----------------------------------------------------------------------------

    async def run(self, progress: Progress) -> None:
        """Print records until the plan is complete; forever if it has no end."""
        max_poll_records = self._consumer.config.max_poll_records
        while not (await self._reached_end() or self._remaining == 0):
            limit = (
                max_poll_records
                if self._remaining is None
                else min(max_poll_records, self._remaining)
            )
            fetched = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=limit)
            for tp, records in fetched.items():
                wanted = self._before_stop_offset(tp, records)
                await self._output.write(b"".join(map(self._formatter, wanted)))
                progress.count += len(wanted)
                if self._remaining is not None:
                    self._remaining -= len(wanted)

    def _before_stop_offset(self, tp: TopicPartition, records: Records) -> Records:
        """Return the records before the stop offset; in a group all, because all are committed."""
        stop = self._stop_offsets.get(tp)
        if stop is None or self._plan.group is not None or records.next_offset <= stop:
            return records
        return records[: bisect_left(records.offsets(), stop)]

    async def _reached_end(self) -> bool:
        """Return True if every partition has reached its stop offset; pause those that have."""
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
    """Format partitions by topic: orders [0, 1], refunds [2]."""
    parts = [
        f"{topic} {[tp.partition for tp in tps]}"
        for topic, tps in partitions_by_topic(sorted(partitions)).items()
    ]
    return ", ".join(parts) or "no partitions"


def _missing_topics(topics: Sequence[str], pattern: str | None, known: Sequence[str]) -> list[str]:
    """Return a text for each topic that does not exist, or for a pattern without a match."""
    if pattern is None:
        return [f"topic {name} does not exist" for name in topics if name not in known]
    if any(re.fullmatch(pattern, name) for name in known if name not in INTERNAL_TOPICS):
        return []
    return [f"no topic matches {' '.join(topics)}"]


def topic_pattern(topics: Sequence[str]) -> str | None:
    """Combine topics into one regular expression if any starts with ^; otherwise return None."""
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
