"""The driver's view of the cluster: which partitions there are, and where they begin and end."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import InvalidOption, KafkaError, UnsupportedVersion
from aiokafkawire.types import TopicPartition

from .offsets import (
    EARLIEST,
    LATEST,
    GlobalOffsetRangeLimit,
    GlobalTimestampRangeLimit,
    OffsetRangeLimit,
    PartitionOffsets,
    SpecificOffsetRangeLimit,
)
from .options import AssignStrategy, ReadOptions, SubscribeStrategy
from .pushdown import NO_FILTERS, PushedFilters, apply_min_timestamp
from .ranges import OffsetRange, split_ranges

__all__ = ("OffsetReader", "driver_options")

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics of Kafka's own, which no pattern finds."""

API_TIMEOUT_MS = 20_000
"""`kafka.default.api.timeout.ms` on the driver unless given: nothing shows that a query waits for a
broker, and `fetchOffset.numRetries` repeats each call but the first."""

_T = TypeVar("_T")


def driver_options(client: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the consumer that plans."""
    timeouts = {"default_api_timeout_ms": API_TIMEOUT_MS}
    return {**timeouts, **client, "auto_offset_reset": "none", "allow_auto_create_topics": False}


class OffsetReader:
    """Answers with the help of a consumer, which need have no partition assigned."""

    def __init__(self, consumer: Consumer, options: ReadOptions) -> None:
        self._consumer = consumer
        self._options = options

    async def plan_batch(self, pushed: PushedFilters = NO_FILTERS) -> list[OffsetRange]:
        """What the tasks of a batch query read."""
        options = self._options
        partitions = await self.fetch_partitions()
        start = await self.resolve_offsets(options.starting_offsets, partitions, "starting")
        end = await self.resolve_offsets(options.ending_offsets, partitions, "ending")
        for tp in partitions:
            if start[tp] > end[tp]:
                raise InvalidOption(
                    f"the starting offset {start[tp]} is after the ending offset {end[tp]} for {tp}"
                )
        ranges = pushed.apply(OffsetRange(tp, start[tp], end[tp]) for tp in partitions)
        if pushed.min_timestamp_ms is not None:
            ranges = await self._apply_min_timestamp(pushed.min_timestamp_ms, ranges)
        return split_ranges(ranges, options.min_partitions, options.max_records_per_partition)

    async def _apply_min_timestamp(
        self, min_timestamp_ms: int, ranges: list[OffsetRange]
    ) -> list[OffsetRange]:
        """The ranges without what is certain to be older."""
        partitions = [offset_range.topic_partition for offset_range in ranges if offset_range.size]
        # The order matters: see `apply_min_timestamp`.
        ends = await self.fetch_latest(partitions)
        times = dict.fromkeys(partitions, min_timestamp_ms)
        try:
            records = await self._retry(self._consumer.offsets_for_times, times)
        except UnsupportedVersion:
            return ranges
        starts = await self.fetch_earliest(partitions)
        narrower = []
        for offset_range in ranges:
            tp = offset_range.topic_partition
            if tp in ends:
                found = records[tp]
                first = None if found is None else found.offset
                narrower.append(apply_min_timestamp(offset_range, ends[tp], first, starts[tp]))
        return narrower

    async def fetch_partitions(self) -> list[TopicPartition]:
        """All that is subscribed to, in order. Raises `UnknownTopic`."""
        strategy = self._options.consumer_strategy
        if isinstance(strategy, AssignStrategy):
            return list(strategy.partitions)
        if isinstance(strategy, SubscribeStrategy):
            topics: Sequence[str] = strategy.topics
        else:
            pattern = re.compile(strategy.pattern)
            all_topics = await self._retry(self._consumer.topics)
            topics = [t for t in all_topics if t not in INTERNAL_TOPICS and pattern.search(t)]
        found = []
        for topic in topics:
            numbers = await self._retry(self._consumer.partitions_for, topic)
            found += [TopicPartition(topic, number) for number in numbers]
        return sorted(found)

    async def resolve_offsets(
        self, limit: OffsetRangeLimit, partitions: Sequence[TopicPartition], side: str
    ) -> PartitionOffsets:
        """The offset of each partition that a limit stands for; `side` is starting or ending.

        Raises `InvalidOption` if it names other partitions than there are, or a time that is after
        the last record.
        """
        if isinstance(limit, GlobalOffsetRangeLimit):
            offsets = dict.fromkeys(partitions, limit.offset)
        elif isinstance(limit, SpecificOffsetRangeLimit):
            _verify_partitions(limit.offsets, partitions, f"{side}Offsets")
            offsets = dict(limit.offsets)
        else:
            if isinstance(limit, GlobalTimestampRangeLimit):
                times = dict.fromkeys(partitions, limit.timestamp_ms)
            else:
                _verify_partitions(limit.timestamps_ms, partitions, f"{side}OffsetsByTimestamp")
                times = dict(limit.timestamps_ms)
            offsets = await self._offsets_for_timestamps(times, side)
        first = await self.fetch_earliest(
            [tp for tp, offset in offsets.items() if offset == EARLIEST]
        )
        last = await self.fetch_latest([tp for tp, offset in offsets.items() if offset == LATEST])
        return {**offsets, **first, **last}

    async def fetch_earliest(self, partitions: Sequence[TopicPartition]) -> PartitionOffsets:
        """The first offset that each has."""
        return await self._query(self._consumer.beginning_offsets, partitions)

    async def fetch_latest(self, partitions: Sequence[TopicPartition]) -> PartitionOffsets:
        """Where each ends, for the isolation level of the query."""
        return await self._query(self._consumer.end_offsets, partitions)

    async def _query(
        self,
        call: Callable[..., Awaitable[PartitionOffsets]],
        partitions: Sequence[TopicPartition],
    ) -> PartitionOffsets:
        return await self._retry(call, *partitions) if partitions else {}

    async def _offsets_for_timestamps(
        self, timestamps_ms: Mapping[TopicPartition, int], side: str
    ) -> PartitionOffsets:
        found = await self._retry(self._consumer.offsets_for_times, timestamps_ms)
        offsets = {}
        for tp, known in found.items():
            if known is not None:
                offsets[tp] = known.offset
            elif side == "ending" or self._options.latest_if_no_matching_timestamp:
                offsets[tp] = LATEST
            else:
                raise InvalidOption(
                    f"no offset of {tp} matches the timestamp {timestamps_ms[tp]}: all its records"
                    " are older. Set startingOffsetsByTimestampStrategy to latest to begin at the"
                    " end"
                )
        return offsets

    async def _retry(self, call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
        """What the cluster answers, asked again after what may pass."""
        retries_left = self._options.fetch_offset_num_retries
        while True:
            try:
                return await call(*arguments)
            except KafkaError as error:
                if not error.retriable or retries_left <= 0:
                    raise
            retries_left -= 1
            await anyio.sleep(self._options.fetch_offset_retry_interval_ms / 1000)


def _verify_partitions(
    named: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition], what: str
) -> None:
    if set(named) != set(partitions):
        raise InvalidOption(
            f"{what} must name all partitions that are read, and no others (-1 for latest, -2 for"
            f" earliest). Named: {_list_partitions(named)}. Read: {_list_partitions(partitions)}"
        )


def _list_partitions(partitions: Mapping[TopicPartition, int] | Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"
