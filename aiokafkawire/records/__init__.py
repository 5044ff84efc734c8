"""Record batches and message sets <-> bytes: what stands in a Kafka log. No I/O.

Reading: `iter_batches` finds the batches (`BatchView`), `decode_fetch` gives what a consumer sees
of them (`Records`, made of `Record`), `extent_of` how far they reach. Writing: `BatchBuilder`,
`ClosedBatch`. A broker's side: `validate_produced`, `assign_offsets`, `down_convert`,
`control_batch`.
"""

from __future__ import annotations

from .batch import BatchView, iter_batches
from .builder import BatchBuilder, ClosedBatch
from .columns import Columns
from .compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Compression
from .extent import Extent, ends_of, extent_of
from .fetch import FetchedBatches, HeavyBatch, IsolationLevel, decode_fetch, partial_message_size
from .kernel import Buffer, Header, Headers, Record, murmur2
from .sequence import Records, Segment
from .server import assign_offsets, control_batch, down_convert, validate_produced

__all__ = (
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "BatchBuilder",
    "BatchView",
    "Buffer",
    "ClosedBatch",
    "Columns",
    "Compression",
    "Extent",
    "FetchedBatches",
    "Header",
    "Headers",
    "HeavyBatch",
    "IsolationLevel",
    "Record",
    "Records",
    "Segment",
    "assign_offsets",
    "control_batch",
    "decode_fetch",
    "down_convert",
    "ends_of",
    "extent_of",
    "iter_batches",
    "murmur2",
    "partial_message_size",
    "validate_produced",
)
