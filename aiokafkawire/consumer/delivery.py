"""Delivers buffered records to the application's calls, and notes which are processed."""

from __future__ import annotations

from collections.abc import Collection

from aiokafkawire.errors import KafkaError
from aiokafkawire.records import OffloadedBatch, Record, Records
from aiokafkawire.runtime import Runtime, checkpoint
from aiokafkawire.types import TopicPartition

from .assignment import ConsumerAssignment
from .fetch_buffer import MAX_CALLERS, TAKE_BYTES, BufferCursor, FetchBuffer
from .notifier import Notifier
from .partition import AssignedPartition
from .partition_states import CorruptionFound, Fetching

__all__ = ("RecordDelivery",)


class RecordDelivery:
    """Delivers the records of the assigned partitions, in turn.

    Attributes:
        cursor: Delivers records one by one; None if the next call must check for errors and
            rebalances first.
        pending_callbacks: Rebalance callbacks that run or wait. Until they end, no records may be
            delivered.
        decoding_suspended: The last call returned no records, because it used up its decoding
            budget or because `offloaded` must be decompressed first.
        offloaded: A large batch to decompress in a worker thread, if one is next.
    """

    def __init__(
        self,
        assignment: ConsumerAssignment,
        runtime: Runtime,
        notifier: Notifier,
        low_watermark_bytes: int = 0,
    ) -> None:
        self.cursor: BufferCursor | None = None
        self.pending_callbacks = 0
        self.decoding_suspended = False
        self.offloaded: OffloadedBatch | None = None
        self._assignment = assignment
        self._runtime = runtime
        self._notifier = notifier
        self._low_watermark_bytes = low_watermark_bytes
        self._delivered_to: dict[object, dict[FetchBuffer, None]] = {}
        self._excluding = False

    # --- records ---

    def next_record(self, owner: object, caller: object) -> Record | None:
        """Return the next record, and open a cursor for those after it.

        Args:
            owner: The iterator or task that may take records from the cursor.
            caller: The task that will process the records.

        Raises:
            KafkaError: The fetched data of a partition cannot be decoded.
        """
        if self.pending_callbacks:
            return None
        self._start_call(None)
        drained: list[AssignedPartition] = []
        try:
            for partition, buffer in self._assignment.in_delivery_order(None):
                before = buffer.size_bytes
                try:
                    cursor = buffer.open_cursor(caller)
                except KafkaError as error:
                    drained.append(partition)
                    _mark_corrupt(partition, error)
                    raise
                if buffer.size_bytes < self._low_watermark_bytes <= before:
                    drained.append(partition)
                if cursor is not None:
                    self._note_delivery(caller, partition, buffer)
                    # Another waiting caller may have opened a cursor meanwhile.
                    self.stop()
                    cursor.owner = owner
                    self.cursor = cursor
                    return cursor.next()
                if buffer.suspended_batches is not None:
                    self.decoding_suspended = True
                    self.offloaded = buffer.suspended_batches.offloaded
                    break
        finally:
            if drained or self._notifier.to_fetch.waits_for_room:
                self._notifier.to_fetch.add(drained)
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
        if self.pending_callbacks:
            return taken
        left, remaining_bytes = max_records, TAKE_BYTES
        self._start_call(only)
        drained: list[AssignedPartition] = []
        try:
            for partition, buffer in self._assignment.in_delivery_order(only):
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
                    drained.append(partition)
                    _mark_corrupt(partition, error)
                    if not taken and not parts:
                        raise
                if buffer.size_bytes < self._low_watermark_bytes <= before:
                    drained.append(partition)
                if parts:
                    taken[partition.tp] = parts[0] if len(parts) == 1 else _concatenate(parts)
                    self._note_delivery(caller, partition, buffer)
                suspended = buffer.suspended_batches
                if not taken and (suspended is not None or remaining_bytes <= 0):
                    self.decoding_suspended = True
                    self.offloaded = None if suspended is None else suspended.offloaded
                    break
                if not left or remaining_bytes <= 0 or (taken and single_partition):
                    break
            self._assignment.counters.records_consumed += max_records - left
        finally:
            if drained or self._notifier.to_fetch.waits_for_room:
                self._notifier.to_fetch.add(drained)
        return taken

    async def continue_decoding(self) -> bool:
        """Yield to other tasks, or decompress the next batch, if the last call stopped for that.

        Returns:
            False if the last call did not stop.
        """
        if not self.decoding_suspended:
            return False
        self.decoding_suspended = False
        if self.offloaded is None:
            await checkpoint()
        else:
            await self._runtime.offload(self.offloaded.decompress)
        return True

    def stop(self) -> None:
        """Close the current cursor, so that the next call checks for errors and rebalances."""
        if self.cursor is not None:
            self._count_cursor(self.cursor)
            self.cursor.close()
            self.cursor = None

    def metrics(self) -> dict[str, int | float]:
        """Return the counters, and the lag and buffers of the partitions."""
        if self.cursor is not None:
            self._count_cursor(self.cursor)
        return self._assignment.counters.snapshot(self._assignment.values())

    def _count_cursor(self, cursor: BufferCursor) -> None:
        self._assignment.counters.records_consumed += cursor.take_delivered_count()

    def _start_call(self, only: Collection[TopicPartition] | None) -> None:
        """Mark the partitions that the call leaves out."""
        self.decoding_suspended = False
        self.offloaded = None
        if only is None and not self._excluding:
            return
        self._excluding = only is not None
        for partition in self._assignment.values():
            partition.excluded = only is not None and partition.tp not in only

    # --- processed records ---

    def _note_delivery(
        self, caller: object, partition: AssignedPartition, buffer: FetchBuffer
    ) -> None:
        """Record which task has records of the buffer; its partition is delivered last from now."""
        buffers = self._delivered_to.setdefault(caller, {})
        buffers[buffer] = None
        if len(self._delivered_to) > MAX_CALLERS:
            # The records delivered to the oldest caller never count as processed then.
            del self._delivered_to[next(iter(self._delivered_to))]
        self._assignment.move_to_end(partition)

    def mark_processed(self, caller: object) -> None:
        """Count all records delivered to `caller` as processed, because it calls again."""
        for buffer in self._delivered_to.pop(caller, ()):
            buffer.mark_processed(caller)


def _mark_corrupt(partition: AssignedPartition, error: KafkaError) -> None:
    assert isinstance(partition.state, Fetching)
    partition.handle(CorruptionFound(partition.state, error))


def _concatenate(parts: list[Records]) -> Records:
    segments = [segment for records in parts for segment in records.segments]
    last = parts[-1]
    return Records(*last.topic_partition, segments, last.next_offset, last.leader_epoch)
