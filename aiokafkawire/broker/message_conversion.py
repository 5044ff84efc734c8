"""Record formats: what older producers send becomes what the release keeps."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafkawire.records.batch import BatchView, iter_batches
from aiokafkawire.records.builder import BatchBuilder

__all__ = ("up_convert",)

UNBOUNDED_BYTES = 2**31 - 1
"""All of a request goes into one batch, however large."""


def up_convert(batches: Sequence[BatchView], magic: int) -> list[BatchView]:
    """The records of checked batches in at least format `magic`.

    As brokers do, all older ones of a partition become one batch, compressed as the first.
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
