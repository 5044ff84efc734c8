"""Fetched records of one partition: the position, and which records are processed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from aiokafkawire.logs import log_fields
from aiokafkawire.records import FetchedBatches, FetchedRange, Record, Records
from aiokafkawire.types import NO_LEADER_EPOCH

from .batch_queue import BatchQueue
from .record_cursor import CURSOR_RECORDS, RecordCursor

__all__ = ("MAX_CALLERS", "BufferCursor", "FetchBuffer", "UnprocessedRange")

logger = logging.getLogger("aiokafkawire.consumer")

MAX_CALLERS = 1_000
"""The most tasks that are tracked per partition while they process records."""

TAKE_BYTES = 2 * 1024 * 1024
"""Bytes of batches decoded per call: a few milliseconds of the event loop's time."""


class UnprocessedRange:
    """Records delivered to one caller, unprocessed until it calls again.

    `start` is the offset of the first of them.
    """

    __slots__ = ("start",)

    def __init__(self, start: int) -> None:
        self.start = start


class BufferCursor(RecordCursor[Record[Any, Any]]):
    """Delivers the decoded records of a buffer. `unprocessed` moves with its position."""

    __slots__ = ("unprocessed",)

    def __init__(self, records: Sequence[Record[Any, Any]], unprocessed: UnprocessedRange) -> None:
        super().__init__(records)
        self.unprocessed = unprocessed


class FetchBuffer(BatchQueue):
    """Fetched batches of one partition, and the position of the application in them.

    A seek creates a new buffer, so that a response to an older fetch cannot reach it.

    Attributes:
        fetch_offset: Offset of the next record to fetch.
        last_fetched_epoch: Leader epoch of the record before `fetch_offset`, or -1.
    """

    __slots__ = (
        "_cursor",
        "_decoded",
        "_delivered_range",
        "_leader_epoch",
        "_position",
        "_synced_count",
        "_unprocessed",
        "fetch_offset",
        "last_fetched_epoch",
    )

    def __init__(self, position: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        super().__init__()
        self._position = position
        self.fetch_offset = position
        self.last_fetched_epoch = leader_epoch
        self._leader_epoch = leader_epoch
        self._decoded: Records | None = None
        self._cursor: BufferCursor | None = None  # over `_decoded`
        self._synced_count = 0  # records of `_decoded` before `_position`
        self._delivered_range: tuple[int, int] | None = None
        self._unprocessed: dict[object, UnprocessedRange] = {}

    @property
    def is_empty(self) -> bool:
        """True if nothing is buffered. Buffered chunks may turn out to hold no records."""
        if self._cursor is not None:
            self._sync_cursor()
        return self._decoded is None and not self._chunks

    @property
    def position(self) -> int:
        """The offset of the next record to deliver."""
        if self._cursor is not None:
            self._sync_cursor()
        return self._position

    @property
    def delivered_range(self) -> tuple[int, int] | None:
        """The range of offsets delivered from this buffer: first, and one past the last."""
        if self._cursor is not None:
            self._sync_cursor()
        return self._delivered_range

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the record before `position`, or -1."""
        self._sync_cursor()
        decoded = self._decoded
        if decoded is None or not self._synced_count:
            return self._leader_epoch
        return decoded[: self._synced_count].leader_epoch

    def add(self, batches: FetchedBatches, size_bytes: int, fetched_range: FetchedRange) -> None:
        """Append the records fetched at `fetch_offset`, and move it to their end."""
        self.append(batches, size_bytes)
        self.fetch_offset, self.last_fetched_epoch = fetched_range

    def discard(self) -> None:
        """Discard the records that are not delivered yet; they are fetched again."""
        self._leader_epoch = self.leader_epoch
        self._set_decoded(None)
        self.clear()
        self.fetch_offset, self.last_fetched_epoch = self._position, self._leader_epoch

    def correct_epoch(self, leader_epoch: int) -> None:
        """Set the leader epoch that the log has for the record before `fetch_offset`."""
        self.last_fetched_epoch = leader_epoch
        if self.is_empty:
            self._leader_epoch = leader_epoch

    def clear_delivered_range(self) -> None:
        """Forget which offsets were delivered, because the topic was recreated."""
        self._sync_cursor()
        self._delivered_range = None

    # --- delivery ---

    def take(self, max_records: int, caller: object, max_bytes: int = TAKE_BYTES) -> Records | None:
        """Return up to `max_records` records of one chunk, or None if there are none.

        Args:
            max_records: The most records to return.
            caller: The task that will process the records.
            max_bytes: No further batch is decoded after this many bytes.

        Raises:
            CorruptRecord: All records before the corrupt data are delivered.
            KafkaError: The error passed to `end_with_error`.
        """
        records = self._load(max_records, max_bytes)
        if records is None:
            return None
        if len(records) > max_records:
            records, self._decoded = records[:max_records], records[max_records:]
        else:
            self._decoded = None
        first = records.first_offset
        assert first is not None
        self._mark_unprocessed(caller, first)
        self._advance(records.next_offset, records.leader_epoch)
        self._note_delivered(first, records.next_offset)
        return records

    def open_cursor(self, caller: object) -> BufferCursor | None:
        """Return a cursor over the next records for `caller`, or None if there are none."""
        decoded = self._load(CURSOR_RECORDS, TAKE_BYTES)
        if decoded is None:
            return None
        self._cursor = BufferCursor(list(decoded), self._mark_unprocessed(caller, self._position))
        return self._cursor

    def _sync_cursor(self) -> None:
        """Move the position to where the cursor is. All its records but the last are processed."""
        cursor = self._cursor
        if cursor is None or (delivered := cursor.delivered_count) == self._synced_count:
            return
        first, last = (
            cursor.records[self._synced_count].offset,
            cursor.records[delivered - 1].offset,
        )
        self._synced_count = delivered
        if cursor.unprocessed is not self._unprocessed.get(_UNTRACKED):
            cursor.unprocessed.start = last
        if delivered < len(cursor.records):
            self._position = last + 1
        else:
            decoded = self._decoded
            assert decoded is not None
            self._set_decoded(None)
            self._advance(decoded.next_offset, decoded.leader_epoch)
        self._note_delivered(first, self._position)

    def _close_cursor(self) -> None:
        """Keep the records that the cursor has not delivered."""
        self._leader_epoch = self.leader_epoch
        if self._cursor is not None:
            assert self._decoded is not None
            self._set_decoded(self._decoded[self._synced_count :])

    def _note_delivered(self, first: int, next_offset: int) -> None:
        low, high = self._delivered_range or (first, next_offset)
        self._delivered_range = min(low, first), max(high, next_offset)

    def _load(self, max_records: int, max_bytes: int) -> Records | None:
        """Return the next decoded records, or None; decode some if there are none."""
        if self._cursor is not None:
            self._close_cursor()
        if self._decoded is not None:
            self.decoded_bytes = 0
            self.suspended_batches = None
            return self._decoded
        self._decoded = self.decode(max_records, max_bytes)
        if self._decoded is None and not self._chunks and self.fetch_offset > self._position:
            self._position, self._leader_epoch = self.fetch_offset, self.last_fetched_epoch
        return self._decoded

    def skip(self, batches: FetchedBatches) -> None:
        """Move the position behind batches without records for the application."""
        if batches.position > self._position:
            self._position, self._leader_epoch = batches.position, batches.leader_epoch

    def _set_decoded(self, records: Records | None) -> None:
        self._decoded = records
        self._synced_count = 0
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _advance(self, next_offset: int, leader_epoch: int) -> None:
        self._position, self._leader_epoch = next_offset, leader_epoch
        if self._decoded is None and not self._chunks and self.fetch_offset > next_offset:
            # Compaction has removed the offsets up to here.
            self._position, self._leader_epoch = self.fetch_offset, self.last_fetched_epoch

    # --- processed records ---

    def _mark_unprocessed(self, caller: object, start: int) -> UnprocessedRange:
        unprocessed = self._unprocessed.get(caller)
        if unprocessed is None:
            if len(self._unprocessed) >= MAX_CALLERS:
                caller = _UNTRACKED
                unprocessed = self._unprocessed.get(caller)
            if unprocessed is None:
                if caller is _UNTRACKED:
                    logger.warning(
                        "more than %d tasks took records and did not call again: offsets after"
                        " these records are not committed automatically; call the consumer from"
                        " the same task each time, or call commit() with offsets",
                        MAX_CALLERS,
                        extra=log_fields(),
                    )
                unprocessed = self._unprocessed[caller] = UnprocessedRange(start)
        # mutation: earlier-chunks-count-as-processed
        unprocessed.start = min(unprocessed.start, start)
        return unprocessed

    def mark_processed(self, caller: object) -> None:
        """Count all records delivered to `caller` as processed, because it calls again."""
        self._unprocessed.pop(caller, None)

    @property
    def processed_offset(self) -> int:
        """All records before this offset are processed by the tasks that received them."""
        position = self.position
        # mutation: commit-passes-running-record
        if not self._unprocessed:
            return position
        # mutation: commit-passes-slower-task
        return min(unprocessed.start for unprocessed in self._unprocessed.values())


_UNTRACKED = object()
