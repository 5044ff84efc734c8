"""Acquired records in batches that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from aiokafkawire.errors import CorruptRecord

from .acknowledgements import AcknowledgeType
from .acquire_limit import MAX_RECORDS
from .record import HeldRecords, ShareRecord

__all__ = ("CorruptBatches",)


@dataclass(frozen=True, slots=True)
class CorruptBatches:
    """The acquired records of the batches for which an error is raised.

    Attributes:
        error: The error of the first batch.
        parts: Locks of ranges of records, with the first and the last offset.
    """

    error: CorruptRecord
    parts: Sequence[tuple[HeldRecords, int, int]]

    def with_later(self, later: CorruptBatches) -> CorruptBatches:
        """Return these and later batches of the partition, without records that are not held."""
        held = [part for part in self.parts if part[0].undecided(part[1], part[2])]
        return CorruptBatches(self.error, [*held, *later.parts])

    def records(self) -> list[ShareRecord]:
        """Return the records that are held and not acknowledged, without key and value."""
        return list(islice(self._records(), MAX_RECORDS))

    def release(self) -> None:
        """Release the records that are held and not acknowledged."""
        for held, first, last in self.parts:
            held.acknowledge_undecided(range(first, last + 1), AcknowledgeType.RELEASE)

    def _records(self) -> Iterator[ShareRecord]:
        for held, first, last in self.parts:
            for begin, end in held.undecided(first, last):
                for offset in range(begin, end + 1):
                    record = ShareRecord(*held.partition.topic_partition, offset)
                    record._held = held
                    yield record
