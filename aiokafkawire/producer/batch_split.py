"""The split of a batch that a broker refused as too large."""

from __future__ import annotations

from aiokafkawire.producer.batch import Batch
from aiokafkawire.producer.batch_future import BatchFuture, BatchSplit
from aiokafkawire.producer.sequences import BatchSequence, advance
from aiokafkawire.records.batch import BATCH_OVERHEAD_BYTES

__all__ = ("split_batch",)


def split_batch(
    batch: Batch, not_before: float, *, keep_sequences: bool
) -> tuple[BatchSplit, list[Batch]]:
    """Return the outcome of a batch that is replaced by parts of at most half its size, and these.

    They take over the reserved memory of the batch.

    Args:
        not_before: Earliest time to send a part.
        keep_sequences: The parts have the sequence numbers of the batch.
    """
    assert batch.records is not None
    body_bytes = len(batch.records.columns().data)
    # mutation: last-half-of-split-lost
    pieces = batch.records.split(BATCH_OVERHEAD_BYTES + body_bytes // 2)
    whole = batch.future
    starts: list[int] = []
    parts: list[Batch] = []
    start = 0
    for number, records in enumerate(pieces):
        future = BatchFuture(
            whole.topic, whole.partition, whole.unreported_failures, whole.yield_budget
        )
        future.count = records.count
        part = Batch(future, records, (*batch.order, number), batch.linger_until, batch.expires_at)
        part.attempts = batch.attempts
        part.sent_topic.maybe_in_deleted = batch.sent_topic.maybe_in_deleted
        part.last_error = batch.last_error
        part.not_before = not_before
        part.reserved_bytes = batch.reserved_bytes * records.count // batch.count
        if batch.sequence is not None and keep_sequences:
            # mutation: split-halves-share-sequence
            base = advance(batch.sequence.base_sequence, start)
            part.sequence = BatchSequence(batch.sequence.identity, base)
        starts.append(start)
        parts.append(part)
        start += records.count
    parts[-1].reserved_bytes += batch.reserved_bytes - sum(part.reserved_bytes for part in parts)
    batch.reserved_bytes = 0
    return BatchSplit(tuple(starts), tuple(part.future for part in parts)), parts
