"""Allocation of producer ids, as by AllocateProducerIds."""

from __future__ import annotations

from collections.abc import Callable

from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.wire import ErrorCode

__all__ = ("PRODUCER_ID_BLOCK", "ProducerIdAllocator")

PRODUCER_ID_BLOCK = 1_000
"""Producer ids allocated at once. A restart skips the unused rest of a block."""


class ProducerIdAllocator:
    """Allocates blocks of producer ids; `limit` is the end of the last one.

    `save` stores the limit before an id of a new block is used.
    """

    def __init__(self, save: Callable[[], None]) -> None:
        self.limit = 0
        self._next = 0
        self._save = save

    def generate(self) -> int:
        """Return a producer id that was never used in this cluster. Raises `StorageError`."""
        if self._next >= self.limit:
            self.limit += PRODUCER_ID_BLOCK
            try:
                self._save()
            except StorageError as error:
                self.limit -= PRODUCER_ID_BLOCK
                # Kafka answers this while the controller has not allocated another block.
                raise StorageError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
        self._next += 1
        return self._next - 1

    def load(self, limit: int) -> None:
        """Continue after the blocks that an earlier start allocated."""
        self.limit = self._next = limit
