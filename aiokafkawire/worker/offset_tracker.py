"""The offset of a partition that may be committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter

from aiokafkawire.records import Record, Records
from aiokafkawire.types import NO_LEADER_EPOCH, OffsetAndMetadata
from aiokafkawire.worker.finished_records import FinishedRecords

__all__ = ("OffsetTracker",)

_get_offset = attrgetter("offset")


def offsets_of(records: Sequence[Record]) -> list[int]:
    # `isinstance` is slow for an abstract Sequence.
    return records.offsets() if type(records) is Records else [*map(_get_offset, records)]


def leader_epochs_of(records: Sequence[Record]) -> Iterator[tuple[int, int]]:
    """Yield the first offset and the leader epoch of each part of records."""
    if type(records) is Records:
        for segment in records.segments:  # a fetch may have batches of several leader epochs
            yield segment.columns.offsets[segment.start], segment.leader_epoch
    else:
        for record in records:
            yield record.offset, record.leader_epoch


class OffsetTracker:
    """Tracks the lowest unfinished record of a partition.

    Records are added in the order of offsets; logs have gaps. They may finish in any order.

    Attributes:
        committed: The offset that was committed last; None if none was.
        first: The offset at which the worker began to read; None if it is not known.
    """

    __slots__ = (
        "_epochs",
        "_finished",
        "_next",
        "_pending",
        "_restored",
        "_start",
        "committed",
        "first",
    )

    def __init__(self) -> None:
        self.committed: OffsetAndMetadata | None = None
        self.first: int | None = None
        self._pending: list[int] = []
        self._start = 0  # place of the lowest unfinished record in `_pending`
        self._finished: set[int] = set()  # records behind it that are finished
        self._next: int | None = None  # after the last record
        self._epochs: deque[tuple[int, int]] = deque()  # first offset of each leader epoch
        self._restored: FinishedRecords | None = None  # until all of them are fetched

    def __len__(self) -> int:
        """Return the number of records from the lowest unfinished one to the last one."""
        return len(self._pending) - self._start

    def is_before(self, offset: int) -> bool:
        """Return whether an offset may be added: it is behind all records so far."""
        return self._next is None or self._next <= offset

    def restore(self, finished: FinishedRecords) -> None:
        """Mark records as finished that will be fetched: the metadata of a commit names them."""
        self._restored = finished

    def add(self, records: Sequence[Record]) -> Sequence[Record]:
        """Add fetched records; return those that are not finished."""
        del self._pending[: self._start]
        self._start = 0
        # mutation: compacted-record-counts-as-unfinished
        self._pending.extend(offsets_of(records))
        for offset, epoch in leader_epochs_of(records):
            self._add_epoch(offset, epoch)
        if self.first is None:
            self.first = self._pending[0]
        self._next = self._pending[-1] + 1
        return records if self._restored is None else self._skip_finished(records, self._restored)

    def _skip_finished(
        self, records: Sequence[Record], restored: FinishedRecords
    ) -> Sequence[Record]:
        """Finish the added records that an earlier commit names; return the others."""
        last = records[-1]
        if (
            records[0].offset < restored.offset  # the topic was created again
            or last.leader_epoch > restored.leader_epoch
            or last.offset >= restored.ranges[-1][1]
        ):
            self._restored = None
        if records[0].offset < restored.offset:
            return records
        finished: list[Record] = []
        unfinished: list[Record] = []
        for record in records:
            is_finished = restored.has(record.offset, record.leader_epoch)
            (finished if is_finished else unfinished).append(record)
        self.finish(finished)
        return unfinished

    def skip_to(self, position: OffsetAndMetadata) -> None:
        """Commit up to a position once all records before it are finished.

        The offsets between the last record and the position have no record to process, such as the
        marker at the end of a transaction.
        """
        if self._next is not None and position.offset <= self._next:
            return
        if self.first is None:
            self.first = position.offset
        self._next = position.offset
        self._add_epoch(position.offset - 1, position.leader_epoch)

    def _add_epoch(self, offset: int, epoch: int) -> None:
        if not self._epochs or self._epochs[-1][1] != epoch:
            self._epochs.append((offset, epoch))

    def finish(self, records: Sequence[Record]) -> None:
        """Mark records as finished."""
        pending, finished, start = self._pending, self._finished, self._start
        offsets = offsets_of(records)
        end = start + len(offsets)
        if pending[start:end] == offsets:
            start = end
        else:
            finished.update(offsets)
        while finished and pending[start] in finished:
            finished.remove(pending[start])
            start += 1
        self._start = start

    @property
    def _committable_offset(self) -> int | None:
        # mutation: unfinished-record-committed
        offset = self._pending[self._start] if len(self) else self._next
        return offset

    @property
    def committable(self) -> OffsetAndMetadata | None:
        """The offset of the lowest unfinished record, or behind the last one; None if unknown."""
        offset = self._committable_offset
        if offset is None:
            return None
        epochs = self._epochs
        while len(epochs) > 1 and epochs[1][0] < offset:
            epochs.popleft()
        # That of the record before `offset`, as the Java consumer commits it (KIP-320).
        epoch = epochs[0][1] if epochs[0][0] < offset else NO_LEADER_EPOCH
        return OffsetAndMetadata(offset, leader_epoch=epoch)

    @property
    def finished_records(self) -> FinishedRecords | None:
        """The finished records above the committable offset; None before the first record."""
        committable = self._committable_offset
        if self._next is None or committable is None:
            return None
        ranges: list[tuple[int, int]] = []
        is_in_range = False
        for offset in self._pending[self._start :]:
            # mutation: unfinished-record-named-as-finished
            is_finished = offset in self._finished
            if is_finished:
                # Offsets without a record do not end a range.
                first = ranges.pop()[0] if is_in_range else offset
                ranges.append((first, offset + 1))
            is_in_range = is_finished
        leader_epoch = self._epochs[-1][1]
        if self._restored is not None:
            leader_epoch = max(leader_epoch, self._restored.leader_epoch)
            for first, end in self._restored.ranges:
                if end > self._next:
                    ranges.append((max(first, self._next), end))
        return FinishedRecords(committable, leader_epoch, tuple(ranges))
