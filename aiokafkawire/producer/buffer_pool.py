"""The memory for records that are not acknowledged yet."""

from __future__ import annotations

from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.partition_queue import PartitionQueue
from aiokafkawire.records import BatchBuilder
from aiokafkawire.records.batch import BATCH_OVERHEAD_BYTES

__all__ = ("BufferPool",)

RESERVATION_DIVISOR = 512
"""A batch reserves at most this fraction of the buffer at a time, unless one record needs more."""


class BufferPool:
    """Counts the bytes of records until their batch completes.

    An open batch reserves memory for several records at once. It releases what it did not use when
    it closes, or when another record finds no room.

    Args:
        buffer_memory_bytes: Limit for the keys, values and headers, with their overhead.
        batch_size_bytes: Limit for a batch.

    Attributes:
        max_body_bytes: Limit for the records of a batch.
        used_bytes: Memory that is used or reserved.
    """

    def __init__(self, buffer_memory_bytes: int, batch_size_bytes: int) -> None:
        self.max_body_bytes = batch_size_bytes - BATCH_OVERHEAD_BYTES
        self.used_bytes = 0
        self._buffer_bytes = buffer_memory_bytes
        self._reservation_bytes = min(batch_size_bytes, buffer_memory_bytes // RESERVATION_DIVISOR)
        # Their open batches may have reserved more than they use.
        self._reserving: dict[PartitionQueue, None] = {}

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a record fits into the buffer; release unused reservations if needed."""
        if self._reserving and self.used_bytes > self._buffer_bytes - size_bytes:
            self.release_unused()
        # mutation: buffer-unbounded
        return self.used_bytes + size_bytes <= self._buffer_bytes

    def reserve(self, queue: PartitionQueue, size_bytes: int) -> BatchBuilder:
        """Return the builder of the open batch, with memory for one more record."""
        batch = queue.open
        assert batch is not None
        builder = batch.builder
        assert builder is not None
        missing_bytes = builder.body_bytes + size_bytes - batch.reserved_bytes
        if missing_bytes > 0 or not batch.reserved_bytes:
            used = self.used_bytes
            # More for later records, if available.
            added_bytes = max(
                missing_bytes, min(self._reservation_bytes, self._buffer_bytes - used)
            )
            self.used_bytes = used + added_bytes
            batch.reserved_bytes = reserved = batch.reserved_bytes + added_bytes
            self._reserving[queue] = None
            builder.limit_bytes = min(self.max_body_bytes, reserved)
            builder.is_full = False
        return builder

    def release_unused(self) -> None:
        """Release the memory that open batches have reserved and do not use.

        The next record of each passes `Accumulator.append`.
        """
        while self._reserving:
            queue, _ = self._reserving.popitem()
            batch = queue.open
            if batch is not None and batch.builder is not None:
                queue.builder = None
                self.keep(batch, batch.builder.body_bytes)

    def close(self, queue: PartitionQueue, batch: Batch, body_bytes: int) -> None:
        """Keep what a closed batch of the queue needs."""
        self._reserving.pop(queue, None)
        self.keep(batch, body_bytes)

    def keep(self, batch: Batch, body_bytes: int) -> None:
        """Release what a batch has reserved above `body_bytes`."""
        unused = batch.reserved_bytes - body_bytes
        if unused > 0:
            batch.reserved_bytes = body_bytes
            self.used_bytes -= unused
