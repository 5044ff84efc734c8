"""Which fetched batches belong to an aborted transaction."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafkawire.errors import CorruptRecord

from .batch import BatchView
from .compression import DEFAULT_MAX_DECOMPRESSED_BYTES

__all__ = ("AbortedTransactions", "control_type")

ABORT_MARKER = 0
"""The type of an abort marker, in the second half of a control record's key."""


class AbortedTransactions:
    """The aborted transactions of a fetch response, by which READ_COMMITTED skips records (KIP-98).

    Args:
        aborted: Producer id and first offset of each aborted transaction.
    """

    __slots__ = ("_not_begun", "_producer_ids")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._not_begun = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        # Of the transactions that are open at the current batch.
        self._producer_ids: set[int] = set()

    def include(self, batch: BatchView, max_decompressed_bytes: int) -> bool:
        """Return True if the batch belongs to an aborted transaction.

        Call it for each batch in order: it tracks which transactions begin and end.
        """
        if batch.producer_id < 0:
            return False
        # mutation: single-aborted-batch-returned
        while self._not_begun and self._not_begun[-1][1] <= batch.last_offset:
            self._producer_ids.add(self._not_begun.pop()[0])
        if batch.producer_id not in self._producer_ids:
            return False
        if batch.is_control:
            if control_type(batch, max_decompressed_bytes) == ABORT_MARKER:
                # mutation: abort-marker-ignored
                self._producer_ids.discard(batch.producer_id)
            return False
        # mutation: aborted-records-returned
        return batch.is_transactional


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
