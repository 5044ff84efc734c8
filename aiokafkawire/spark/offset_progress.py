"""The offsets of a stream on the driver: start, end and plan of each micro-batch."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

import anyio

from aiokafkawire import blocking
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError, UnknownTopic
from aiokafkawire.types import TopicPartition

from .clients import start_client
from .limits import TriggerDelay, rate_limit
from .offset_reader import OffsetReader, driver_options
from .offsets import PartitionOffsets, SpecificOffsetRangeLimit, from_nested, to_nested
from .option_names import reword_errors
from .options import ReadOptions
from .ranges import OffsetRange, split_ranges

__all__ = ("INITIAL", "OffsetProgress")

logger = logging.getLogger("aiokafkawire.spark")

INITIAL = "#initial"
"""Key of the starting offsets within the end offset of a stream's first batch.

Spark does not store the initial offset, and calls `initialOffset` again when it repeats the first
batch. No topic can have this name."""

IDLE_POLL_MS = 1_000
"""The time that `latestOffset` of an idle stream waits for new records.

Without the wait, Spark calls it about a hundred times a second."""

IDLE_FETCH_MAX_WAIT_MS = 5_000
"""`fetch_max_wait_ms` of an idle stream."""

IDLE_FETCH_BYTES = 1_024
"""`max_partition_fetch_bytes` of an idle stream, which only detects new records."""

IDLE_REFRESH_S = 30.0
"""Interval at which an idle stream looks up end offsets. A fetch returns no records for a new
partition or a transaction marker."""

TRIGGER_DELAY_POLL_S = 0.2
"""Pause between look-ups while a stream waits for `minOffsetsPerTrigger`."""

COMMIT_TIMEOUT_S = 5.0
"""Timeout of an offset commit."""

Offsets = dict[str, Any]
"""Offsets in Spark's Python API: by topic and partition, and optionally those under `INITIAL`."""


class OffsetProgress:
    """The offsets of one stream. Methods block; use them from one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._consumer = Consumer(**_consumer_options(options))
        self._offset_reader = OffsetReader(self._consumer, options)
        self._delay = None
        if options.min_offsets_per_trigger is not None:
            delay_s = options.max_trigger_delay_ms / 1000
            self._delay = TriggerDelay(options.min_offsets_per_trigger, delay_s)
        self._initial_offset: Offsets | None = None
        self._fixed_end: PartitionOffsets | None = None
        self._idle_end_offsets: PartitionOffsets | None = None
        """End offsets at which the consumer waits for new records; None for an active stream."""
        self._idle_since = 0.0
        self._committed_offsets: PartitionOffsets = {}
        self.latest_offsets: PartitionOffsets = {}
        start_client(self._consumer)
        blocking.call(self._start_unassigned)

    async def _start_unassigned(self) -> None:
        self._consumer.assign()
        blocking.at_exit(self._consumer.stop)

    def initial_offset(self) -> Offsets:
        """Return the starting offsets of a stream without a checkpoint; each call the same."""
        if self._initial_offset is None:
            with reword_errors():
                self._initial_offset = to_nested(blocking.call(self._resolve_starting_offsets))
        return self._initial_offset

    async def _resolve_starting_offsets(self) -> PartitionOffsets:
        partitions = await self._offset_reader.fetch_partitions()
        return await self._offset_reader.resolve_offsets(
            self._options.starting_offsets, partitions, "starting"
        )

    def prepare_for_available_now(self) -> None:
        """Fix the end of the stream at the current end offsets (`Trigger.AvailableNow`)."""
        with reword_errors():
            self._fixed_end = blocking.call(self._fetch_ends)

    @property
    def has_fixed_end(self) -> bool:
        return self._fixed_end is not None

    def latest_offset(
        self, start: Offsets, max_rows: int | None, *, ignore_limits: bool
    ) -> Offsets:
        """Return the end offset of the batch after `start`, or `start` if there is nothing new.

        Commits `start` for the consumer group.

        Args:
            start: The end offset of the previous batch.
            max_rows: `maxOffsetsPerTrigger`, or None for no limit.
            ignore_limits: Ignore `max_rows` and `minOffsetsPerTrigger`.

        Raises:
            UnknownTopic: A topic does not exist, or no longer.
        """
        start_offsets = _parse_offsets(start)
        self.commit(start)
        with reword_errors():
            try:
                end = blocking.call(self._next_end, start_offsets, max_rows, ignore_limits)
            except UnknownTopic as error:
                _explain_deleted_topic(error, start_offsets)
                raise
        if start == self._initial_offset and not _starts_at_fixed_offsets(self._options):
            # Also if there are no records: Spark then runs an empty batch.
            return {INITIAL: start, **to_nested(end)}
        return start if end == start_offsets else to_nested(end)

    async def _next_end(
        self, start: PartitionOffsets, max_rows: int | None, ignore_limits: bool
    ) -> PartitionOffsets:
        latest = await self._latest_ends(start) if self._fixed_end is None else self._fixed_end
        self.latest_offsets = latest
        if ignore_limits or latest == start:
            return latest
        unknown = [tp for tp in latest if tp not in start]
        known_starts = start | await self._offset_reader.fetch_earliest(unknown)
        if self._delay is not None and self._fixed_end is None:
            available = sum(end - known_starts[tp] for tp, end in latest.items())
            if self._delay.should_wait(available, time.monotonic()):
                await anyio.sleep(TRIGGER_DELAY_POLL_S)
                return start
        return latest if max_rows is None else rate_limit(max_rows, known_starts, latest)

    async def _latest_ends(self, start: PartitionOffsets) -> PartitionOffsets:
        """Return the end offsets; an idle stream waits up to `IDLE_POLL_MS` for new records."""
        is_idle = (
            self._idle_end_offsets == start and time.monotonic() - self._idle_since < IDLE_REFRESH_S
        )
        if is_idle and not await self._must_fetch_ends() and await self._knows_topics(start):
            return start
        latest = await self._fetch_ends()
        if latest == start:
            self._wait_at_end(latest)
        else:
            self._idle_end_offsets = None
            self._consumer.assign()
        return latest

    async def _fetch_ends(self) -> PartitionOffsets:
        return await self._offset_reader.fetch_latest(await self._offset_reader.fetch_partitions())

    def _wait_at_end(self, ends: PartitionOffsets) -> None:
        """Start to fetch from these offsets, so that brokers respond to new records at once."""
        self._idle_since = time.monotonic()
        if self._idle_end_offsets == ends:
            return
        self._idle_end_offsets = dict(ends)
        self._consumer.assign(*ends)
        for tp, offset in ends.items():
            self._consumer.seek(tp, offset)

    async def _must_fetch_ends(self) -> bool:
        """Return True if there are new records, or fetching them failed.

        The records are dropped: the readers of the batch fetch them again.
        """
        try:
            return bool(await self._consumer.getmany(timeout_ms=IDLE_POLL_MS, max_records=1))
        except KafkaError as error:
            # The log was truncated or the topic deleted; the next look-up of ends shows which.
            logger.debug("Looking up end offsets after a failed fetch: %r", error)
            self._idle_end_offsets = None
            return True

    async def _knows_topics(self, partitions: PartitionOffsets) -> bool:
        """Return whether the metadata has all these topics. Sends no request if it has."""
        try:
            for topic in {tp.topic for tp in partitions}:
                await self._consumer.partitions_for(topic)
        except KafkaError:
            return False
        return True

    def plan_ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Return the offset range of each task of a batch; a repeated batch gets the same ranges.

        Raises:
            KafkaError: Records may be lost, and `failOnDataLoss` is true.
        """
        until = _parse_offsets(end)
        with reword_errors():
            return blocking.call(self._plan_ranges, _parse_offsets(end.get(INITIAL, start)), until)

    async def _plan_ranges(
        self, start: PartitionOffsets, end: PartitionOffsets
    ) -> list[OffsetRange]:
        new = [tp for tp in end if tp not in start]
        first = await self._offset_reader.fetch_earliest(new)
        for tp, offset in first.items():
            if offset:
                self._report_data_loss(
                    tp,
                    f"the new partition starts at offset {offset} instead of 0",
                    skipped=f"the {offset} offsets before it",
                )
        for tp, offset in start.items():
            if tp not in end:
                self._report_data_loss(
                    tp,
                    "the partition no longer exists, or the query does not read it (does the"
                    " checkpoint belong to another query?)",
                    skipped=f"all offsets from {offset} on",
                )
        await self._check_ends(start, end)
        start = start | first
        ranges = [OffsetRange(tp, start[tp], offset) for tp, offset in end.items()]
        options = self._options
        return split_ranges(ranges, options.min_partitions, options.max_records_per_partition)

    async def _check_ends(self, start: PartitionOffsets, end: PartitionOffsets) -> None:
        """Report partitions whose log ends before the stream's position."""
        shrunk = [tp for tp, offset in end.items() if offset < start.get(tp, 0)]
        for tp, first in (await self._offset_reader.fetch_earliest(shrunk)).items():
            before, now = start[tp], end[tp]
            self._report_data_loss(
                tp,
                f"the log end offset changed from {before} to {now}: the topic was deleted and"
                " recreated, or the log was truncated",
                skipped=f"the {max(now - first, 0)} offsets of the log before {now}",
            )

    def _report_data_loss(self, tp: TopicPartition, what: str, *, skipped: str) -> None:
        if self._options.fail_on_data_loss:
            raise KafkaError(
                f"records may be lost: {what}. With failOnDataLoss=false the query continues and"
                f" skips {skipped}; a new checkpoint reads the topic from startingOffsets",
                topic=tp.topic,
                partition=tp.partition,
            )
        logger.warning("%s: records may be lost: %s; skipping %s", tp, what, skipped)

    def commit(self, done: Offsets) -> None:
        """Commit the offsets of finished batches for `kafka.group.id`, if it is set.

        A failure is only logged, because the stream continues from its checkpoint.
        """
        offsets = _parse_offsets(done)
        if self._options.group_id is None or offsets == self._committed_offsets or not offsets:
            return
        try:
            blocking.call(self._commit, offsets)
        except (KafkaError, TimeoutError) as error:
            logger.warning(
                "Group %s: offset commit failed (the checkpoint is not affected): %r",
                self._options.group_id,
                error,
            )
        else:
            self._committed_offsets = offsets

    async def _commit(self, offsets: PartitionOffsets) -> None:
        with anyio.fail_after(COMMIT_TIMEOUT_S):
            await self._consumer.commit(dict(offsets))


def _explain_deleted_topic(error: UnknownTopic, known: PartitionOffsets) -> None:
    """Name the stream's offsets in the error if it has read the topic before."""
    offsets = {str(tp.partition): at for tp, at in sorted(known.items()) if tp.topic == error.topic}
    if offsets:
        error.reason = (
            f"topic {error.topic!r} was deleted while a stream reads it; the stream had reached"
            f" offsets {json.dumps(offsets)}. Stop the stream or correct its options. If the topic"
            " is recreated, start with a new checkpoint to read it from its beginning"
        )


def _consumer_options(options: ReadOptions) -> dict[str, Any]:
    client: Mapping[str, Any] = options.client
    group: Mapping[str, Any] = {}
    if options.group_id is not None:
        group = {"group_id": options.group_id, "enable_auto_commit": False}
    return {
        **driver_options(client),
        **group,
        "fetch_max_wait_ms": min(
            IDLE_FETCH_MAX_WAIT_MS, client.get("request_timeout_ms", 30_000) // 2
        ),
        "fetch_min_bytes": 1,
        "max_partition_fetch_bytes": IDLE_FETCH_BYTES,
    }


def _parse_offsets(offsets: Offsets) -> PartitionOffsets:
    if isinstance(offsets, dict):
        offsets = {topic: known for topic, known in offsets.items() if topic != INITIAL}
    return from_nested(offsets, "a stream's offset (does the checkpoint belong to another query?)")


def _starts_at_fixed_offsets(options: ReadOptions) -> bool:
    """Return whether `startingOffsets` has only explicit offsets, so that no look-up is needed."""
    starting = options.starting_offsets
    return (
        isinstance(starting, SpecificOffsetRangeLimit)
        and min(starting.offsets.values(), default=0) >= 0
    )
