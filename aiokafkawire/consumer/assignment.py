"""The partitions assigned to a consumer, and the delivery of their records to callers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from aiokafkawire.errors import KafkaError
from aiokafkawire.records import FetchedBatches, OffloadedBatch, Records
from aiokafkawire.runtime import copy_error
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

from .counters import ConsumerCounters
from .fetch_buffer import MAX_CALLERS, TAKE_BYTES, FetchBuffer, RecordCursor
from .partition import AssignedPartition, CorruptionFound, ErrorPending, Fetching

__all__ = ("ConsumerAssignment", "offsets_to_commit")


class ConsumerAssignment:
    """The assigned partitions, by topic and number.

    The cost of a call grows with the partitions that have records (`_with_data`, in delivery order)
    or an error (`_failed`), not with all assigned partitions.

    Attributes:
        below_low_watermark: Partitions that the last call drained below `low_watermark_bytes`, or
            in which it found corrupt data.
        decoding_suspended: The last call returned no records, because it used up its decoding
            budget or because `offloaded` must be decompressed first.
        offloaded: A large batch to decompress in a worker thread, if one is next.
        counters: Counters for `metrics`.
    """

    def __init__(self, low_watermark_bytes: int = 0) -> None:
        self._partitions: dict[TopicPartition, AssignedPartition] = {}
        self._with_data: dict[AssignedPartition, None] = {}
        self._failed: dict[AssignedPartition, None] = {}
        self._low_watermark_bytes = low_watermark_bytes
        self.below_low_watermark: list[AssignedPartition] = []
        self.decoding_suspended = False
        self.offloaded: OffloadedBatch | None = None
        self._delivered_to: dict[object, dict[FetchBuffer, None]] = {}
        self._cursor: RecordCursor | None = None
        self._excluding = False
        self.counters = ConsumerCounters()

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._partitions)

    def __contains__(self, tp: object) -> bool:
        return tp in self._partitions

    def has_all(self, partitions: Mapping[TopicPartition, object]) -> bool:
        """Return whether all of these partitions are assigned."""
        return partitions.keys() <= self._partitions.keys()

    def get(self, tp: TopicPartition) -> AssignedPartition | None:
        """Return a partition, or None if it is not assigned."""
        return self._partitions.get(tp)

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The topics and numbers of the assigned partitions, sorted."""
        return tuple(sorted(self._partitions))

    def values(self) -> list[AssignedPartition]:
        """Return the partitions in the order in which they were assigned."""
        return list(self._partitions.values())

    def add(self, partition: AssignedPartition) -> None:
        """Add a partition, last in delivery order; it replaces an older one of the same name."""
        replaced = self._partitions.get(partition.tp)
        if replaced is not None:
            self.remove([replaced])
        self._partitions[partition.tp] = partition
        partition.track_failure_in(self._failed)
        self.on_records_fetched(partition)

    def on_records_fetched(self, partition: AssignedPartition) -> None:
        """Note that a fetch has returned records, unless the partition was removed meanwhile."""
        if self._partitions.get(partition.tp) is not partition:
            return
        if partition.buffer is not None and not partition.buffer.is_empty:
            self._with_data.setdefault(partition)

    def remove(self, partitions: Iterable[AssignedPartition]) -> None:
        """Remove partitions. A newer partition of the same name stays."""
        for partition in partitions:
            if self._partitions.get(partition.tp) is partition:
                del self._partitions[partition.tp]
                self._with_data.pop(partition, None)
                partition.track_failure_in(None)

    def partitions_with_data(self) -> list[AssignedPartition]:
        """Return the partitions with undelivered records, and perhaps some already drained."""
        return list(self._with_data)

    # --- delivery ---

    def mark_processed(self, caller: object) -> None:
        """Count all records delivered to `caller` as processed, because it calls again."""
        for buffer in self._delivered_to.pop(caller, ()):
            buffer.mark_processed(caller)

    def _note_delivery(self, caller: object, buffer: FetchBuffer) -> None:
        buffers = self._delivered_to.setdefault(caller, {})
        buffers[buffer] = None
        if len(self._delivered_to) > MAX_CALLERS:
            # The records delivered to the oldest caller never count as processed then.
            del self._delivered_to[next(iter(self._delivered_to))]

    def open_cursor(self, caller: object) -> RecordCursor | None:
        """Return a cursor over the next buffered records, or None.

        Raises:
            KafkaError: The fetched data of a partition cannot be decoded.
        """
        self._exclude_others(None)
        self._reset_result()
        for partition, buffer in self._in_delivery_order(None):
            before = buffer.size_bytes
            try:
                cursor = buffer.open_cursor(caller)
            except KafkaError as error:
                raise self._mark_corrupt(partition, error) from None
            self._note_low_watermark(before, partition, buffer)
            if cursor is not None:
                self._note_delivery(caller, buffer)
                self._move_to_end(partition)
                self._count_cursor()
                self._cursor = cursor
                return cursor
            if buffer.suspended_batches is not None:
                self._suspend_decoding(buffer.suspended_batches)
                break
        return None

    def take(
        self,
        caller: object,
        max_records: int,
        only: Collection[TopicPartition] | None = None,
        *,
        single_partition: bool = False,
    ) -> dict[TopicPartition, Records]:
        """Return up to `max_records` buffered records by partition, in delivery order.

        Args:
            caller: The task that will process the records.
            max_records: The most records to return.
            only: Return records of these partitions alone.
            single_partition: Stop after the first partition with records.

        Raises:
            KafkaError: The fetched data of a partition cannot be decoded. Records of other
                partitions are returned first.
        """
        taken: dict[TopicPartition, Records] = {}
        left, remaining_bytes = max_records, TAKE_BYTES
        self._exclude_others(only)
        self._reset_result()
        for partition, buffer in self._in_delivery_order(only):
            before = buffer.size_bytes
            parts: list[Records] = []
            try:
                while left and remaining_bytes > 0:
                    records = buffer.take(left, caller, remaining_bytes)
                    remaining_bytes -= buffer.decoded_bytes
                    if records is None:
                        break
                    parts.append(records)
                    left -= len(records)
            except KafkaError as error:
                self._mark_corrupt(partition, error)
                if not taken and not parts:
                    raise
            self._note_low_watermark(before, partition, buffer)
            if parts:
                taken[partition.tp] = _concatenate(parts)
                self._note_delivery(caller, buffer)
                self._move_to_end(partition)
            if not taken and (buffer.suspended_batches is not None or remaining_bytes <= 0):
                self._suspend_decoding(buffer.suspended_batches)
                break
            if not left or remaining_bytes <= 0 or (taken and single_partition):
                break
        self.counters.records_consumed += max_records - left
        return taken

    def _reset_result(self) -> None:
        self.below_low_watermark = []
        self.decoding_suspended = False
        self.offloaded = None

    def _suspend_decoding(self, batches: FetchedBatches | None) -> None:
        self.decoding_suspended = True
        self.offloaded = None if batches is None else batches.offloaded

    def _note_low_watermark(
        self, before: int, partition: AssignedPartition, buffer: FetchBuffer
    ) -> None:
        if buffer.size_bytes < self._low_watermark_bytes <= before:
            self.below_low_watermark.append(partition)

    def metrics(self) -> dict[str, int | float]:
        """Return the counters, and the lag and buffers of the partitions."""
        self._count_cursor()
        return self.counters.snapshot(self._partitions.values())

    def _count_cursor(self) -> None:
        if self._cursor is not None:
            self.counters.records_consumed += self._cursor.take_delivered_count()

    def raise_partition_error(self) -> None:
        """Raise the error of a partition that cannot be read, if there is one.

        The same pending error of several partitions of a topic is raised once.
        """
        for partition in list(self._failed):
            error = partition.take_error()
            if error is not None:
                for other in list(self._failed):
                    if other.tp.topic == partition.tp.topic and _has_same_error(other, error):
                        other.take_error()
                raise copy_error(error)

    def _exclude_others(self, only: Collection[TopicPartition] | None) -> None:
        """Mark the partitions that the call leaves out."""
        if only is None and not self._excluding:
            return
        self._excluding = only is not None
        for tp, partition in self._partitions.items():
            partition.excluded = only is not None and tp not in only

    def _in_delivery_order(
        self, only: Collection[TopicPartition] | None
    ) -> Iterator[tuple[AssignedPartition, FetchBuffer]]:
        """Yield the partitions with readable records in delivery order; forget empty ones."""
        for partition in list(self._with_data):
            buffer = partition.readable_buffer
            if buffer is None:
                buffer = partition.buffer
                if buffer is None or buffer.is_empty:
                    del self._with_data[partition]
            elif buffer.is_empty:
                del self._with_data[partition]
            elif only is None or partition.tp in only:
                yield partition, buffer

    def _move_to_end(self, partition: AssignedPartition) -> None:
        self._with_data.pop(partition, None)
        self._with_data[partition] = None

    def _mark_corrupt(self, partition: AssignedPartition, error: KafkaError) -> KafkaError:
        assert isinstance(partition.state, Fetching)
        partition.handle(CorruptionFound(partition.state, error))
        self.below_low_watermark.append(partition)
        return error

    # --- committing ---

    def delivered_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets after all delivered records, where they are not committed yet."""
        offsets = {
            tp: partition.delivered_offset()
            for tp, partition in self._partitions.items()
            if partition.position != partition.committed_offset
        }
        return {tp: offset for tp, offset in offsets.items() if offset is not None}

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that the coordinator has acknowledged these offsets."""
        for tp, offset in offsets.items():
            partition = self._partitions.get(tp)
            if partition is not None:
                partition.committed_offset = offset.offset


def offsets_to_commit(
    partitions: Iterable[AssignedPartition],
    pending: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({}),
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offset after the processed records of each partition that needs a commit.

    `pending` has the offsets whose commit has no response yet.
    """
    offsets = {
        partition.tp: partition.offset_to_commit(pending.get(partition.tp))
        for partition in partitions
    }
    return {tp: offset for tp, offset in offsets.items() if offset is not None}


def _has_same_error(partition: AssignedPartition, error: KafkaError) -> bool:
    """Return whether the partition has the same broker error pending."""
    state = partition.state
    if not isinstance(state, ErrorPending):
        return False
    code = getattr(error, "code", None)
    return type(state.error) is type(error) and getattr(state.error, "code", None) == code


def _concatenate(parts: list[Records]) -> Records:
    if len(parts) == 1:
        return parts[0]
    segments = [segment for records in parts for segment in records.segments]
    last = parts[-1]
    return Records(*last.topic_partition, segments, last.next_offset, last.leader_epoch)
