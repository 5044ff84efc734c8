"""Decode the records of one partition of a fetch response, as a consumer sees them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.types import NO_LEADER_EPOCH, TimestampType, TopicPartition

from .aborted_transactions import AbortedTransactions
from .batch import BATCH_OVERHEAD_BYTES, MAGIC_V2, MAX_OFFSET, BatchView, batch_at
from .columns import Columns
from .decode_options import DecodeOptions, IsolationLevel
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

__all__ = ("FetchedBatches", "OffloadedBatch", "decode_fetch", "partial_message_size")

_OFFSET_AND_SIZE = Struct(">qi")

DEFAULT_OPTIONS = DecodeOptions()

NO_CHUNKS: Iterator[Columns] = iter(())


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


class OpenBatch:
    """A batch whose records are decoded in chunks.

    Attributes:
        view: The batch.
        start: Position of the batch in the fetched bytes.
        chunks: The next records; none if the application must not see the batch.
        remaining_records: Number of records in `chunks`, by the header of a batch of format 2.
    """

    __slots__ = ("chunks", "remaining_records", "start", "view")

    def __init__(self, view: BatchView, start: int) -> None:
        self.view = view
        self.start = start
        self.chunks = NO_CHUNKS
        self.remaining_records = 0


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
        "_aborted_transactions",
        "_batch",
        "_data",
        "_failure",
        "_high_watermark",
        "_next_at",
        "_options",
        "_pending",
        "_pending_next_offset",
        "_run",
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
        options: DecodeOptions = DEFAULT_OPTIONS,
        *,
        aborted: Iterable[tuple[int, int]] = (),
        high_watermark: int | None = None,
    ) -> None:
        """`aborted` has (producer id, first offset) of each aborted transaction."""
        self._topic_partition = TopicPartition(topic, partition)
        self._data = memoryview(data)
        self._options = options
        self._next_at: int | None = 0  # position of the next batch; None at the end
        self._batch: OpenBatch | None = None
        self._pending: Segment | None = None
        self._run: Sequence[UncompressedBatch] = ()  # batches of `_pending`; empty if not a run
        self._pending_next_offset = fetch_offset
        self._aborted_transactions: AbortedTransactions | None = None
        if options.isolation == IsolationLevel.READ_COMMITTED:
            self._aborted_transactions = AbortedTransactions(aborted)
        self._high_watermark = high_watermark
        self._failure: CorruptRecord | None = None
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
        pending, batch = self._pending, self._batch
        if pending is not None and self._run:
            return len(self._data) - batch_at_index(self._run, pending.start).start
        if batch is not None and (pending is not None or batch.remaining_records > 0):
            return len(self._data) - batch.start
        return 0 if self._next_at is None else len(self._data) - self._next_at

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
                batch = self._batch
                if batch is not None and (columns := next(batch.chunks, None)) is not None:
                    self._pending = self._visible_segment(batch, columns)
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
        if self._batch is not None and (previous := self._batch.view).next_offset > self.position:
            self.position = previous.next_offset
            self.leader_epoch = previous.partition_leader_epoch
        self._batch = None  # `batch_at` below may raise
        if self._load_uncompressed_run(max_bytes):
            return True
        self._run = ()
        start, options = self._next_at, self._options
        view = None if start is None else batch_at(self._data, start)
        if start is None or view is None:
            self._next_at = None
            return False
        self.decoded_bytes += BATCH_COST_BYTES
        self._batch = batch = OpenBatch(view, start)
        self._next_at = start + view.size_bytes
        if (first := _header_offset(view)) < 0:
            raise CorruptRecord(f"a batch cannot have offset {first}", offset=first)
        if _has_invalid_range(view, self._high_watermark):
            raise CorruptRecord(
                f"a batch of {view.count} records from {view.base_offset} on claims to end"
                f" at {view.last_offset}, but the log ends at {self._high_watermark}",
                offset=view.base_offset,
            )
        if view.last_offset < self.position and not view.is_control:
            return True
        if options.max_inline_bytes is not None and view.size_bytes > options.max_inline_bytes:
            limit = options.max_decompressed_bytes
            self.offloaded = OffloadedBatch(view, options.check_crcs, limit)
            return True
        if options.check_crcs:
            # mutation: crc-not-checked
            view.check_crc()
        self._open_batch(batch)
        return True

    def _load_uncompressed_run(self, max_bytes: int | None) -> bool:
        """Advance to a run of uncompressed batches and decode it.

        Return False without an effect if the next batch is of another kind, large or corrupt.
        """
        start = self._next_at
        if start is None or len(self._data) - start < BATCH_OVERHEAD_BYTES:
            return False
        options, position = self._options, self.position
        max_bytes_in_run = options.max_decompressed_bytes
        if options.max_inline_bytes is not None:
            max_bytes_in_run = min(max_bytes_in_run, options.max_inline_bytes)
        batches = find_uncompressed_run(
            self._data,
            start,
            start + max_bytes_in_run,
            position,
            MAX_OFFSET if max_bytes is None else max_bytes - self.decoded_bytes,
            self._high_watermark,
            options.check_crcs,
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

    def _open_batch(self, batch: OpenBatch) -> None:
        """Set up the record chunks of a batch, unless the application must not see its records."""
        view, aborted = batch.view, self._aborted_transactions
        inline_limit = self._options.max_inline_bytes
        limit = self._options.max_decompressed_bytes
        # mutation: control-records-returned
        if (aborted is not None and aborted.include(view, limit)) or view.is_control:
            return
        if (
            inline_limit is not None
            and inline_limit < limit
            and not view.try_decompress(inline_limit)
        ):
            # The checksum is verified already.
            self.offloaded = OffloadedBatch(view, check_crcs=False, max_decompressed_bytes=limit)
            return
        if view.is_uncompressed_legacy_message:
            check_crcs = self._options.check_crcs
            columns, self._next_at = read_legacy_run(self._data, batch.start, check_crcs)
            # From here on `view` represents all messages of the run.
            view.last_offset = columns.offsets[-1]
            batch.chunks = iter((columns,))
        else:
            batch.chunks = view.chunks(limit)
        batch.remaining_records = view.count if view.magic == MAGIC_V2 else 0

    def _end_of_corrupt_batch(self) -> int | None:
        """Return the offset after the corrupt batch, by the next batch or by its own header.

        None if neither is plausible.
        """
        if self._batch is None:
            return None
        batch = self._batch.view
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

    def _visible_segment(self, batch: OpenBatch, columns: Columns) -> Segment | None:
        """Return the records at or after `position`, None if there are none."""
        view = batch.view
        if view.magic < MAGIC_V2:
            _check_order(view, columns.offsets)
        count = len(columns)
        self.decoded_bytes += len(columns.data) * count // max(view.count, count, 1)
        batch.remaining_records -= count
        # mutation: records-before-position-returned
        start = bisect_left(columns.offsets, self.position)
        if start == count:
            return None
        last = view.next_offset if batch.remaining_records <= 0 else columns.offsets[-1] + 1
        self._pending_next_offset = max(last, self.position)
        return Segment(columns, start, count, view.timestamp_type, view.partition_leader_epoch)


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


def decode_fetch(
    topic: str,
    partition: int,
    data: Buffer | None,
    fetch_offset: int,
    options: DecodeOptions = DEFAULT_OPTIONS,
    *,
    aborted: Iterable[tuple[int, int]] | None = (),
    high_watermark: int | None = None,
) -> FetchedBatches:
    """Return the batches of one partition of a fetch response; null `data` is empty."""
    return FetchedBatches(
        topic,
        partition,
        b"" if data is None else data,
        fetch_offset,
        options,
        aborted=aborted or (),
        high_watermark=high_watermark,
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
