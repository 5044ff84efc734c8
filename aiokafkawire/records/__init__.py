"""Encode and decode record batches and message sets. This package does no I/O.

Reading: `iter_batches` finds batches (`BatchView`), `decode_fetch` returns the `Records` that a
consumer sees, `find_fetched_range` the offsets that fetched bytes cover. Writing: `BatchBuilder`,
`ClosedBatch`. Broker side: `validate_produced`, `assign_offsets`, `down_convert`, `control_batch`.
"""

from __future__ import annotations

from .batch import BatchView, iter_batches
from .broker_records import assign_offsets, control_batch, down_convert, validate_produced
from .builder import BatchBuilder, ClosedBatch
from .columns import Columns
from .compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Compression
from .decode_options import DecodeOptions, IsolationLevel
from .fetch import FetchedBatches, OffloadedBatch, decode_fetch, partial_message_size
from .fetched_range import FetchedRange, find_fetched_range, iter_fetched_range
from .kernel import Buffer, Header, Headers, Record, murmur2
from .sequence import Records, Segment

__all__ = (
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "BatchBuilder",
    "BatchView",
    "Buffer",
    "ClosedBatch",
    "Columns",
    "Compression",
    "DecodeOptions",
    "FetchedBatches",
    "FetchedRange",
    "Header",
    "Headers",
    "IsolationLevel",
    "OffloadedBatch",
    "Record",
    "Records",
    "Segment",
    "assign_offsets",
    "control_batch",
    "decode_fetch",
    "down_convert",
    "find_fetched_range",
    "iter_batches",
    "iter_fetched_range",
    "murmur2",
    "partial_message_size",
    "validate_produced",
)
