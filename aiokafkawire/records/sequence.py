"""`Records`: a sequence of the records of one partition, stored in columns."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from aiokafkawire.types import NO_LEADER_EPOCH, KeyT, TimestampType, TopicPartition, ValueT

from .columns import Columns
from .kernel import Record, make_records, slices, total

if TYPE_CHECKING:
    import pyarrow

__all__ = ("Records", "Segment")

ITERATION_CHUNK_RECORDS = 256
"""Number of `Record` objects that iteration creates at a time."""


class Segment(NamedTuple):
    """A [start, stop) slice of one set of columns. `held` is the lock in a share group."""

    columns: Columns
    start: int
    stop: int
    timestamp_type: TimestampType
    leader_epoch: int
    held: object = None


class Records(Sequence[Record[KeyT, ValueT]]):
    """An immutable sequence of records of one partition, in offset order.

    A `Record` is created on access, with copies of its key and value. The sequence keeps the
    decompressed batches of its records in memory, and those decoded with them. Slicing copies
    nothing.
    """

    __slots__ = ("_ends", "_segments", "leader_epoch", "next_offset", "topic_partition")

    def __init__(
        self,
        topic: str,
        partition: int,
        segments: Sequence[Segment],
        next_offset: int,
        leader_epoch: int | None = None,
    ) -> None:
        """Create a sequence of segments.

        Args:
            topic: Topic of the records.
            partition: Partition of the records.
            segments: Slices of columns.
            next_offset: Position after the last record; the next fetch starts there.
            leader_epoch: Leader epoch of the offset before `next_offset`, -1 if unknown. Default:
                that of the last record, after which there may be batches without records.
        """
        self.topic_partition = TopicPartition(topic, partition)
        self._segments = tuple([segment for segment in segments if segment.start < segment.stop])
        self._ends = [*accumulate([segment.stop - segment.start for segment in self._segments])]
        self.next_offset = next_offset
        if leader_epoch is None:
            last = self._segments[-1] if self._segments else None
            leader_epoch = NO_LEADER_EPOCH if last is None else last.leader_epoch
        self.leader_epoch = leader_epoch

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.topic_partition.partition

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    @property
    def first_offset(self) -> int | None:
        """The offset of the first record, None if there is none."""
        if not self._segments:
            return None
        first = self._segments[0]
        return first.columns.offsets[first.start]

    @property
    def last_offset(self) -> int | None:
        """The offset of the last record, None if there is none."""
        if not self._segments:
            return None
        last = self._segments[-1]
        return last.columns.offsets[last.stop - 1]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Record[KeyT, ValueT]]:
        return chain.from_iterable(self._record_chunks())

    def _record_chunks(self) -> Iterator[list[Record[KeyT, ValueT]]]:
        """Yield records in small lists, so that the allocator reuses their memory."""
        topic, partition = self.topic_partition
        for columns, start, stop, timestamp_type, leader_epoch, held in self._segments:
            for at in range(start, stop, ITERATION_CHUNK_RECORDS):
                yield make_records(
                    columns,
                    at,
                    min(at + ITERATION_CHUNK_RECORDS, stop),
                    topic,
                    partition,
                    timestamp_type,
                    leader_epoch,
                    held,
                )

    @overload
    def __getitem__(self, index: int) -> Record[KeyT, ValueT]: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> Record[KeyT, ValueT] | Self:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("Records are sliced without a step")
            return self._slice(start, stop)
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"there is no record {index} among {len(self)}")
        return next(iter(self._slice(at, at + 1)))

    def _slice(self, start: int, stop: int) -> Self:
        if start == 0 and stop == len(self):
            return self
        kind = type(self)
        topic, partition = self.topic_partition
        if start >= stop:
            offset = self._offset_at(start)
            return kind(topic, partition, (), self.next_offset if offset is None else offset)
        parts = []
        first = bisect_right(self._ends, start)
        last = bisect_left(self._ends, stop)
        for number in range(first, last + 1):
            columns, begin, _, timestamp_type, leader_epoch, held = self._segments[number]
            before = self._ends[number - 1] if number else 0
            # mutation: slice-of-batch-begins-too-early
            first_index = begin + max(start - before, 0)
            end = begin + min(stop, self._ends[number]) - before
            parts.append(Segment(columns, first_index, end, timestamp_type, leader_epoch, held))
        # The next offset is that of the record after the slice, so that gaps are not read again.
        next_offset = self._offset_at(stop)
        if next_offset is None:
            return kind(topic, partition, parts, self.next_offset, self.leader_epoch)
        return kind(topic, partition, parts, next_offset)

    def between(self, first_offset: int, last_offset: int) -> Self:
        """Return the records with offsets from `first_offset` to `last_offset`."""
        return self._slice(self._index_of(first_offset), self._index_of(last_offset + 1))

    def _index_of(self, offset: int) -> int:
        """Return the index of the first record at or after an offset."""
        before = 0
        for segment, end in zip(self._segments, self._ends, strict=True):
            offsets = segment.columns.offsets
            if offset <= offsets[segment.stop - 1]:
                return (
                    before
                    + bisect_left(offsets, offset, segment.start, segment.stop)
                    - segment.start
                )
            before = end
        return before

    def _offset_at(self, at: int) -> int | None:
        if at >= len(self):
            return None
        number = bisect_right(self._ends, at)
        segment = self._segments[number]
        before = self._ends[number - 1] if number else 0
        return segment.columns.offsets[segment.start + at - before]

    def keys(self) -> list[KeyT | None]:
        """Return all keys, in order."""
        keys: list[Any] = []
        for columns, start, stop, *_ in self._segments:
            keys += slices(columns.data, columns.key_start, columns.key_length, start, stop)
        return keys

    def values(self) -> list[ValueT | None]:
        """Return all values, in order."""
        values: list[Any] = []
        for columns, start, stop, *_ in self._segments:
            values += slices(columns.data, columns.value_start, columns.value_length, start, stop)
        return values

    def offsets(self) -> list[int]:
        """Return all offsets, in order."""
        return [
            offset
            for segment in self._segments
            for offset in segment.columns.offsets[segment.start : segment.stop]
        ]

    @property
    def size_bytes(self) -> int:
        """The bytes of all keys and values."""
        return sum(
            total(lengths, start, stop)
            for columns, start, stop, *_ in self._segments
            for lengths in (columns.key_length, columns.value_length)
        )

    @property
    def has_headers(self) -> bool:
        """True if a record may have headers; False if none has."""
        return any(segment.columns.has_headers for segment in self._segments)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pyarrow.RecordBatch:
        """Convert the records to a `pyarrow.RecordBatch`; needs the extra `arrow`.

        Args:
            columns: Names of the columns to return. Default: topic, partition, offset, timestamp
                (ms, UTC; null for none), timestamp_type, key, value, headers (list of key and
                value; null for none).

        Raises:
            KeyError: A name is not a column.
            ImportError: pyarrow is not installed.
        """
        try:
            from .arrow import to_arrow  # noqa: PLC0415 - pyarrow is optional and slow to import
        except ImportError as error:
            raise ImportError("to_arrow() needs pyarrow: install aiokafkawire[arrow]") from error
        return to_arrow(self, columns)

    def __repr__(self) -> str:
        return (
            f"Records({self.topic_partition}, {len(self)} records, offsets "
            f"{self.first_offset} to {self.last_offset})"
        )
