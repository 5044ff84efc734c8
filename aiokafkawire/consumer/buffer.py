"""What was fetched of one partition from one position on, and how much of it is processed."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator

from aiokafkawire.records import Extent, FetchedBatches, Record, Records
from aiokafkawire.types import ANY_LEADER_EPOCH

__all__ = ("MAX_CALLERS", "FetchBuffer", "Lease")

logger = logging.getLogger("aiokafkawire.consumer")

MAX_CALLERS = 1_000
"""Tasks that may hold records of one partition at once without having called again."""

FRONT_RECORDS = 256
"""Records that are taken out at once to be given one by one."""


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
    offset of the next record to give; `fetch_offset` that of the next to fetch. `leader_epoch` and
    `fetch_epoch` are the epochs in which the offsets before these two were written, -1 if that is
    not known.
    """

    __slots__ = (
        "_chunks",
        "_front",
        "_iterator",
        "_leader_epoch",
        "_leases",
        "_left",
        "fetch_epoch",
        "fetch_offset",
        "position",
        "size_bytes",
    )

    def __init__(self, position: int, leader_epoch: int = ANY_LEADER_EPOCH) -> None:
        self.position = position
        self.fetch_offset = position
        self.fetch_epoch = leader_epoch
        self._leader_epoch = leader_epoch
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

    @property
    def leader_epoch(self) -> int:
        """The epoch that the offset before `position` was written in, -1 if it is not known."""
        front = self._front
        if front is None or self._left == len(front):
            return self._leader_epoch
        return front[: len(front) - self._left].leader_epoch

    def add(self, batches: FetchedBatches, size_bytes: int, extent: Extent) -> None:
        """Append what was fetched at `fetch_offset`; the next fetch is at the end of it."""
        self._chunks.append((batches, size_bytes))
        self.size_bytes += size_bytes
        self.fetch_offset, self.fetch_epoch = extent

    def drop(self) -> None:
        """Forget what was fetched and not given: it is to be fetched again."""
        self._leader_epoch = self.leader_epoch
        self._set_front(None)
        self._chunks.clear()
        self.size_bytes = 0
        self.fetch_offset, self.fetch_epoch = self.position, self._leader_epoch

    def correct_epoch(self, leader_epoch: int) -> None:
        """The log knows the offset before `fetch_offset` under this epoch."""
        self.fetch_epoch = leader_epoch
        if self.empty:
            self._leader_epoch = leader_epoch

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
            front = self._front
            assert front is not None
            self._set_front(None)
            self._advance(front.next_offset, front.leader_epoch)
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
                self._pass_to(batches.position, batches.leader_epoch)
        self._pass_gap()
        return self._front is not None

    def _set_front(self, records: Records | None) -> None:
        self._front = records
        self._iterator = None
        self._left = 0 if records is None else len(records)

    def _advance(self, next_offset: int, leader_epoch: int) -> None:
        self.position = next_offset
        self._leader_epoch = leader_epoch
        self._pass_gap()

    def _pass_to(self, offset: int, leader_epoch: int) -> None:
        if offset > self.position:
            self.position, self._leader_epoch = offset, leader_epoch

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
