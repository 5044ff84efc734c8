"""The partitions that a consumer owns, and what is given of them to whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from aiokafkawire.errors import KafkaError
from aiokafkawire.records import FetchedBatches, OffloadedBatch, Records
from aiokafkawire.runtime import copy_of
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

from .counters import ConsumerCounters
from .fetch_buffer import MAX_CALLERS, TAKE_BYTES, FetchBuffer, RecordCursor
from .partition import AssignedPartition, CorruptionFound, ErrorPending, Fetching

__all__ = ("ConsumerAssignment", "offsets_to_commit")


class ConsumerAssignment:
    """Owned partitions by name.

    What a call costs goes by the partitions that have something to give or to tell (`_with_data`,
    in the order of their turns, and `_failed`), not by those that are owned. `below_low_watermark`:
    the partitions whose fetched bytes the last call took below `low_watermark_bytes`, or that it
    found damaged. `decoding_suspended`: the last call gave nothing as it took long enough, or as
    `offloaded` has to be unpacked first.
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

    def has(self, partitions: Mapping[TopicPartition, object]) -> bool:
        """Whether all of these are owned."""
        return partitions.keys() <= self._partitions.keys()

    def get(self, tp: TopicPartition) -> AssignedPartition | None:
        """A partition, if it is owned."""
        return self._partitions.get(tp)

    @property
    def names(self) -> tuple[TopicPartition, ...]:
        """The owned partitions, sorted."""
        return tuple(sorted(self._partitions))

    def values(self) -> list[AssignedPartition]:
        """The partitions, in the order in which they came."""
        return list(self._partitions.values())

    def add(self, partition: AssignedPartition) -> None:
        """Own a partition; its turn is the last."""
        replaced = self._partitions.get(partition.tp)
        if replaced is not None:
            self.remove([replaced])
        self._partitions[partition.tp] = partition
        partition.track_failure_in(self._failed)
        self.on_records_fetched(partition)

    def on_records_fetched(self, partition: AssignedPartition) -> None:
        """Something was fetched of a partition; it may have gone meanwhile."""
        if self._partitions.get(partition.tp) is not partition:
            return
        if partition.buffer is not None and not partition.buffer.empty:
            self._with_data.setdefault(partition)

    def remove(self, partitions: Iterable[AssignedPartition]) -> None:
        """Take partitions out; one that was replaced by another of its name stays."""
        for partition in partitions:
            if self._partitions.get(partition.tp) is partition:
                del self._partitions[partition.tp]
                self._with_data.pop(partition, None)
                partition.track_failure_in(None)

    def partitions_with_data(self) -> list[AssignedPartition]:
        """The partitions that have something to give, and perhaps some that have not any more."""
        return list(self._with_data)

    # --- giving ---

    def mark_processed(self, caller: object) -> None:
        """A caller calls again: what it was given is processed."""
        for buffer in self._delivered_to.pop(caller, ()):
            buffer.mark_processed(caller)

    def _note_delivery(self, caller: object, buffer: FetchBuffer) -> None:
        buffers = self._delivered_to.setdefault(caller, {})
        buffers[buffer] = None
        if len(self._delivered_to) > MAX_CALLERS:
            # What the oldest was given is then never taken for processed.
            del self._delivered_to[next(iter(self._delivered_to))]

    def open_cursor(self, caller: object) -> RecordCursor | None:
        """A cursor over the next records there are; raises what a partition is broken by."""
        self._exclude_others(None)
        self._reset_result()
        for partition, buffer in self._in_order(None):
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
        """Up to `max_records` records of the partitions whose turn it is, or of `single_partition`
        of them.

        Raises what a partition is broken by, unless there are records of others to give first.
        """
        taken: dict[TopicPartition, Records] = {}
        left, remaining_bytes = max_records, TAKE_BYTES
        self._exclude_others(only)
        self._reset_result()
        for partition, buffer in self._in_order(only):
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
        """What was counted, and how the partitions stand."""
        self._count_cursor()
        return self.counters.snapshot(self._partitions.values())

    def _count_cursor(self) -> None:
        if self._cursor is not None:
            self.counters.records_consumed += self._cursor.take_delivered_count()

    def raise_failed(self) -> None:
        """Raise what keeps a partition from being read, if the application may hear of it.

        What may go away by itself is raised once for all partitions of a topic.
        """
        for partition in list(self._failed):
            error = partition.take_error()
            if error is not None:
                for other in list(self._failed):
                    if other.tp.topic == partition.tp.topic and _has_same_error(other, error):
                        other.take_error()
                raise copy_of(error)

    def _exclude_others(self, only: Collection[TopicPartition] | None) -> None:
        """Note which partitions the application does not ask for."""
        if only is None and not self._excluding:
            return
        self._excluding = only is not None
        for tp, partition in self._partitions.items():
            partition.excluded = only is not None and tp not in only

    def _in_order(
        self, only: Collection[TopicPartition] | None
    ) -> Iterator[tuple[AssignedPartition, FetchBuffer]]:
        """Those with something to give, the one whose turn is next first."""
        for partition in list(self._with_data):
            buffer = partition.readable
            if buffer is None:
                buffer = partition.buffer
                if buffer is None or buffer.empty:
                    del self._with_data[partition]
            elif buffer.empty:
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
        """All that was given, processed or not, and not known to be committed."""
        found = {
            tp: partition.delivered_offset()
            for tp, partition in self._partitions.items()
            if partition.position != partition.committed
        }
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The coordinator keeps these offsets."""
        for tp, offset in offsets.items():
            partition = self._partitions.get(tp)
            if partition is not None:
                partition.committed = offset.offset


def offsets_to_commit(
    partitions: Iterable[AssignedPartition],
    pending: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({}),
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is processed and neither known to be committed nor `pending` to be."""
    found = {
        partition.tp: partition.offset_to_commit(pending.get(partition.tp))
        for partition in partitions
    }
    return {tp: offset for tp, offset in found.items() if offset is not None}


def _has_same_error(partition: AssignedPartition, error: KafkaError) -> bool:
    """Whether a broker refused the partition as it did another."""
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
