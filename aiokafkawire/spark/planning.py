"""The driver's view of the cluster: which partitions there are, and where they begin and end."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import InvalidOption, KafkaError, UnsupportedVersion
from aiokafkawire.types import TopicPartition

from .offsets import EARLIEST, LATEST, AllAt, AtOffsets, AtTime, Bound, PartitionOffsets
from .options import Assigned, Named, ReadOptions
from .pushdown import EVERYTHING, Narrowing, not_before
from .ranges import OffsetRange, divide

__all__ = ("Planner", "driver_options")

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics of Kafka's own, which no pattern finds."""

API_TIMEOUT_MS = 20_000
"""`kafka.default.api.timeout.ms` on the driver unless given: nothing shows that a query waits for a
broker, and `fetchOffset.numRetries` repeats each call but the first."""

_Found = TypeVar("_Found")


def driver_options(client: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the consumer that plans."""
    patience = {"default_api_timeout_ms": API_TIMEOUT_MS}
    return {**patience, **client, "auto_offset_reset": "none", "allow_auto_create_topics": False}


class Planner:
    """Answers with the help of a consumer, which need have no partition assigned."""

    def __init__(self, consumer: Consumer, options: ReadOptions) -> None:
        self._consumer = consumer
        self._options = options

    async def batch(self, narrowed: Narrowing = EVERYTHING) -> list[OffsetRange]:
        """What the tasks of a batch query read."""
        options = self._options
        partitions = await self.partitions()
        start = await self.resolved(options.starting, partitions, "starting")
        end = await self.resolved(options.ending, partitions, "ending")
        for tp in partitions:
            if start[tp] > end[tp]:
                raise InvalidOption(
                    f"the starting offset {start[tp]} is after the ending offset {end[tp]} for {tp}"
                )
        ranges = narrowed.ranges(OffsetRange(tp, start[tp], end[tp]) for tp in partitions)
        if narrowed.not_before_ms is not None:
            ranges = await self._not_before(narrowed.not_before_ms, ranges)
        return divide(ranges, options.min_partitions, options.max_records_per_partition)

    async def _not_before(self, time_ms: int, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """The ranges without what is certain to be older."""
        partitions = [wanted.topic_partition for wanted in ranges if wanted.size]
        # The order matters: see `not_before`.
        ends = await self.latest(partitions)
        times = dict.fromkeys(partitions, time_ms)
        try:
            known = await self._tried(self._consumer.offsets_for_times, times)
        except UnsupportedVersion:
            return ranges
        starts = await self.earliest(partitions)
        narrower = []
        for wanted in ranges:
            tp = wanted.topic_partition
            if tp in ends:
                found = known[tp]
                first = None if found is None else found.offset
                narrower.append(not_before(wanted, ends[tp], first, starts[tp]))
        return narrower

    async def partitions(self) -> list[TopicPartition]:
        """All that is subscribed to, in order. Raises `UnknownTopic`."""
        source = self._options.source
        if isinstance(source, Assigned):
            return list(source.partitions)
        if isinstance(source, Named):
            topics: Sequence[str] = source.topics
        else:
            pattern = re.compile(source.pattern)
            there = await self._tried(self._consumer.topics)
            topics = [t for t in there if t not in INTERNAL and pattern.search(t)]
        found = []
        for topic in topics:
            numbers = await self._tried(self._consumer.partitions_for, topic)
            found += [TopicPartition(topic, number) for number in numbers]
        return sorted(found)

    async def resolved(
        self, bound: Bound, partitions: Sequence[TopicPartition], side: str
    ) -> PartitionOffsets:
        """The offset of each partition that a bound stands for; `side` is starting or ending.

        Raises `InvalidOption` if it names other partitions than there are, or a time that is after
        the last record.
        """
        if isinstance(bound, AllAt):
            wanted = dict.fromkeys(partitions, bound.offset)
        elif isinstance(bound, AtOffsets):
            _check_same(bound.offsets, partitions, f"{side}Offsets")
            wanted = dict(bound.offsets)
        else:
            if isinstance(bound, AtTime):
                times = dict.fromkeys(partitions, bound.time_ms)
            else:
                _check_same(bound.times_ms, partitions, f"{side}OffsetsByTimestamp")
                times = dict(bound.times_ms)
            wanted = await self._at_times(times, side)
        first = await self.earliest([tp for tp, offset in wanted.items() if offset == EARLIEST])
        last = await self.latest([tp for tp, offset in wanted.items() if offset == LATEST])
        return {**wanted, **first, **last}

    async def earliest(self, partitions: Sequence[TopicPartition]) -> PartitionOffsets:
        """The first offset that each has."""
        return await self._asked(self._consumer.beginning_offsets, partitions)

    async def latest(self, partitions: Sequence[TopicPartition]) -> PartitionOffsets:
        """Where each ends, for the isolation level of the query."""
        return await self._asked(self._consumer.end_offsets, partitions)

    async def _asked(
        self,
        ask: Callable[..., Awaitable[PartitionOffsets]],
        partitions: Sequence[TopicPartition],
    ) -> PartitionOffsets:
        return await self._tried(ask, *partitions) if partitions else {}

    async def _at_times(
        self, times_ms: Mapping[TopicPartition, int], side: str
    ) -> PartitionOffsets:
        found = await self._tried(self._consumer.offsets_for_times, times_ms)
        offsets = {}
        for tp, known in found.items():
            if known is not None:
                offsets[tp] = known.offset
            elif side == "ending" or self._options.latest_if_no_record_is_so_young:
                offsets[tp] = LATEST
            else:
                raise InvalidOption(
                    f"no offset of {tp} matches the timestamp {times_ms[tp]}: all its records are"
                    " older. Set startingOffsetsByTimestampStrategy to latest to begin at the end"
                )
        return offsets

    async def _tried(self, ask: Callable[..., Awaitable[_Found]], *arguments: Any) -> _Found:
        """What the cluster answers, asked again after what may pass."""
        left = self._options.lookup_retries
        while True:
            try:
                return await ask(*arguments)
            except KafkaError as error:
                if not error.retriable or left <= 0:
                    raise
            left -= 1
            await anyio.sleep(self._options.lookup_retry_interval_ms / 1000)


def _check_same(
    named: Mapping[TopicPartition, int], there: Sequence[TopicPartition], what: str
) -> None:
    if set(named) != set(there):
        raise InvalidOption(
            f"{what} must name all partitions that are read, and no others (-1 for latest, -2 for"
            f" earliest). Named: {_listed(named)}. Read: {_listed(there)}"
        )


def _listed(partitions: Mapping[TopicPartition, int] | Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"
