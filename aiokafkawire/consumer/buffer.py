"""What was fetched of one partition from one position on, and how much of it is processed."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from struct import Struct

from aiokafkawire.records import Buffer as Bytes
from aiokafkawire.records import FetchedBatches, Record, Records
from aiokafkawire.types import ANY_LEADER_EPOCH

__all__ = ("MAX_CALLERS", "FetchBuffer", "Lease", "end_of_batches")

logger = logging.getLogger("aiokafkawire.consumer")

MAX_CALLERS = 1_000
"""Tasks that may hold records of one partition at once without having called again."""

FRONT_RECORDS = 256
"""Records that are taken out at once to be given one by one."""

_BATCH = Struct(">qi")
_LAST_OFFSET_DELTA = Struct(">i")
_BATCH_BYTES = 12
_MAGIC_POSITION = 16
_LAST_OFFSET_DELTA_POSITION = 23


def end_of_batches(data: Bytes, fetch_offset: int) -> int:
    """The offset after the last whole batch in a fetch response, without decoding any.

    What does not look like batches ends it: decoding says what is wrong with it.
    """
    view = memoryview(data)
    position, end = 0, fetch_offset
    while len(view) - position > _LAST_OFFSET_DELTA_POSITION:
        offset, size = _BATCH.unpack_from(view, position)
        after = position + _BATCH_BYTES + size
        if size <= 0 or after > len(view):
            break
        last = offset
        if view[position + _MAGIC_POSITION] >= 2:
            if after - position < _LAST_OFFSET_DELTA_POSITION + 4:
                break
            last += _LAST_OFFSET_DELTA.unpack_from(view, position + _LAST_OFFSET_DELTA_POSITION)[0]
        end = max(end, last + 1)
        position = after
    return end


class Lease:
    """Records that one caller was given and has not come back for.

    `start` is the offset of the first of them. Unprocessed until the caller calls again.
    """

    __slots__ = ("start",)

    def __init__(self, start: int) -> None:
        self.start = start


class FetchBuffer:
    """Fetched bytes in order, and the position of the application in them.

    A seek makes a new buffer: whatever was fetched for an old one finds it gone. `position` is the
    offset of the next record to give; `fetch_offset` that of the next to fetch.
    """

    __slots__ = (
        "_chunks",
        "_front",
        "_iterator",
        "_leases",
        "_left",
        "fetch_offset",
        "leader_epoch",
        "position",
        "size_bytes",
    )

    def __init__(self, position: int, leader_epoch: int = ANY_LEADER_EPOCH) -> None:
        self.position = position
        self.leader_epoch = leader_epoch
        self.fetch_offset = position
        self.size_bytes = 0
        self._chunks: deque[tuple[FetchedBatches, int]] = deque()
        self._front: Records | None = None
        self._iterator: Iterator[Record] | None = None
        self._left = 0
        self._leases: dict[object, Lease] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is there to be given. What is there may turn out to be no records."""
        return self._front is None and not self._chunks

    def add(self, batches: FetchedBatches, size_bytes: int, next_offset: int) -> None:
        """Append what was fetched at `fetch_offset`; the next fetch is at `next_offset`."""
        self._chunks.append((batches, size_bytes))
        self.size_bytes += size_bytes
        self.fetch_offset = next_offset

    # --- giving ---

    def take(self, max_records: int, caller: object) -> Records | None:
        """Give up to `max_records` records of one chunk; None if there are none.

        Raises `CorruptRecords` once the records before the damage were given.
        """
        if not self._load(max_records):
            return None
        records = self._front
        assert records is not None
        if self._left < len(records):
            records = records[len(records) - self._left :]
        if len(records) > max_records:
            records, rest = records[:max_records], records[max_records:]
            self._set_front(rest)
        else:
            self._set_front(None)
        first = records.first_offset
        assert first is not None
        self._lease(caller, first)
        self._advance(records.next_offset, records.leader_epoch)
        return records

    def open(self, caller: object) -> Lease | None:
        """Make records ready for `next` and lease them to a caller; None if there are none."""
        if not self._load(FRONT_RECORDS):
            return None
        assert self._front is not None
        if self._iterator is None:
            self._iterator = iter(self._front)
        return self._lease(caller, self.position)

    def next(self, lease: Lease) -> Record | None:
        """Give one record of those made ready by `open`; the one before counts as processed."""
        if self._iterator is None:
            return None
        record = next(self._iterator)
        self._left -= 1
        lease.start = record.offset
        if self._left:
            self.position = record.offset + 1
        else:
            assert self._front is not None
            next_offset = self._front.next_offset
            self._set_front(None)
            self._advance(next_offset, record.leader_epoch)
        return record

    def _load(self, max_records: int) -> bool:
        """Have records in front; False if there are none."""
        while self._front is None and self._chunks:
            batches, size_bytes = self._chunks[0]
            records = batches.take(max_records)
            if batches.exhausted:
                self._chunks.popleft()
                self.size_bytes -= size_bytes
            if len(records):
                self._set_front(records)
            else:
                # Control batches, or records of aborted transactions: nothing to see.
                self.position = max(self.position, batches.position)
        if self._front is None and not self._chunks:
            # Offsets that the log has not any more (compaction) are passed over.
            self.position = max(self.position, self.fetch_offset)
        return self._front is not None

    def _set_front(self, records: Records | None) -> None:
        self._front = records
        self._iterator = None
        self._left = 0 if records is None else len(records)

    def _advance(self, next_offset: int, leader_epoch: int) -> None:
        self.position = next_offset
        if leader_epoch != ANY_LEADER_EPOCH:
            self.leader_epoch = leader_epoch
        if self._front is None and not self._chunks:
            self.position = max(self.position, self.fetch_offset)

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
                    )
                lease = self._leases[caller] = Lease(start)
        lease.start = min(lease.start, start)
        return lease

    def came_back(self, caller: object) -> None:
        """A caller calls again: all that it was given is processed."""
        self._leases.pop(caller, None)

    @property
    def processed(self) -> int:
        """All records before this offset are processed, by whoever was given them."""
        if not self._leases:
            return self.position
        return min(lease.start for lease in self._leases.values())


_FORGOTTEN = object()
