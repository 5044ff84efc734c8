"""Look-up of partitions and offsets on the driver, and the plan of a batch query."""

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
"""Internal topics of Kafka, which `subscribePattern` does not match."""

API_TIMEOUT_MS = 20_000
"""Default of `kafka.default.api.timeout.ms` on the driver.

It is shorter than the client's own, because Spark does not show that a query waits for a broker,
and `fetchOffset.numRetries` repeats each call except the start of the client."""

_T = TypeVar("_T")


def driver_options(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return the consumer options of the driver."""
    timeouts = {"default_api_timeout_ms": API_TIMEOUT_MS}
    return {**timeouts, **client, "auto_offset_reset": "none", "allow_auto_create_topics": False}


class OffsetReader:
    """A reader of partitions and offsets, like the class `KafkaOffsetReader` of Spark's connector.

    The consumer needs no assigned partition.
    """

    def __init__(self, consumer: Consumer, options: ReadOptions) -> None:
        self._consumer = consumer
        self._options = options

    async def plan_batch(self, pushed: PushedFilters = NO_FILTERS) -> list[OffsetRange]:
        """Return the offset range of each task of a batch query.

        Raises:
            InvalidOption: A starting offset is after the ending offset, or see `resolve_offsets`.
            UnknownTopic: A topic or partition does not exist.
        """
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
        """Skip records that are certain to be older, if the brokers support ListOffsets v1+."""
        partitions = [offset_range.topic_partition for offset_range in ranges if offset_range.size]
        # The order of the requests matters; see `apply_min_timestamp`.
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
                record = records[tp]
                first = None if record is None else record.offset
                narrower.append(apply_min_timestamp(offset_range, ends[tp], first, starts[tp]))
        return narrower

    async def fetch_partitions(self) -> list[TopicPartition]:
        """Return the partitions to read, sorted.

        Raises:
            UnknownTopic: A subscribed topic does not exist.
        """
        strategy = self._options.consumer_strategy
        if isinstance(strategy, AssignStrategy):
            return list(strategy.partitions)
        if isinstance(strategy, SubscribeStrategy):
            topics: Sequence[str] = strategy.topics
        else:
            pattern = re.compile(strategy.pattern)
            all_topics = await self._retry(self._consumer.topics)
            topics = [
                topic
                for topic in all_topics
                if topic not in INTERNAL_TOPICS and pattern.search(topic)
            ]
        partitions = []
        for topic in topics:
            numbers = await self._retry(self._consumer.partitions_for, topic)
            partitions += [TopicPartition(topic, number) for number in numbers]
        return sorted(partitions)

    async def resolve_offsets(
        self, limit: OffsetRangeLimit, partitions: Sequence[TopicPartition], side: str
    ) -> PartitionOffsets:
        """Return the offset of each partition for a starting or ending limit.

        Args:
            limit: The value of the option.
            partitions: The partitions that the query reads.
            side: "starting" or "ending".

        Raises:
            InvalidOption: The option does not name exactly `partitions`, or no record has the
                timestamp or a later one.
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
        """Return the log start offset of each partition."""
        return await self._query(self._consumer.beginning_offsets, partitions)

    async def fetch_latest(self, partitions: Sequence[TopicPartition]) -> PartitionOffsets:
        """Return the end offset of each partition for the query's isolation level."""
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
        matches = await self._retry(self._consumer.offsets_for_times, timestamps_ms)
        offsets = {}
        for tp, match in matches.items():
            if match is not None:
                offsets[tp] = match.offset
            elif side == "ending" or self._options.latest_if_no_matching_timestamp:
                offsets[tp] = LATEST
            else:
                raise InvalidOption(
                    f"no offset of {tp} matches the timestamp {timestamps_ms[tp]}: all its records"
                    " are older. Set startingOffsetsByTimestampStrategy to latest to start at the"
                    " end"
                )
        return offsets

    async def _retry(self, call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
        """Await a call, and repeat it after retriable errors (`fetchOffset.numRetries`)."""
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
