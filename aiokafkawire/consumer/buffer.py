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

__all__ = ("CURSOR_RECORDS", "MAX_CALLERS", "Cursor", "FetchBuffer", "Lease")

logger = logging.getLogger("aiokafkawire.consumer")

MAX_CALLERS = 1_000
"""Tasks that may hold records of one partition at once without having called again."""

CURSOR_RECORDS = 256
"""Records that are taken out at once to be given one by one, before the consumer looks up again."""

TAKE_BYTES = 2 * 1024 * 1024
"""Once so many bytes of batches were decoded in one call, no further batch is: some milliseconds of
the event loop's time."""

_NOTHING: Iterator[Record] = iter(())


class Lease:
    """Records that one caller was given and has not come back for.

    `start` is the offset of the first of them. Unprocessed until the caller calls again.
    """

    __slots__ = ("start",)

    def __init__(self, start: int) -> None:
        self.start = start


class Cursor:
    """Gives records of one partition, one by one, to one caller.

    Who takes one from `ready` was given it, and has come back for those before it: nobody is told
    then, the buffer looks (`given`) when somebody wants to know. `owner` is the iterator that goes
    on with it.
    """

    __slots__ = ("_counted", "_rest", "lease", "owner", "ready", "records")

    def __init__(self, records: Sequence[Record], lease: Lease) -> None:
        self.records = records
        self.lease = lease
        self._rest = self.ready = iter(records)
        self._counted = 0
        self.owner: object = None

    def next(self) -> Record | None:
        """The next record; None when it is time to look up."""
        return next(self.ready, None)

    def close(self) -> None:
        """Give nothing more."""
        # mutation: iterator-keeps-records-after-seek
        self.ready = _NOTHING

    @property
    def given(self) -> int:
        """How many records it gave."""
        return len(self.records) - length_hint(self._rest)

    def take_count(self) -> int:
        """How many records it gave since this was asked last."""
        before, self._counted = self._counted, self.given
        return self._counted - before


@dataclass(slots=True)
class Chunk:
    """What one fetch brought, and how many bytes of it were not looked at yet."""

    batches: FetchedBatches | Unreadable
    size_bytes: int


@dataclass(slots=True)
class Unreadable:
    """Stands for what was fetched ahead and cannot be read: taking of it raises why."""

    error: KafkaError

    def take(self, max_records: int, max_bytes: int) -> NoReturn:
        raise self.error.with_traceback(None)


_NO_CHUNKS: deque[Chunk] = deque(maxlen=0)
"""What all buffers share that were never filled: an empty deque takes 600 bytes."""


class FetchBuffer:
    """Fetched bytes in order, and the position of the application in them.

    A seek makes a new buffer: whatever was fetched for an old one finds it gone. `fetch_offset` is
    the offset of the next record to fetch, `fetch_epoch` the epoch in which the offset before it
    was written, -1 if that is not known. `size_bytes` are fetched and not decoded yet, but for the
    batch at hand. `stopped_at` are batches that have to be unpacked before more of them can be
    taken, or that took long enough without a record to be seen.
    """

    __slots__ = (
        "_chunks",
        "_cursor",
        "_front",
        "_given",
        "_leader_epoch",
        "_leases",
        "_position",
        "_taken",
        "decoded_bytes",
        "fetch_epoch",
        "fetch_offset",
        "size_bytes",
        "stopped_at",
    )

    def __init__(self, position: int, leader_epoch: int = ANY_LEADER_EPOCH) -> None:
        self._position = position
        self.fetch_offset = position
        self.fetch_epoch = leader_epoch
        self._leader_epoch = leader_epoch
        self.size_bytes = 0
        self.stopped_at: FetchedBatches | None = None
        self.decoded_bytes = 0
        self._chunks: deque[Chunk] = _NO_CHUNKS
        self._front: Records | None = None
        self._cursor: Cursor | None = None  # over the front
        self._taken = 0  # records that are known to be gone from the front
        self._given: tuple[int, int] | None = None
        self._leases: dict[object, Lease] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is there to be given. What is there may turn out to be no records."""
        if self._cursor is not None:
            self._settle()
        return self._front is None and not self._chunks

    @property
    def position(self) -> int:
        """The offset of the next record to give."""
        if self._cursor is not None:
            self._settle()
        return self._position

    @property
    def given(self) -> tuple[int, int] | None:
        """The range of offsets that the application was given out of this buffer."""
        if self._cursor is not None:
            self._settle()
        return self._given

    @property
    def leader_epoch(self) -> int:
        """The epoch that the offset before `position` was written in, -1 if it is not known."""
        self._settle()
        front = self._front
        if front is None or not self._taken:
            return self._leader_epoch
        return front[: self._taken].leader_epoch

    def add(self, batches: FetchedBatches, size_bytes: int, fetched_range: FetchedRange) -> None:
        """Append what was fetched at `fetch_offset`; the next fetch is at the end of it."""
        self._append(Chunk(batches, size_bytes))
        self.size_bytes += size_bytes
        self.fetch_offset, self.fetch_epoch = fetched_range

    def end_with(self, error: KafkaError, size_bytes: int) -> None:
        """Raise `error` once what is there was given. Its size keeps more from being fetched."""
        self._append(Chunk(Unreadable(error), size_bytes))
        self.size_bytes += size_bytes

    def _append(self, chunk: Chunk) -> None:
        if self._chunks is _NO_CHUNKS:
            self._chunks = deque()
        self._chunks.append(chunk)

    def drop(self) -> None:
        """Forget what was fetched and not given: it is to be fetched again."""
        self._leader_epoch = self.leader_epoch
        self._set_front(None)
        self._chunks = _NO_CHUNKS
        self.size_bytes = 0
        self.stopped_at = None
        self.fetch_offset, self.fetch_epoch = self._position, self._leader_epoch

    def correct_epoch(self, leader_epoch: int) -> None:
        """The log knows the offset before `fetch_offset` under this epoch."""
        self.fetch_epoch = leader_epoch
        if self.empty:
            self._leader_epoch = leader_epoch

    def forget_given(self) -> None:
        """What was given was of another log."""
        self._settle()
        self._given = None

    # --- giving ---

    def take(self, max_records: int, caller: object, max_bytes: int = TAKE_BYTES) -> Records | None:
        """Give up to `max_records` records of one chunk; None if there are none.

        After `max_bytes` no further batch is decoded; `decoded_bytes` is what it came to. Raises
        `CorruptRecords` once the records before the damage were given, or what `end_with` has.
        """
        if self._cursor is not None:
            self._close_cursor()
        if not self._load(max_records, max_bytes):
            return None
        records = self._front
        assert records is not None
        if len(records) > max_records:
            records, rest = records[:max_records], records[max_records:]
            self._set_front(rest)
        else:
            self._set_front(None)
        first = records.first_offset
        assert first is not None
        self._lease(caller, first)
        self._advance(records.next_offset, records.leader_epoch)
        self._note_given(first, records.next_offset)
        return records

    def open(self, caller: object) -> Cursor | None:
        """A cursor over the next records, leased to a caller; None if there are none."""
        if self._cursor is not None:
            self._close_cursor()
        if not self._load(CURSOR_RECORDS, TAKE_BYTES):
            return None
        front = self._front
        assert front is not None
        self._cursor = Cursor(list(front), self._lease(caller, self._position))
        return self._cursor

    def _settle(self) -> None:
        """Take note of what the cursor gave; all but the last of it is processed."""
        cursor = self._cursor
        if cursor is None or (given := cursor.given) == self._taken:
            return
        first, last = cursor.records[self._taken].offset, cursor.records[given - 1].offset
        self._taken = given
        if cursor.lease is not self._leases.get(_FORGOTTEN):
            cursor.lease.start = last
        if given < len(cursor.records):
            self._position = last + 1
        else:
            front = self._front
            assert front is not None
            self._set_front(None)
            self._advance(front.next_offset, front.leader_epoch)
        self._note_given(first, self._position)

    def _close_cursor(self) -> None:
        """Leave what the cursor has not given to others."""
        self._leader_epoch = self.leader_epoch
        if self._cursor is not None:
            assert self._front is not None
            self._set_front(self._front[self._taken :])

    def _note_given(self, first: int, next_offset: int) -> None:
        low, high = self._given or (first, next_offset)
        self._given = min(low, first), max(high, next_offset)

    def _load(self, max_records: int, max_bytes: int) -> bool:
        """Have records in front; False if there are none."""
        self.decoded_bytes = 0
        self.stopped_at = None
        while self._front is None and self._chunks:
            chunk = self._chunks[0]
            batches, before = chunk.batches, chunk.size_bytes
            records = batches.take(max_records, max_bytes - self.decoded_bytes)
            assert not isinstance(batches, Unreadable)
            self.decoded_bytes += batches.decoded_bytes
            if batches.exhausted:
                self._chunks.popleft()
                self.size_bytes -= before
            else:
                chunk.size_bytes = min(before, batches.remaining_bytes)
                self.size_bytes -= before - chunk.size_bytes
            if len(records):
                self._set_front(records)
                return True
            # Control batches, or records of aborted transactions: nothing to see.
            self._pass_to(batches.position, batches.leader_epoch)
            if not batches.exhausted:
                self.stopped_at = batches
                return False
        self._pass_gap()
        return self._front is not None

    def _set_front(self, records: Records | None) -> None:
        self._front = records
        self._taken = 0
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _advance(self, next_offset: int, leader_epoch: int) -> None:
        self._position = next_offset
        self._leader_epoch = leader_epoch
        self._pass_gap()

    def _pass_to(self, offset: int, leader_epoch: int) -> None:
        if offset > self._position:
            self._position, self._leader_epoch = offset, leader_epoch

    def _pass_gap(self) -> None:
        """Offsets that the log has not any more (compaction) are passed over."""
        if self._front is None and not self._chunks:
            self._pass_to(self.fetch_offset, self.fetch_epoch)

    # --- what counts as processed ---

    def _lease(self, caller: object, start: int) -> Lease:
        lease = self._leases.get(caller)
        if lease is None:
            if len(self._leases) >= MAX_CALLERS:
                caller = _FORGOTTEN
                lease = self._leases.get(caller)
            if lease is None:
                if caller is _FORGOTTEN:
                    logger.warning(
                        "%d tasks were given records and did not call again: nothing after those"
                        " records is committed automatically (call from one task, or commit by"
                        " hand)",
                        MAX_CALLERS,
                        extra=fields_of(),
                    )
                lease = self._leases[caller] = Lease(start)
        # mutation: earlier-chunks-count-as-processed
        lease.start = min(lease.start, start)
        return lease

    def came_back(self, caller: object) -> None:
        """A caller calls again: all that it was given is processed."""
        self._leases.pop(caller, None)

    @property
    def processed(self) -> int:
        """All records before this offset are processed, by whoever was given them."""
        position = self.position
        # mutation: commit-passes-running-record
        if not self._leases:
            return position
        # mutation: commit-passes-slower-task
        return min(lease.start for lease in self._leases.values())


_FORGOTTEN = object()
