"""The offset of a partition that may be committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from aiokafkawire.records import Record, Records
from aiokafkawire.types import NO_LEADER_EPOCH, OffsetAndMetadata

__all__ = ("OffsetTracker",)


def offsets_of(records: Sequence[Record]) -> list[int]:
    if isinstance(records, Records):
        return records.offsets()
    return [record.offset for record in records]


class OffsetTracker:
    """Tracks the lowest unfinished record of a partition.

    Records are added in the order of offsets; logs have gaps. They may finish in any order.

    Attributes:
        committed: The offset that was committed last; None if none was.
    """

    __slots__ = ("_epochs", "_finished", "_next", "_pending", "committed")

    def __init__(self) -> None:
        self.committed: OffsetAndMetadata | None = None
        self._pending: deque[int] = deque()  # from the lowest unfinished record on
        self._finished: set[int] = set()  # records of `_pending` that are finished
        self._next: int | None = None  # after the last record
        self._epochs: deque[tuple[int, int]] = deque()  # first offset of each leader epoch

    def __len__(self) -> int:
        """Return the number of records from the lowest unfinished one to the last one."""
        return len(self._pending)

    def is_before(self, offset: int) -> bool:
        """Return whether an offset may be added: it is behind all records so far."""
        return self._next is None or self._next <= offset

    def add(self, records: Sequence[Record]) -> None:
        """Add fetched records."""
        self._pending.extend(offsets_of(records))
        for record in (records[0], records[-1]):
            if not self._epochs or self._epochs[-1][1] != record.leader_epoch:
                self._epochs.append((record.offset, record.leader_epoch))
        self._next = self._pending[-1] + 1

    def finish(self, records: Sequence[Record]) -> None:
        """Mark records as finished."""
        pending, finished = self._pending, self._finished
        for offset in offsets_of(records):
            if pending[0] == offset:
                pending.popleft()
            else:
                finished.add(offset)
        while finished and pending[0] in finished:
            finished.remove(pending.popleft())

    @property
    def committable(self) -> OffsetAndMetadata | None:
        """The offset of the lowest unfinished record; None before the first record."""
        # mutation: unfinished-record-committed
        offset = self._pending[0] if self._pending else self._next
        if offset is None:
            return None
        epochs = self._epochs
        while len(epochs) > 1 and epochs[1][0] < offset:
            epochs.popleft()
        # That of the record before `offset`, as the Java consumer commits it (KIP-320).
        epoch = epochs[0][1] if epochs[0][0] < offset else NO_LEADER_EPOCH
        return OffsetAndMetadata(offset, leader_epoch=epoch)
