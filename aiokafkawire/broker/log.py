"""Log of one partition: segments of batches, with an index in memory."""

from __future__ import annotations

import contextlib
import logging
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct

from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.configs import LogConfig
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.producer_state import (
    NO_PRODUCER_ID,
    EndTransactionMarker,
    ProducerStateManager,
    SequencedBatch,
    last_sequence,
)
from aiokafkawire.broker.storage import SegmentData, Store
from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records.batch import BatchView, iter_batches

__all__ = ("PartitionLog", "StoredBatch", "TimestampAndOffset", "sequenced_batch")

logger = logging.getLogger("aiokafkawire.broker")

ABORT, COMMIT = 0, 1
"""Types of the control records that end transactions."""

_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Position of a batch in its segment, and the fields needed without reading it."""

    base_offset: int
    last_offset: int
    position: int
    size_bytes: int
    max_timestamp: int
    leader_epoch: int
    magic: int
    codec: int


@dataclass(slots=True)
class LogSegment:
    """A segment of the log; only the last one grows."""

    base_offset: int
    data: SegmentData
    batches: list[StoredBatch] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.base_offset

    @property
    def max_timestamp(self) -> int:
        return max((batch.max_timestamp for batch in self.batches), default=-1)


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def sequenced_batch(view: BatchView, first_offset: int = -1) -> SequencedBatch | None:
    """Return the sequence of a data batch, None if the producer is not idempotent."""
    if view.producer_id == NO_PRODUCER_ID:
        return None
    return SequencedBatch(
        producer_id=view.producer_id,
        epoch=view.producer_epoch,
        first_sequence=view.base_sequence,
        last_sequence=last_sequence(view.base_sequence, view.last_offset - view.base_offset + 1),
        first_offset=first_offset,
        timestamp_ms=view.max_timestamp,
        transactional=view.is_transactional,
    )


def _parse_marker(view: BatchView) -> EndTransactionMarker | None:
    """Parse a control batch, None if it does not end a transaction."""
    columns = view.columns()
    if not len(columns):
        return None
    key, value = columns.key(0) or b"", columns.value(0) or b""
    if len(key) < _CONTROL_KEY.size or len(value) < _CONTROL_VALUE.size:
        raise CorruptRecord("control record without a type", offset=view.base_offset)
    kind = _CONTROL_KEY.unpack_from(key)[1]
    if kind not in {ABORT, COMMIT}:
        return None
    return EndTransactionMarker(
        producer_id=view.producer_id,
        epoch=view.producer_epoch,
        offset=view.base_offset,
        commit=kind == COMMIT,
        coordinator_epoch=_CONTROL_VALUE.unpack_from(value)[1],
        timestamp_ms=view.max_timestamp,
    )


def _producer_change(view: BatchView) -> EndTransactionMarker | SequencedBatch | None:
    """Return the change that a batch makes to the producer state; raises `CorruptRecord`."""
    return _parse_marker(view) if view.is_control else sequenced_batch(view, view.base_offset)


class PartitionLog:
    """Log with the offsets from `start_offset` up to, not including, `end_offset`.

    Records before `recovery_point` survive a power loss (as far as that is modelled), later ones
    only a crash of the process.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        options: BrokerConfig,
        start: int = 0,
        config: Callable[[], LogConfig] | None = None,
    ) -> None:
        """Load the partition `name` from `store`; a torn or corrupt tail is truncated.

        `config` returns the current config of the topic. It defaults to that of the options.
        """
        default = LogConfig.from_options(options)
        self.name = name
        self.start_offset = start
        self.end_offset = 0
        self.recovery_point = 0
        self.producers = ProducerStateManager(refuse_unknown=options.refuse_unknown_producers)
        self._store = store
        self._options = options
        self._config = config or (lambda: default)
        number = options.flush_messages
        self._flush_messages = math.inf if number is None else number
        self._segments: list[LogSegment] = []
        self._epochs: list[tuple[int, int]] = []
        self._load()

    @property
    def size_bytes(self) -> int:
        return sum(segment.data.size_bytes for segment in self._segments)

    # --- writing -----------------------------------------------------------------------------

    def append(self, data: bytes, view: BatchView) -> None:
        """Append a batch whose offsets start at `end_offset`; delete segments past retention.

        Args:
            data: Bytes of the batch.
            view: View of `data`.

        Raises:
            StorageError: Nothing was stored, and the log is unchanged.
            CorruptRecord: The batch is an invalid control batch; the log is unchanged.
        """
        change = _producer_change(view)
        segment = self._segment_for_append(len(data))
        position = segment.data.size_bytes
        segment.data.append(data)
        self._index_batch(segment, view, position, change)
        if self.end_offset - self.recovery_point >= self._flush_messages:
            self.flush()
        limit = self._config().retention_bytes
        while (
            limit >= 0
            and len(self._segments) > 1
            and self.size_bytes - self._segments[0].data.size_bytes >= limit
        ):
            count = len(self._segments)
            self.delete_before(self._segments[1].base_offset)
            if len(self._segments) == count:
                break  # deletion failed; the next append tries again

    def delete_before(self, offset: int) -> None:
        """Raise the log start offset and delete the segments before it.

        Files that cannot be deleted now are deleted by a later call or after a restart.
        """
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        with contextlib.suppress(StorageError):
            while self._segments and self._segments[0].end_offset <= self.start_offset:
                self._segments[0].data.delete()
                self._segments.pop(0)
        self.producers.delete_before_offset(self.start_offset)

    def delete_expired(self, now_ms: int, limit: int) -> bool:
        """Delete segments past retention, as Kafka does at intervals.

        Args:
            now_ms: Current time.
            limit: Offset before which all records are replicated; later segments are kept.

        Returns:
            True if the log start offset was raised.
        """
        config, start = self._config(), self.start_offset
        excess = self.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else 0
        expired = start
        for segment in self._segments:
            size, latest_ms = segment.data.size_bytes, segment.max_timestamp
            is_old = (
                config.retention_ms is not None
                and latest_ms >= 0
                and now_ms - latest_ms > config.retention_ms
            )
            if not segment.batches or segment.end_offset > limit or not (is_old or excess >= size):
                break
            excess -= size
            expired = segment.end_offset
        if expired == start:
            return False
        self.delete_before(expired)
        return True

    def truncate(self, offset: int) -> None:
        """Remove the batch that holds `offset` and everything after it.

        Raises:
            StorageError: A file could not be truncated. The log keeps what is left in the files.
        """
        before = self.end_offset
        try:
            while self._segments and self._segments[-1].end_offset > offset:
                segment = self._segments[-1]
                keep = bisect_left(segment.batches, offset, key=lambda batch: batch.last_offset)
                cut = segment.batches[keep]
                if keep:
                    segment.data.truncate(cut.position)
                    del segment.batches[keep:]
                else:
                    segment.data.delete()
                    self._segments.pop()
                self.end_offset = cut.base_offset
        finally:
            if self.end_offset != before:
                self._after_truncation()

    def _after_truncation(self) -> None:
        """Update the state that depends on the truncated offsets."""
        self.end_offset = max(self.end_offset, self.start_offset)
        self.recovery_point = min(self.recovery_point, self.end_offset)
        while self._epochs and self._epochs[-1][1] >= self.end_offset:
            self._epochs.pop()
        self._rebuild_producer_state()

    def flush(self) -> None:
        """Sync everything that was written."""
        self.recovery_point = self.end_offset

    def lose_unsynced(self) -> None:
        """Truncate the log to its synced part, as after a power loss."""
        self.truncate(self.recovery_point)

    def _rebuild_producer_state(self) -> None:
        """Rebuild the state of idempotent producers from the log."""
        self.producers = ProducerStateManager(refuse_unknown=self._options.refuse_unknown_producers)
        for segment in self._segments:
            for view in iter_batches(segment.data.read(0, segment.data.size_bytes)):
                self._update_producer_state(_producer_change(view))
        self.producers.delete_before_offset(self.start_offset)

    def _update_producer_state(self, change: EndTransactionMarker | SequencedBatch | None) -> None:
        if isinstance(change, EndTransactionMarker):
            self.producers.complete_transaction(change)
        elif change is not None:
            self.producers.on_append(change)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records and continue at an offset."""
        while self._segments:
            self._segments[-1].data.delete()
            self._segments.pop()
        self._epochs.clear()
        self.start_offset = self.end_offset = self.recovery_point = offset
        self._rebuild_producer_state()

    def delete(self) -> None:
        """Delete everything from the store."""
        self._segments.clear()
        self._store.delete_partition(self.name)

    def _segment_for_append(self, size_bytes: int) -> LogSegment:
        if self._segments:
            last = self._segments[-1]
            fits = last.data.size_bytes + size_bytes <= self._config().segment_bytes
            if fits or not last.batches:
                return last
            # The next start truncates a torn segment and drops the segments after it.
            last.data.recover()
        # Kafka syncs a segment when the next one begins.
        self.flush()
        data = self._store.new_segment(self.name, self.end_offset)
        self._segments.append(LogSegment(self.end_offset, data))
        return self._segments[-1]

    def _index_batch(
        self,
        segment: LogSegment,
        view: BatchView,
        position: int,
        change: EndTransactionMarker | SequencedBatch | None,
    ) -> None:
        stored = StoredBatch(
            base_offset=view.base_offset,
            last_offset=view.last_offset,
            position=position,
            size_bytes=view.size_bytes,
            max_timestamp=view.max_timestamp,
            leader_epoch=view.partition_leader_epoch,
            magic=view.magic,
            codec=int(view.compression),
        )
        self._update_producer_state(change)
        segment.batches.append(stored)
        self.end_offset = stored.last_offset + 1
        if not self._epochs or self._epochs[-1][0] < stored.leader_epoch:
            self._epochs.append((stored.leader_epoch, stored.base_offset))

    def _load(self) -> None:
        segments = self._store.segments(self.name)
        for number, (base_offset, data) in enumerate(segments, 1):
            segment = LogSegment(base_offset, data)
            self._segments.append(segment)
            if not self._load_segment(segment):
                # Kafka does the same; otherwise the next start would take them for a continuation.
                for _, later in segments[number:]:
                    later.delete()
                break
        if self._segments:
            self.start_offset = max(self.start_offset, self._segments[0].base_offset)
        self.end_offset = max(self.end_offset, self.start_offset)
        self.flush()
        self.delete_before(self.start_offset)

    def _load_segment(self, segment: LogSegment) -> bool:
        """Index a segment; return False if it was truncated, so that nothing can follow it."""
        content = segment.data.read(0, segment.data.size_bytes) if segment.data.size_bytes else b""
        valid = 0
        try:
            for view in iter_batches(content):
                view.check_crc()
                if view.base_offset < self.end_offset:
                    raise CorruptRecord("offsets go back", offset=view.base_offset)
                self._index_batch(segment, view, valid, _producer_change(view))
                valid += view.size_bytes
        except CorruptRecord as error:
            logger.warning("%s: the log is corrupt: %s", self.name, error)
        if valid == len(content):
            return True
        logger.warning("%s: truncated the last %d bytes", self.name, len(content) - valid)
        segment.data.recover_to(valid)
        return False

    # --- reading -----------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, before: int | None = None) -> bytes:
        """Return the bytes from the batch that holds `offset`, cut off at `max_bytes`.

        Reading stops at the end of the segment and at batches that start at `before` or later.
        """
        segment = self._segment_at(offset)
        batches = self.batches_from(offset, before)
        first = next(batches, None)
        if first is None or segment is None:
            return b""
        size = first.size_bytes
        for batch in batches:
            if size >= max_bytes:
                break
            size += batch.size_bytes
        return segment.data.read(first.position, size)[: max(max_bytes, 0)]

    def batches_from(self, offset: int, before: int | None = None) -> Iterator[StoredBatch]:
        """Return the batches of the segment from the one that holds `offset`.

        With `before`, stop at the first batch that starts there or later.
        """
        segment = self._segment_at(offset)
        if segment is None:
            return iter(())
        batches = segment.batches
        first = bisect_left(batches, offset, key=lambda batch: batch.last_offset)
        if before is None or before >= segment.end_offset:
            return iter(batches[first:])
        end = bisect_left(batches, before, key=lambda batch: batch.base_offset)
        return iter(batches[first:end])

    def available_bytes(self, offset: int, max_bytes: int, before: int | None = None) -> int:
        """Return how many bytes a fetch at `offset` can get now, at most `max_bytes`."""
        size = 0
        for batch in self.batches_from(offset, before):
            size += batch.size_bytes
            if size >= max_bytes:
                return max_bytes
        return size

    def segment_offsets(self) -> list[int]:
        """Return the end of the log and the start of each segment, newest first (ListOffsets
        v0)."""
        starts = [max(segment.base_offset, self.start_offset) for segment in self._segments]
        ends = [] if starts and starts[-1] == self.end_offset else [self.end_offset]
        return ends + starts[::-1]

    def segment_offsets_before(self, timestamp_ms: int, default_ms: int) -> list[int]:
        """Return starts of segments last written at or before a time, newest first (ListOffsets
        v0).

        `default_ms` is the time of segments whose records have no timestamp.
        """
        return [
            max(segment.base_offset, self.start_offset)
            for segment in reversed(self._segments)
            if segment.batches
            and (segment.max_timestamp if segment.max_timestamp >= 0 else default_ms)
            <= timestamp_ms
        ]

    @property
    def first_unstable_offset(self) -> int | None:
        """Start of the earliest open transaction, None without one."""
        first = self.producers.first_unstable_offset
        return None if first is None else max(first, self.start_offset)

    def find_offset_by_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """Find the first record at or after a timestamp."""
        return self._find(
            lambda batch: batch.max_timestamp >= timestamp_ms, lambda time: time >= timestamp_ms
        )

    def find_offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """Find the first record with the largest timestamp."""
        latest = max((segment.max_timestamp for segment in self._segments), default=-1)
        if latest < 0:
            return None
        return self._find(lambda batch: batch.max_timestamp == latest, lambda time: time == latest)

    @property
    def latest_epoch(self) -> int:
        """Leader epoch of the newest batch, -1 if it has none."""
        return self._epochs[-1][0] if self._epochs else -1

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the leader epoch of an offset, None if unknown."""
        index = bisect_right(self._epochs, offset, key=lambda entry: entry[1]) - 1
        return self._epochs[index][0] if index >= 0 else None

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int) -> tuple[int, int] | None:
        """Return the largest known epoch up to `epoch`, and its end offset.

        Args:
            epoch: The requested epoch.
            leader_epoch: Current leader epoch, possibly without records yet.

        Returns:
            None for an epoch that has not started.
        """
        if not 0 <= epoch <= leader_epoch:
            return None
        if epoch == leader_epoch:
            return epoch, self.end_offset
        later = bisect_right(self._epochs, epoch, key=lambda entry: entry[0])
        end = self._epochs[later][1] if later < len(self._epochs) else self.end_offset
        return (self._epochs[later - 1][0] if later else epoch), end

    def _segment_at(self, offset: int) -> LogSegment | None:
        index = bisect_right(self._segments, offset, key=lambda segment: segment.end_offset)
        return self._segments[index] if index < len(self._segments) else None

    def _find(
        self, in_batch: Callable[[StoredBatch], bool], wanted: Callable[[int], bool]
    ) -> TimestampAndOffset | None:
        for segment in self._segments:
            for batch in segment.batches:
                if batch.last_offset < self.start_offset or not in_batch(batch):
                    continue
                (view,) = iter_batches(segment.data.read(batch.position, batch.size_bytes))
                for columns in view.chunks(self._options.max_decompressed_bytes):
                    for offset, time in zip(columns.offsets, columns.timestamps, strict=True):
                        if offset >= self.start_offset and wanted(time):
                            return TimestampAndOffset(offset, time, batch.leader_epoch)
        return None
