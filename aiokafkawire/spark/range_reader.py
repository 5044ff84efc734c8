"""Reading of exactly one offset range of one partition in a Spark task."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from aiokafkawire import blocking
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError, NoOffsetForPartition, RequestTimedOut
from aiokafkawire.records import Records

from .clients import borrow_client
from .ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow

__all__ = ("RangeReader", "read_range", "task_options")

logger = logging.getLogger("aiokafkawire.spark")

MAX_BATCH_ROWS = 10_000
"""The most rows in one Arrow batch; this size passes to the JVM fastest."""

PREFETCHED_BATCHES = 2
"""Batches that are decoded ahead while Spark processes the current one."""

POLL_MS = 50
"""Timeout of one poll. After an empty poll, check the position: transaction markers and compacted
offsets move it without returning records."""

POLLS_PER_END_CHECK = 10
"""Consecutive empty polls before the log end offset is looked up."""

FETCH_MAX_WAIT_MS = 1
"""`fetch_max_wait_ms` of tasks. The records of a range are already in the log. A prefetch beyond
its end may find nothing, and the next range of this process would have to wait for the response."""

FIXED_TASK_OPTIONS = {"auto_offset_reset": "none", "allow_auto_create_topics": False}


def task_options(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return the consumer options of tasks."""
    return {
        "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
        **client,
        **FIXED_TASK_OPTIONS,
        "max_poll_records": MAX_BATCH_ROWS,
    }


def read_range(
    client: Mapping[str, Any],
    offset_range: OffsetRange,
    columns: Sequence[str],
    *,
    fail_on_data_loss: bool,
    poll_timeout_ms: int,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the records of a range as Spark's columns, in batches of at most `MAX_BATCH_ROWS`.

    Blocks.

    Args:
        client: Arguments of `Consumer`.
        offset_range: The offsets to read.
        columns: Names of the columns, in order.
        fail_on_data_loss: Fail if the log no longer has an offset; if false, log and skip it.
        poll_timeout_ms: The longest time without progress.

    Raises:
        KafkaError: The log does not have all offsets of the range.
        RequestTimedOut: No progress within `poll_timeout_ms`.
    """
    from .columns import to_spark_columns  # noqa: PLC0415 - pyarrow takes long to import

    with borrow_client(Consumer, task_options(client)) as consumer:
        reader = RangeReader(
            consumer,
            offset_range,
            fail_on_data_loss=fail_on_data_loss,
            poll_timeout_ms=poll_timeout_ms,
        )
        for records in blocking.iterate(reader.records(), PREFETCHED_BATCHES):
            yield to_spark_columns(records, columns)


class RangeReader:
    """A reader of one range, with exclusive use of a consumer."""

    def __init__(
        self,
        consumer: Consumer,
        offset_range: OffsetRange,
        *,
        fail_on_data_loss: bool,
        poll_timeout_ms: int,
    ) -> None:
        self._consumer = consumer
        self._offset_range = offset_range
        self._fail_on_data_loss = fail_on_data_loss
        self._poll_timeout_s = poll_timeout_ms / 1000
        self._position = offset_range.start
        self._empty_polls = 0
        self._last_progress = 0.0

    async def records(self) -> AsyncGenerator[Records, None]:
        """Yield all records of the range, in order. Call once."""
        tp, _, end = self._offset_range
        self._last_progress = anyio.current_time()
        self._consumer.assign(tp)
        self._consumer.seek(tp, self._position)
        try:
            while self._position < end:
                try:
                    records = await self._poll()
                except NoOffsetForPartition:
                    await self._report_data_loss()
                    continue
                if self._position >= end:
                    # Stop fetching now: Spark may take long to process these records.
                    self._consumer.assign()
                if records is not None and len(records):
                    yield records
        finally:
            # Stop fetching.
            self._consumer.assign()

    async def _poll(self) -> Records | None:
        tp, _, end = self._offset_range
        records_by_partition = await self._consumer.getmany(
            tp, timeout_ms=POLL_MS, max_records=MAX_BATCH_ROWS
        )
        records = records_by_partition.get(tp)
        if records is not None:
            self._advance_to(records.next_offset)
            return _truncate(records, end)
        if (position := await self._consumer.position(tp)) > self._position:
            self._advance_to(position)
        else:
            await self._check_log_end()
        return None

    def _advance_to(self, position: int) -> None:
        self._position = position
        self._empty_polls = 0
        self._last_progress = anyio.current_time()

    async def _check_log_end(self) -> None:
        """After empty polls, detect a log that ends before the range and a broker that is stuck."""
        self._empty_polls += 1
        if self._empty_polls % POLLS_PER_END_CHECK:
            return
        tp = self._offset_range.topic_partition
        log_end = (await self._consumer.end_offsets(tp))[tp]
        if self._position >= log_end:
            await self._report_data_loss()
        elif anyio.current_time() - self._last_progress > self._poll_timeout_s:
            raise RequestTimedOut(
                f"no progress for {self._poll_timeout_s:g} s in a range that ends at"
                f" {self._offset_range.end}, although the log ends at {log_end}: check the broker,"
                " or raise kafkaConsumer.pollTimeoutMs",
                topic=tp.topic,
                partition=tp.partition,
                offset=self._position,
            )

    async def _report_data_loss(self) -> None:
        """Handle offsets that the log does not have: fail, or skip them with a warning."""
        tp, start, end = self._offset_range
        first = (await self._consumer.beginning_offsets(tp))[tp]
        log_end = (await self._consumer.end_offsets(tp))[tp]
        if first <= self._position < log_end:
            # The offset exists after all: the log changed between the requests.
            self._consumer.seek(tp, self._position)
            return
        reason = f"the log has only offsets {first} to {log_end}, but the range is {start} to {end}"
        resume_offset = min(first, end) if self._position < first else end
        skipped = f"{resume_offset - self._position} offsets ({self._position} to {resume_offset})"
        if self._fail_on_data_loss:
            raise KafkaError(
                f"records may be lost: {reason}. Retention may have deleted them, or the topic was"
                " deleted and recreated. With failOnDataLoss=false the query continues and skips"
                f" {skipped}",
                topic=tp.topic,
                partition=tp.partition,
                offset=self._position,
            )
        logger.warning("%s: records may be lost: %s; skipping %s", tp, reason, skipped)
        self._advance_to(resume_offset)
        if self._position < end:
            self._consumer.seek(tp, self._position)


def _truncate(records: Records, end: int) -> Records:
    """Return the records with offsets below `end`."""
    last = records.last_offset
    if last is None or last < end:
        return records
    return records[: sum(offset < end for offset in records.offsets())]
