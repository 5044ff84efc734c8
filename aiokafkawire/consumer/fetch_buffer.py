"""What was fetched of one partition from one position on, and how much of it is processed."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import NoReturn

from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import fields_of
from aiokafkawire.records import FetchedBatches, FetchedRange, Record, Records
from aiokafkawire.types import ANY_LEADER_EPOCH

__all__ = ("CURSOR_RECORDS", "MAX_CALLERS", "FetchBuffer", "RecordCursor", "UnprocessedRange")

logger = logging.getLogger("aiokafkawire.consumer")

MAX_CALLERS = 1_000
"""Tasks that may hold records of one partition at once without having called again."""

CURSOR_RECORDS = 256
"""Records that are taken out at once to be given one by one, before the consumer looks up again."""

TAKE_BYTES = 2 * 1024 * 1024
"""Once so many bytes of batches were decoded in one call, no further batch is: some milliseconds of
the event loop's time."""

_NO_RECORDS: Iterator[Record] = iter(())


class UnprocessedRange:
    """Records that one caller was given and has not come back for.

    `start` is the offset of the first of them. Unprocessed until the caller calls again.
    """

    __slots__ = ("start",)

    def __init__(self, start: int) -> None:
        self.start = start


class RecordCursor:
    """Gives records of one partition, one by one, to one caller.

    Who takes one from `ready` was given it, and has come back for those before it: nobody is told
    then, the buffer looks (`delivered_count`) when somebody wants to know. `owner` is the iterator
    that goes on with it.
    """

    __slots__ = ("_counted", "_remaining", "owner", "ready", "records", "unprocessed")

    def __init__(self, records: Sequence[Record], unprocessed: UnprocessedRange) -> None:
        self.records = records
        self.unprocessed = unprocessed
        self._remaining = self.ready = iter(records)
        self._counted = 0
        self.owner: object = None

    def next(self) -> Record | None:
        """The next record; None when it is time to look up."""
        return next(self.ready, None)

    def close(self) -> None:
        """Give nothing more."""
        # mutation: iterator-keeps-records-after-seek
        self.ready = _NO_RECORDS

    @property
    def delivered_count(self) -> int:
        """How many records it gave."""
        return len(self.records) - length_hint(self._remaining)

    def take_delivered_count(self) -> int:
        """How many records it gave since this was asked last."""
        before, self._counted = self._counted, self.delivered_count
        return self._counted - before


@dataclass(slots=True)
class FetchedChunk:
    """What one fetch brought, and how many bytes of it were not looked at yet."""

    batches: FetchedBatches | UnreadableBatches
    size_bytes: int


@dataclass(slots=True)
class UnreadableBatches:
    """Stands for what was fetched ahead and cannot be read: taking of it raises why."""

    error: KafkaError

    def take(self, max_records: int, max_bytes: int) -> NoReturn:
        raise self.error.with_traceback(None)


_NO_CHUNKS: deque[FetchedChunk] = deque(maxlen=0)
"""What all buffers share that were never filled: an empty deque takes 600 bytes."""


class FetchBuffer:
    """Fetched bytes in order, and the position of the application in them.

    A seek makes a new buffer: whatever was fetched for an old one finds it gone. `fetch_offset` is
    the offset of the next record to fetch, `fetch_epoch` the epoch in which the offset before it
    was written, -1 if that is not known. `size_bytes` are fetched and not decoded yet, but for the
    batch at hand. `suspended_batches` are batches that have to be unpacked before more of them can
    be taken, or that took long enough without a record to be seen.
    """

    __slots__ = (
        "_chunks",
        "_cursor",
        "_decoded",
        "_delivered",
        "_leader_epoch",
        "_position",
        "_taken",
        "_unprocessed",
        "decoded_bytes",
        "fetch_epoch",
        "fetch_offset",
        "size_bytes",
        "suspended_batches",
    )

    def __init__(self, position: int, leader_epoch: int = ANY_LEADER_EPOCH) -> None:
        self._position = position
        self.fetch_offset = position
        self.fetch_epoch = leader_epoch
        self._leader_epoch = leader_epoch
        self.size_bytes = 0
        self.suspended_batches: FetchedBatches | None = None
        self.decoded_bytes = 0
        self._chunks: deque[FetchedChunk] = _NO_CHUNKS
        self._decoded: Records | None = None
        self._cursor: RecordCursor | None = None  # over the front
        self._taken = 0  # records that are known to be gone from the front
        self._delivered: tuple[int, int] | None = None
        self._unprocessed: dict[object, UnprocessedRange] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is there to be given. What is there may turn out to be no records."""
        if self._cursor is not None:
            self._sync_cursor()
        return self._decoded is None and not self._chunks

    @property
    def position(self) -> int:
        """The offset of the next record to give."""
        if self._cursor is not None:
            self._sync_cursor()
        return self._position

    @property
    def delivered(self) -> tuple[int, int] | None:
        """The range of offsets that the application was given out of this buffer."""
        if self._cursor is not None:
            self._sync_cursor()
        return self._delivered

    @property
    def leader_epoch(self) -> int:
        """The epoch that the offset before `position` was written in, -1 if it is not known."""
        self._sync_cursor()
        decoded = self._decoded
        if decoded is None or not self._taken:
            return self._leader_epoch
        return decoded[: self._taken].leader_epoch

    def add(self, batches: FetchedBatches, size_bytes: int, fetched_range: FetchedRange) -> None:
        """Append what was fetched at `fetch_offset`; the next fetch is at the end of it."""
        self._append(FetchedChunk(batches, size_bytes))
        self.size_bytes += size_bytes
        self.fetch_offset, self.fetch_epoch = fetched_range

    def end_with_error(self, error: KafkaError, size_bytes: int) -> None:
        """Raise `error` once what is there was given. Its size keeps more from being fetched."""
        self._append(FetchedChunk(UnreadableBatches(error), size_bytes))
        self.size_bytes += size_bytes

    def _append(self, chunk: FetchedChunk) -> None:
        if self._chunks is _NO_CHUNKS:
            self._chunks = deque()
        self._chunks.append(chunk)

    def discard(self) -> None:
        """Forget what was fetched and not given: it is to be fetched again."""
        self._leader_epoch = self.leader_epoch
        self._set_decoded(None)
        self._chunks = _NO_CHUNKS
        self.size_bytes = 0
        self.suspended_batches = None
        self.fetch_offset, self.fetch_epoch = self._position, self._leader_epoch

    def correct_epoch(self, leader_epoch: int) -> None:
        """The log knows the offset before `fetch_offset` under this epoch."""
        self.fetch_epoch = leader_epoch
        if self.empty:
            self._leader_epoch = leader_epoch

    def forget_delivered(self) -> None:
        """What was given was of another log."""
        self._sync_cursor()
        self._delivered = None

    # --- giving ---

    def take(self, max_records: int, caller: object, max_bytes: int = TAKE_BYTES) -> Records | None:
        """Give up to `max_records` records of one chunk; None if there are none.

        After `max_bytes` no further batch is decoded; `decoded_bytes` is what it came to. Raises
        `CorruptRecords` once the records before the damage were given, or what `end_with_error`
        has.
        """
        if self._cursor is not None:
            self._close_cursor()
        if not self._load(max_records, max_bytes):
            return None
        records = self._decoded
        assert records is not None
        if len(records) > max_records:
            records, rest = records[:max_records], records[max_records:]
            self._set_decoded(rest)
        else:
            self._set_decoded(None)
        first = records.first_offset
        assert first is not None
        self._mark_unprocessed(caller, first)
        self._advance(records.next_offset, records.leader_epoch)
        self._note_delivered(first, records.next_offset)
        return records

    def open_cursor(self, caller: object) -> RecordCursor | None:
        """A cursor over the next records, leased to a caller; None if there are none."""
        if self._cursor is not None:
            self._close_cursor()
        if not self._load(CURSOR_RECORDS, TAKE_BYTES):
            return None
        decoded = self._decoded
        assert decoded is not None
        self._cursor = RecordCursor(list(decoded), self._mark_unprocessed(caller, self._position))
        return self._cursor

    def _sync_cursor(self) -> None:
        """Take note of what the cursor gave; all but the last of it is processed."""
        cursor = self._cursor
        if cursor is None or (delivered := cursor.delivered_count) == self._taken:
            return
        first, last = cursor.records[self._taken].offset, cursor.records[delivered - 1].offset
        self._taken = delivered
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
        """Leave what the cursor has not given to others."""
        self._leader_epoch = self.leader_epoch
        if self._cursor is not None:
            assert self._decoded is not None
            self._set_decoded(self._decoded[self._taken :])

    def _note_delivered(self, first: int, next_offset: int) -> None:
        low, high = self._delivered or (first, next_offset)
        self._delivered = min(low, first), max(high, next_offset)

    def _load(self, max_records: int, max_bytes: int) -> bool:
        """Have records in front; False if there are none."""
        self.decoded_bytes = 0
        self.suspended_batches = None
        while self._decoded is None and self._chunks:
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
                self._set_decoded(records)
                return True
            # Control batches, or records of aborted transactions: nothing to see.
            self._skip_to(batches.position, batches.leader_epoch)
            if not batches.exhausted:
                self.suspended_batches = batches
                return False
        self._skip_gap()
        return self._decoded is not None

    def _set_decoded(self, records: Records | None) -> None:
        self._decoded = records
        self._taken = 0
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _advance(self, next_offset: int, leader_epoch: int) -> None:
        self._position = next_offset
        self._leader_epoch = leader_epoch
        self._skip_gap()

    def _skip_to(self, offset: int, leader_epoch: int) -> None:
        if offset > self._position:
            self._position, self._leader_epoch = offset, leader_epoch

    def _skip_gap(self) -> None:
        """Offsets that the log has not any more (compaction) are passed over."""
        if self._decoded is None and not self._chunks:
            self._skip_to(self.fetch_offset, self.fetch_epoch)

    # --- what counts as processed ---

    def _mark_unprocessed(self, caller: object, start: int) -> UnprocessedRange:
        unprocessed = self._unprocessed.get(caller)
        if unprocessed is None:
            if len(self._unprocessed) >= MAX_CALLERS:
                caller = _UNTRACKED
                unprocessed = self._unprocessed.get(caller)
            if unprocessed is None:
                if caller is _UNTRACKED:
                    logger.warning(
                        "%d tasks were given records and did not call again: nothing after those"
                        " records is committed automatically (call from one task, or commit by"
                        " hand)",
                        MAX_CALLERS,
                        extra=fields_of(),
                    )
                unprocessed = self._unprocessed[caller] = UnprocessedRange(start)
        # mutation: earlier-chunks-count-as-processed
        unprocessed.start = min(unprocessed.start, start)
        return unprocessed

    def mark_processed(self, caller: object) -> None:
        """A caller calls again: all that it was given is processed."""
        self._unprocessed.pop(caller, None)

    @property
    def processed(self) -> int:
        """All records before this offset are processed, by whoever was given them."""
        position = self.position
        # mutation: commit-passes-running-record
        if not self._unprocessed:
            return position
        # mutation: commit-passes-slower-task
        return min(unprocessed.start for unprocessed in self._unprocessed.values())


_UNTRACKED = object()
