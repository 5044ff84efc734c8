"""Decode runs of uncompressed batches together.

A run consists of consecutive batches of format 2 without any attribute: uncompressed, create time,
not transactional. Opening a batch takes as long as decoding many records, so the batches of a run
are decoded into the same columns. A run ends before any other or corrupt batch, which `fetch`
handles one by one, with the same errors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from aiokafkawire.errors import CorruptRecord

from . import fixed_stride
from .batch import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD_BYTES,
    CHUNK_RECORDS,
    MAGIC_V2,
    MAX_OFFSET,
    MIN_BATCH_SIZE,
)
from .columns import Columns
from .fetched_range import exceeds_log_end
from .kernel import RECORD_MIN_BYTES
from .legacy import LOG_OVERHEAD_BYTES

__all__ = (
    "BATCH_COST_BYTES",
    "UncompressedBatch",
    "batch_at_index",
    "decode_uncompressed_run",
    "find_uncompressed_run",
)

BATCH_COST_BYTES = 8 * 1024
"""Cost of opening a batch, as the number of bytes that are decoded in the same time."""

MAX_RUN_BYTES = 256 * 1024
"""Maximum size of a run of several batches. A reference to one record keeps the whole run in
memory, so a run is limited like a single batch."""

_tuple = tuple.__new__  # checks nothing, at half the time

_HEADER_FIELDS = Struct(">qiibIhiq22xi").unpack_from
"""Offset, size, leader epoch, magic, CRC, attributes, delta of the last offset, base timestamp,
count: of `BATCH_HEADER`."""


class UncompressedBatch(NamedTuple):
    """A batch of a run, at `start` to `end` of the fetched bytes.

    In the columns of the run, its records end before the index `stop`.
    """

    start: int
    end: int
    stop: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    leader_epoch: int


def find_uncompressed_run(  # noqa: PLR0917 - a hot call
    data: memoryview,
    start: int,
    limit: int,
    position: int,
    budget_bytes: int,
    high_watermark: int | None,
    check_crcs: bool,
) -> list[UncompressedBatch]:
    """Find a run of uncompressed batches from `start` of `data`, by headers and checksums.

    No batch ends after `limit`, the first one ends at or after the offset `position`, and none is
    added once the run costs `budget_bytes`. Empty if the first batch is of another kind or corrupt.
    """
    batches: list[UncompressedBatch] = []
    at = lowest = leader_epoch = 0
    limit = min(limit, len(data))
    run_limit = min(limit, start + MAX_RUN_BYTES)  # the first may be larger
    while start + BATCH_OVERHEAD_BYTES <= limit and budget_bytes > 0:
        base, size, epoch, magic, crc, attributes, delta, timestamp, count = _HEADER_FIELDS(
            data, start
        )
        end, last, stop = start + LOG_OVERHEAD_BYTES + size, base + delta, at + count
        if (
            attributes
            or magic != MAGIC_V2
            or end > limit
            or (epoch != leader_epoch and batches)
            or not at < stop <= CHUNK_RECORDS
            or count * RECORD_MIN_BYTES > size - MIN_BATCH_SIZE
            or not lowest <= base <= last < MAX_OFFSET
            or last < position
            or (
                high_watermark is not None
                and last >= high_watermark
                and exceeds_log_end(last, delta, count, high_watermark)
            )
            or (check_crcs and crc32c(data[start + ATTRIBUTES_POSITION : end]) != crc)
        ):
            break
        batches.append(_tuple(UncompressedBatch, (start, end, stop, base, last, timestamp, epoch)))
        budget_bytes -= BATCH_COST_BYTES + end - start
        start, at, lowest, leader_epoch, limit = end, stop, last + 1, epoch, run_limit
    return batches


def decode_uncompressed_run(data: memoryview, batches: list[UncompressedBatch]) -> Columns:
    """Decode the records of a run that `find_uncompressed_run` found.

    Removes the first corrupt batch and all after it from `batches`. The bytes are copied once,
    including the headers between batches. The kernel allows a record to extend over the end of its
    batch into the next header, but then the end of the batch does not match.
    """
    records_at = batches[0].start + BATCH_OVERHEAD_BYTES
    end_of_all, count = batches[-1][1:3]
    columns = Columns(bytes(data[records_at:end_of_all]), count)
    offsets = columns.offsets
    at = 0
    for start, end, stop, base, last, timestamp, _ in batches:
        begin = start + BATCH_OVERHEAD_BYTES - records_at
        try:
            after = fixed_stride.decode(columns, at, stop, base, timestamp, begin, -1)
        except (CorruptRecord, IndexError, OverflowError):
            break
        if after != end - records_at or offsets[stop - 1] > last:
            break
        at = stop
    else:
        return columns
    batches[:] = [batch for batch in batches if batch.stop <= at]
    columns.cut(at)
    return columns


_stop = attrgetter("stop")


def batch_at_index(batches: Sequence[UncompressedBatch], index: int) -> UncompressedBatch:
    """Return the batch of a run that has the record at `index` of the columns."""
    return batches[bisect_right(batches, index, key=_stop)]
