"""Decode the records of one partition of a fetch response, as a consumer sees them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.types import NO_LEADER_EPOCH, TimestampType, TopicPartition

from .batch import BATCH_OVERHEAD_BYTES, MAGIC_V2, MAX_OFFSET, BatchView, batch_at
from .columns import Columns
from .compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from .fetched_range import exceeds_log_end
from .kernel import Buffer
from .legacy import LOG_OVERHEAD_BYTES, read_legacy_run
from .sequence import Records, Segment
from .uncompressed_runs import (
    BATCH_COST_BYTES,
    UncompressedBatch,
    batch_at_index,
    decode_uncompressed_run,
    find_uncompressed_run,
)

__all__ = (
    "FetchedBatches",
    "IsolationLevel",
    "OffloadedBatch",
    "decode_fetch",
    "partial_message_size",
)

_OFFSET_AND_SIZE = Struct(">qi")

ABORT_MARKER = 0
"""The type of an abort marker, in the second half of a control record's key."""


class IsolationLevel(IntEnum):
    """Isolation level of a fetch, by its number on the wire (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffloadedBatch:
    """A batch that would block the event loop for too long to verify and decompress.

    `decompress` may run in a worker thread; reading continues once it is `done`.
    """

    __slots__ = ("_batch", "_check_crcs", "_max_decompressed_bytes", "done", "failure")

    def __init__(self, batch: BatchView, check_crcs: bool, max_decompressed_bytes: int) -> None:
        self._batch = batch
        self._check_crcs = check_crcs
        self._max_decompressed_bytes = max_decompressed_bytes
        self.failure: CorruptRecord | None = None
        self.done = False

    def decompress(self) -> None:
        """Verify the checksum and decompress; keep a `CorruptRecord` in `failure`."""
        try:
            if self._check_crcs:
                self._batch.check_crc()
            self._batch.decompress(self._max_decompressed_bytes)
        except CorruptRecord as error:
            self.failure = error
        self.done = True


class FetchedBatches:
    """The fetched batches of one partition, decoded as records are taken.

    Uncompressed batches are decoded a run at a time (`uncompressed_runs`), others one by one.
    Control batches, records below the fetch offset and, with READ_COMMITTED, records of aborted
    transactions are skipped. An incomplete last batch is ignored.

    `CorruptRecord` is raised after all records before the corrupt batch were taken, and again by
    each further call; `position` stays before the batch. A batch that ends beyond `high_watermark`
    although its count of records does not is corrupt.

    Attributes:
        position: Next offset to fetch; it also moves over skipped records.
        leader_epoch: Leader epoch of the offset before `position`; -1 if unknown.
        offloaded: Next batch, if it takes more than `max_inline_bytes` to decompress; `take` stops
            before it until its `decompress` has run.
        decoded_bytes: Bytes that the last `take` decoded.
    """

    __slots__ = (
        "_aborted",
        "_aborted_producers",
        "_batch",
        "_check_crcs",
        "_chunks",
        "_committed_only",
        "_data",
        "_failure",
        "_high_watermark",
        "_max_decompressed_bytes",
        "_max_inline_bytes",
        "_next_at",
        "_pending",
        "_pending_next_offset",
        "_remaining_records",
        "_run",
        "_start",
        "_topic_partition",
        "decoded_bytes",
        "leader_epoch",
        "offloaded",
        "position",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        data: Buffer,
        fetch_offset: int,
        *,
        check_crcs: bool = True,
        isolation: int = IsolationLevel.READ_UNCOMMITTED,
        aborted: Iterable[tuple[int, int]] = (),
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        high_watermark: int | None = None,
        max_inline_bytes: int | None = None,
    ) -> None:
        """`aborted` has (producer id, first offset) of each aborted transaction."""
        self._topic_partition = TopicPartition(topic, partition)
        self._data = memoryview(data)
        self._start = 0  # position of the current batch, or of the first batch of a run
        self._next_at: int | None = 0  # position of the next batch; None at the end
        self._batch: BatchView | None = None
        self._chunks: Iterator[Columns] = iter(())
        self._remaining_records = 0
        self._check_crcs = check_crcs
        self._committed_only = isolation == IsolationLevel.READ_COMMITTED
        self._aborted = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._aborted_producers: set[int] = set()
        self._max_decompressed_bytes = max_decompressed_bytes
        self._high_watermark = high_watermark
        self._failure: CorruptRecord | None = None
        self._pending: Segment | None = None
        self._run: Sequence[UncompressedBatch] = ()  # batches of `_pending`; empty if not a run
        self._pending_next_offset = fetch_offset
        self._max_inline_bytes = max_inline_bytes
        self.offloaded: OffloadedBatch | None = None
        self.decoded_bytes = 0
        self.position = fetch_offset
        self.leader_epoch = NO_LEADER_EPOCH

    @property
    def exhausted(self) -> bool:
        """True if all records were taken."""
        return self._next_at is None and self._pending is None

    @property
    def remaining_bytes(self) -> int:
        """Size of the batches that are not completely taken."""
        if self._pending is not None and self._run:
            return len(self._data) - batch_at_index(self._run, self._pending.start).start
        if self._pending is not None or self._remaining_records > 0 or self._next_at is None:
            return len(self._data) - self._start
        return len(self._data) - self._next_at

    def take(self, max_records: int, max_bytes: int | None = None) -> Records:
        """Return at most `max_records` records.

        Returns fewer at the end, before an `offloaded` batch, or once `max_bytes` are decoded.
        """
        segments: list[Segment] = []
        missing = max_records
        self.decoded_bytes = 0
        while missing > 0:
            if self._pending is None and not self._load(not segments, max_bytes):
                break
            segment = self._take_pending(missing)
            segments.append(segment)
            missing -= segment.stop - segment.start
        return Records(*self._topic_partition, segments, self.position, self.leader_epoch)

    def __iter__(self) -> Iterator[Records]:
        """Yield one `Records` per batch, without empty ones."""
        while self._pending is not None or self._load(True):
            rest, run = self._pending, self._run
            assert rest is not None
            limit = batch_at_index(run, rest.start).stop - rest.start if run else None
            batch = self._take_pending(limit)
            yield Records(*self._topic_partition, (batch,), self.position)

    def _take_pending(self, limit: int | None) -> Segment:
        rest = self._pending
        assert rest is not None
        self.leader_epoch = rest.leader_epoch
        size = rest.stop - rest.start
        if limit is None or limit >= size:
            self._pending = None
            self.position = self._pending_next_offset
            return rest
        columns, start, stop, timestamp_type, leader_epoch, _ = rest
        cut = start + limit
        self._pending = Segment(columns, cut, stop, timestamp_type, leader_epoch)
        self.position = columns.offsets[cut - 1] + 1
        if self._run and (batch := batch_at_index(self._run, cut - 1)).stop == cut:
            self.position = batch.last_offset + 1  # compaction may have removed the last records
        return Segment(columns, start, cut, timestamp_type, leader_epoch)

    def _load(self, raise_failure: bool, max_bytes: int | None = None) -> bool:
        """Set `_pending` to the next records.

        Return False at the end, before a failure or an offloaded batch, or once `max_bytes` are
        decoded.
        """
        try:
            while self._failure is None and self._pending is None:
                if self.offloaded is not None:
                    if not self.offloaded.done:
                        return False
                    self._open_offloaded(self.offloaded)
                if max_bytes is not None and self.decoded_bytes >= max_bytes:
                    return False
                columns = None if self._batch is None else next(self._chunks, None)
                if columns is not None:
                    self._pending = self._visible_segment(columns)
                elif not self._next_batch(max_bytes):
                    return False
        except CorruptRecord as error:
            error.topic, error.partition = self._topic_partition
            error.next_offset = self._end_of_corrupt_batch()
            self._failure = error
        if raise_failure and self._failure is not None:
            raise self._failure.with_traceback(None)
        return self._pending is not None

    def _next_batch(self, max_bytes: int | None) -> bool:
        """Advance to the next batch, or to a run of batches; return False if there is none."""
        if self._batch is not None and self._batch.next_offset > self.position:
            self.position = self._batch.next_offset
            self.leader_epoch = self._batch.partition_leader_epoch
        self._batch = None  # `batch_at` below may raise
        self._remaining_records = 0
        if self._load_uncompressed_run(max_bytes):
            return True
        self._run = ()
        self._chunks = iter(())
        self._batch = None if self._next_at is None else batch_at(self._data, self._next_at)
        batch = self._batch
        if batch is None:
            self._next_at = None
            self._start = len(self._data)
            return False
        self.decoded_bytes += BATCH_COST_BYTES
        self._start = self._next_at or 0
        self._next_at = self._start + batch.size_bytes
        if (first := _header_offset(batch)) < 0:
            raise CorruptRecord(f"a batch cannot have offset {first}", offset=first)
        if _has_invalid_range(batch, self._high_watermark):
            raise CorruptRecord(
                f"a batch of {batch.count} records from {batch.base_offset} on claims to end"
                f" at {batch.last_offset}, but the log ends at {self._high_watermark}",
                offset=batch.base_offset,
            )
        if batch.last_offset < self.position and not batch.is_control:
            return True
        if self._max_inline_bytes is not None and batch.size_bytes > self._max_inline_bytes:
            self.offloaded = OffloadedBatch(batch, self._check_crcs, self._max_decompressed_bytes)
            return True
        if self._check_crcs:
            # mutation: crc-not-checked
            batch.check_crc()
        self._open_batch(batch)
        return True

    def _load_uncompressed_run(self, max_bytes: int | None) -> bool:
        """Advance to a run of uncompressed batches and decode it.

        Return False without an effect if the next batch is of another kind, large or corrupt.
        """
        start = self._next_at
        if start is None or len(self._data) - start < BATCH_OVERHEAD_BYTES:
            return False
        inline_limit, position = self._max_inline_bytes, self.position
        max_bytes_in_run = self._max_decompressed_bytes
        if inline_limit is not None:
            max_bytes_in_run = min(max_bytes_in_run, inline_limit)
        limit = start + max_bytes_in_run
        budget_bytes = MAX_OFFSET if max_bytes is None else max_bytes - self.decoded_bytes
        batches = find_uncompressed_run(
            self._data, start, limit, position, budget_bytes, self._high_watermark, self._check_crcs
        )
        if not batches:
            return False
        begins_before = batches[0].base_offset < position
        columns = decode_uncompressed_run(self._data, batches)
        first = bisect_left(columns.offsets, position) if begins_before else 0
        if first == len(columns.offsets):
            return False
        _, self._next_at, stop, _, last, _, leader_epoch = batches[-1]
        self.decoded_bytes += BATCH_COST_BYTES * len(batches) + self._next_at - start
        self._start = start
        self._pending = Segment(columns, first, stop, TimestampType.CREATE_TIME, leader_epoch)
        self._pending_next_offset = last + 1
        self._run = batches
        return True

    def _open_offloaded(self, offloaded: OffloadedBatch) -> None:
        self.offloaded = None
        if offloaded.failure is not None:
            raise offloaded.failure
        assert self._batch is not None
        self._open_batch(self._batch)

    def _open_batch(self, batch: BatchView) -> None:
        """Set up the record chunks of a batch, unless the application must not see its records."""
        # mutation: control-records-returned
        if (self._committed_only and self._is_aborted(batch)) or batch.is_control:
            return
        inline_limit, limit = self._max_inline_bytes, self._max_decompressed_bytes
        if (
            inline_limit is not None
            and inline_limit < limit
            and not batch.try_decompress(inline_limit)
        ):
            # The checksum is verified already.
            self.offloaded = OffloadedBatch(batch, check_crcs=False, max_decompressed_bytes=limit)
            return
        if batch.is_uncompressed_legacy_message:
            columns, self._next_at = read_legacy_run(self._data, self._start, self._check_crcs)
            self._chunks = iter((columns,))
            # From here on `batch` represents all messages of the run.
            batch.last_offset = columns.offsets[-1]
        else:
            self._chunks = batch.chunks(limit)
        self._remaining_records = batch.count if batch.magic == MAGIC_V2 else 0

    def _end_of_corrupt_batch(self) -> int | None:
        """Return the offset after the corrupt batch, by the next batch or by its own header.

        None if neither is plausible.
        """
        batch = self._batch
        if batch is None:
            return None
        end: int | None = None
        try:
            following = None if self._next_at is None else batch_at(self._data, self._next_at)
            if following is not None and following.magic == MAGIC_V2:
                end = following.base_offset
        except CorruptRecord:
            # The next batch is corrupt too, so its base offset is unknown.
            end = None
        if end is None and not _has_invalid_range(batch, self._high_watermark):
            end = batch.next_offset
        return end if end is not None and self.position < end <= MAX_OFFSET else None

    def _visible_segment(self, columns: Columns) -> Segment | None:
        """Return the records at or after `position`, None if there are none."""
        batch = self._batch
        assert batch is not None
        if batch.magic < MAGIC_V2:
            _check_order(batch, columns.offsets)
        count = len(columns)
        self.decoded_bytes += len(columns.data) * count // max(batch.count, count, 1)
        self._remaining_records -= count
        # mutation: records-before-position-returned
        start = bisect_left(columns.offsets, self.position)
        if start == count:
            return None
        last = batch.next_offset if self._remaining_records <= 0 else columns.offsets[-1] + 1
        self._pending_next_offset = max(last, self.position)
        return Segment(columns, start, count, batch.timestamp_type, batch.partition_leader_epoch)

    def _is_aborted(self, batch: BatchView) -> bool:
        """Return True if the batch belongs to an aborted transaction (KIP-98).

        Call it for each batch in order: it tracks which transactions begin and end.
        """
        if batch.producer_id < 0:
            return False
        # mutation: single-aborted-batch-returned
        while self._aborted and self._aborted[-1][1] <= batch.last_offset:
            self._aborted_producers.add(self._aborted.pop()[0])
        if batch.producer_id not in self._aborted_producers:
            return False
        if batch.is_control:
            if control_type(batch, self._max_decompressed_bytes) == ABORT_MARKER:
                # mutation: abort-marker-ignored
                self._aborted_producers.discard(batch.producer_id)
            return False
        # mutation: aborted-records-returned
        return batch.is_transactional


def _has_invalid_range(batch: BatchView, high_watermark: int | None) -> bool:
    """Return True if the offsets in the header of a batch are impossible."""
    if _header_offset(batch) < 0:
        return True
    if batch.magic < MAGIC_V2:
        return False
    delta = batch.last_offset - batch.base_offset
    return delta < 0 or exceeds_log_end(batch.last_offset, delta, batch.count, high_watermark)


def _header_offset(batch: BatchView) -> int:
    """Return the offset in the header: of the first record, before format 2 of the last."""
    return batch.base_offset if batch.magic == MAGIC_V2 else batch.last_offset


def _check_order(batch: BatchView, offsets: Iterable[int]) -> None:
    """Raise `CorruptRecord` if the offsets inside a wrapper message do not rise."""
    previous = -1
    for offset in offsets:
        if offset <= previous:
            raise CorruptRecord("offsets of a message set do not rise", offset=batch.last_offset)
        previous = offset
    if previous > batch.last_offset:
        raise CorruptRecord("a message's offset is past its wrapper's", offset=batch.last_offset)


def control_type(
    batch: BatchView, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> int | None:
    """Return the type of a control batch (0 abort, 1 commit), None if compaction left it empty."""
    first = next(batch.chunks(max_decompressed_bytes, max_records=1), None)
    if first is None or not len(first):
        return None
    key = first.key(0)
    if key is None or len(key) < 4:
        raise CorruptRecord("a control record has no type", offset=batch.base_offset)
    return int.from_bytes(key[2:4], signed=True)


def decode_fetch(
    topic: str,
    partition: int,
    data: Buffer | None,
    fetch_offset: int,
    *,
    check_crcs: bool = True,
    isolation: int = IsolationLevel.READ_UNCOMMITTED,
    aborted: Iterable[tuple[int, int]] | None = (),
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    high_watermark: int | None = None,
    max_inline_bytes: int | None = None,
) -> FetchedBatches:
    """Return the batches of one partition of a fetch response; null `data` is empty."""
    return FetchedBatches(
        topic,
        partition,
        b"" if data is None else data,
        fetch_offset,
        check_crcs=check_crcs,
        isolation=isolation,
        aborted=aborted or (),
        max_decompressed_bytes=max_decompressed_bytes,
        high_watermark=high_watermark,
        max_inline_bytes=max_inline_bytes,
    )


def partial_message_size(buffer: Buffer | None) -> int | None:
    """Return the full size in bytes of a first message that the fetch response cut off.

    Fetch before version 3 returns the start of a too large message without an error. None if the
    first message is complete, or if its size field is incomplete.
    """
    if buffer is None or len(buffer) < LOG_OVERHEAD_BYTES:
        return None
    _, size = _OFFSET_AND_SIZE.unpack_from(buffer)
    full_size = LOG_OVERHEAD_BYTES + int(size)
    return full_size if full_size > len(buffer) else None
