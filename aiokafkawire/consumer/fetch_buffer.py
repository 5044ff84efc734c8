"""Fetched records of one partition: the position, and which records are processed."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import log_fields
from aiokafkawire.records import FetchedBatches, FetchedRange, Record, Records
from aiokafkawire.types import NO_LEADER_EPOCH

from .record_cursor import CURSOR_RECORDS, RecordCursor

__all__ = ("MAX_CALLERS", "BufferCursor", "FetchBuffer")

logger = logging.getLogger("aiokafkawire.consumer")

MAX_CALLERS = 1_000
"""The most tasks that are tracked per partition while they process records."""

TAKE_BYTES = 2 * 1024 * 1024
"""Bytes of batches decoded per call: a few milliseconds of the event loop's time."""


@dataclass(slots=True)
class FetchedChunk:
    """The records of one fetch. `size_bytes` of them are not decoded yet."""

    batches: FetchedBatches | UnreadableBatches
    size_bytes: int


@dataclass(slots=True)
class UnreadableBatches:
    """Takes the place of fetched batches that cannot be read: `take` raises the error."""

    error: KafkaError

    def take(self, max_records: int, max_bytes: int) -> NoReturn:
        """Raise the error."""
        raise self.error.with_traceback(None)


_NO_CHUNKS: deque[FetchedChunk] = deque(maxlen=0)
"""Shared by all buffers without chunks, because an empty deque takes 600 bytes."""


class BufferCursor(RecordCursor[Record[Any, Any]]):
    """Delivers the decoded records of a buffer. `caller` is the one that has to process them."""

    __slots__ = ("caller",)

    def __init__(self, records: Sequence[Record[Any, Any]], caller: object) -> None:
        super().__init__(records)
        self.caller = caller


class FetchBuffer:
    """Fetched batches of one partition, and the position of the application in them.

    Batches are in the order of the log, and decoded when their records are needed. A seek creates a
    new buffer, so that a response to an older fetch cannot reach it.

    Attributes:
        size_bytes: Bytes fetched and not decoded yet.
        decoded_bytes: Bytes that the last call has decoded.
        suspended_batches: Batches that the last call could not finish decoding: one must be
            decompressed in a worker thread, or the decoding budget was used up before a record was
            found.
        fetch_offset: Offset of the next record to fetch.
        last_fetched_epoch: Leader epoch of the record before `fetch_offset`, or -1.
    """

    __slots__ = (
        "_chunks",
        "_cursor",
        "_decoded",
        "_delivered_range",
        "_leader_epoch",
        "_position",
        "_synced_count",
        "_unprocessed_from",
        "decoded_bytes",
        "fetch_offset",
        "last_fetched_epoch",
        "size_bytes",
        "suspended_batches",
    )

    def __init__(self, position: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        self._chunks: deque[FetchedChunk] = _NO_CHUNKS
        self.size_bytes = 0
        self.decoded_bytes = 0
        self.suspended_batches: FetchedBatches | None = None
        self._position = position
        self.fetch_offset = position
        self.last_fetched_epoch = leader_epoch
        self._leader_epoch = leader_epoch
        self._decoded: Records | None = None
        self._cursor: BufferCursor | None = None  # over `_decoded`
        self._synced_count = 0  # records of `_decoded` before `_position`
        self._delivered_range: tuple[int, int] | None = None
        # The first record delivered to each caller since its last call.
        self._unprocessed_from: dict[object, int] = {}

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
        self._append(batches, size_bytes)
        self.fetch_offset, self.last_fetched_epoch = fetched_range

    def end_with_error(self, error: KafkaError, size_bytes: int) -> None:
        """Raise `error` after the buffered records. `size_bytes` keeps the buffer full."""
        self._append(UnreadableBatches(error), size_bytes)

    def _append(self, batches: FetchedBatches | UnreadableBatches, size_bytes: int) -> None:
        if self._chunks is _NO_CHUNKS:
            self._chunks = deque()
        self._chunks.append(FetchedChunk(batches, size_bytes))
        self.size_bytes += size_bytes

    def discard(self) -> None:
        """Discard the records that are not delivered yet; they are fetched again."""
        self._leader_epoch = self.leader_epoch
        self._set_decoded(None)
        self._chunks = _NO_CHUNKS
        self.size_bytes = 0
        self.suspended_batches = None
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
        caller = self._mark_unprocessed(caller, self._position)
        self._cursor = BufferCursor(list(decoded), caller)
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
        if cursor.caller is not _UNTRACKED and cursor.caller in self._unprocessed_from:
            self._unprocessed_from[cursor.caller] = last
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
        self.decoded_bytes = 0
        self.suspended_batches = None
        if self._decoded is not None:
            return self._decoded
        self._decoded = self._decode(max_records, max_bytes)
        if self._decoded is None and not self._chunks and self.fetch_offset > self._position:
            self._position, self._leader_epoch = self.fetch_offset, self.last_fetched_epoch
        return self._decoded

    def _decode(self, max_records: int, max_bytes: int) -> Records | None:
        """Return the next records of one chunk; None if there are none, or decoding is suspended.

        Args:
            max_records: The most records to return.
            max_bytes: No further batch is decoded after this many bytes.

        Raises:
            CorruptRecord: All records before the corrupt data were returned.
            KafkaError: The error passed to `end_with_error`.
        """
        while self._chunks:
            chunk = self._chunks[0]
            batches, before = chunk.batches, chunk.size_bytes
            records = batches.take(max_records, max_bytes - self.decoded_bytes)
            assert not isinstance(batches, UnreadableBatches)
            self.decoded_bytes += batches.decoded_bytes
            if batches.exhausted:
                self._chunks.popleft()
                self.size_bytes -= before
            else:
                chunk.size_bytes = min(before, batches.remaining_bytes)
                self.size_bytes -= before - chunk.size_bytes
            if len(records):
                return records
            # Only control batches, or records of aborted transactions.
            if batches.position > self._position:
                self._position, self._leader_epoch = batches.position, batches.leader_epoch
            if not batches.exhausted:
                self.suspended_batches = batches
                return None
        return None

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

    def _mark_unprocessed(self, caller: object, start: int) -> object:
        """Note that records from `start` on are delivered; return for whom they are noted."""
        unprocessed = self._unprocessed_from
        if caller not in unprocessed and len(unprocessed) >= MAX_CALLERS:
            caller = _UNTRACKED
            if caller not in unprocessed:
                logger.warning(
                    "more than %d tasks took records and did not call again: offsets after"
                    " these records are not committed automatically; call the consumer from"
                    " the same task each time, or call commit() with offsets",
                    MAX_CALLERS,
                    extra=log_fields(),
                )
        # mutation: earlier-chunks-count-as-processed
        unprocessed[caller] = min(unprocessed.get(caller, start), start)
        return caller

    def mark_processed(self, caller: object) -> None:
        """Count all records delivered to `caller` as processed, because it calls again."""
        self._unprocessed_from.pop(caller, None)

    @property
    def processed_offset(self) -> int:
        """All records before this offset are processed by the tasks that received them."""
        position = self.position
        # mutation: commit-passes-running-record
        if not self._unprocessed_from:
            return position
        # mutation: commit-passes-slower-task
        return min(self._unprocessed_from.values())


_UNTRACKED = object()
