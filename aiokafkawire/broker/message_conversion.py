"""Up-conversion of old message formats to the format of the log."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafkawire.records.batch import BatchView, iter_batches
from aiokafkawire.records.builder import BatchBuilder

__all__ = ("up_convert",)

UNBOUNDED_BYTES = 2**31 - 1
"""All records of a request go into one batch of any size."""


def up_convert(batches: Sequence[BatchView], magic: int) -> list[BatchView]:
    """Return checked batches in at least format `magic`.

    All older batches of a partition become one batch, compressed like the first, as in Kafka.
    """
    if all(batch.magic >= magic for batch in batches):
        return list(batches)
    builder = BatchBuilder(batches[0].compression, max_bytes=UNBOUNDED_BYTES)
    for batch in batches:
        columns = batch.columns()
        for index, timestamp in enumerate(columns.timestamps):
            builder.append(timestamp, columns.key(index), columns.value(index))
    encoded = b"".join(bytes(part) for part in builder.close().encode(magic=magic))
    return list(iter_batches(encoded))
