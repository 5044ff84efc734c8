"""One range of one partition, exactly, from within a Spark task."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from aiokafkawire import blocking
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError, NoOffset, RequestTimedOut
from aiokafkawire.records import Records

from .clients import borrow_client
from .ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow

__all__ = ("RangeReader", "read_range", "task_options")

logger = logging.getLogger("aiokafkawire.spark")

MAX_BATCH_ROWS = 10_000
"""The most rows of one Arrow batch: what the way to the JVM likes best."""

PREFETCHED_BATCHES = 2
"""So many are decoded while Spark takes the one before."""

POLL_MS = 50
"""So long a range waits for records before it looks whether it has come to its end without any:
markers of transactions and offsets that were compacted away are no records."""

POLLS_PER_END_CHECK = 10
"""So often it looks before it asks whether the log has come to its end."""

FETCH_MAX_WAIT_MS = 1
"""How long a broker may keep a fetch. What a range has is there; what is asked for ahead, behind
its end, may not be, and the next range of this process would wait for the answer."""

FIXED_TASK_OPTIONS = {"auto_offset_reset": "none", "allow_auto_create_topics": False}


def task_options(client: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the consumers that read ranges."""
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
    """The records of a range as Spark's columns, in batches of at most `MAX_BATCH_ROWS`.

    Blocks. Raises `KafkaError` for offsets that the log has not any more, unless
    `fail_on_data_loss` is off, and `RequestTimedOut` after `poll_timeout_ms` without any progress.
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
    """Reads one range with a consumer that nobody else uses meanwhile."""

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
        """All records of the range, in order. To be called once."""
        tp, _, end = self._offset_range
        self._last_progress = anyio.current_time()
        self._consumer.assign(tp)
        self._consumer.seek(tp, self._position)
        try:
            while self._position < end:
                try:
                    records = await self._poll()
                except NoOffset:
                    await self._report_data_loss()
                    continue
                if self._position >= end:
                    # Also while Spark takes its time with these, nothing more is to be fetched.
                    self._consumer.assign()
                if records is not None and len(records):
                    yield records
        finally:
            # Nobody wants more.
            self._consumer.assign()

    async def _poll(self) -> Records | None:
        tp, _, end = self._offset_range
        found = await self._consumer.getmany(tp, timeout_ms=POLL_MS, max_records=MAX_BATCH_ROWS)
        records = found.get(tp)
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
        """Nothing came: has the log ended before the range, or does the broker not answer?"""
        self._empty_polls += 1
        if self._empty_polls % POLLS_PER_END_CHECK:
            return
        tp = self._offset_range.topic_partition
        log_end = (await self._consumer.end_offsets(tp))[tp]
        if self._position >= log_end:
            await self._report_data_loss()
        elif anyio.current_time() - self._last_progress > self._poll_timeout_s:
            raise RequestTimedOut(
                f"nothing came for {self._poll_timeout_s:g} s of a range that ends at"
                f" {self._offset_range.end}, though the log ends at {log_end}",
                topic=tp.topic,
                partition=tp.partition,
                offset=self._position,
            )

    async def _report_data_loss(self) -> None:
        """The log has not, or not any more, what is to be read next."""
        tp, start, end = self._offset_range
        first = (await self._consumer.beginning_offsets(tp))[tp]
        log_end = (await self._consumer.end_offsets(tp))[tp]
        if first <= self._position < log_end:
            # It was there all the same: the answers were of different moments.
            self._consumer.seek(tp, self._position)
            return
        reason = f"the log has offsets {first} to {log_end} only, of the {start} to {end} to read"
        resume_offset = min(first, end) if self._position < first else end
        skipped = f"{resume_offset - self._position} offsets ({self._position} to {resume_offset})"
        if self._fail_on_data_loss:
            raise KafkaError(
                f"records may be lost: {reason}. They may have been deleted by age or size, or the"
                " topic was deleted and made again. With failOnDataLoss false the query goes on,"
                f" without {skipped}",
                topic=tp.topic,
                partition=tp.partition,
                offset=self._position,
            )
        logger.warning("%s: records may be lost: %s; skipping %s", tp, reason, skipped)
        self._advance_to(resume_offset)
        if self._position < end:
            self._consumer.seek(tp, self._position)


def _truncate(records: Records, end: int) -> Records:
    """Those of offsets below `end`."""
    last = records.last_offset
    if last is None or last < end:
        return records
    return records[: sum(offset < end for offset in records.offsets())]
