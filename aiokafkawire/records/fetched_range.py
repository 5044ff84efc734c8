"""Find the offsets that fetched bytes cover, without decoding records.

Thus the next fetch can be sent before the records of this one are decoded. This module and the
decoder must agree on the end of the readable batches; both use `exceeds_log_end`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from aiokafkawire.types import NO_LEADER_EPOCH

from .batch import (
    BATCH_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    MAX_OFFSET,
    MIN_BATCH_SIZE,
)
from .kernel import Buffer
from .legacy import LOG_OVERHEAD_BYTES, overhead_bytes

__all__ = ("FetchedRange", "exceeds_log_end", "find_fetched_range", "iter_fetched_range")

MIN_MESSAGE_BYTES = overhead_bytes(0)
"""Minimum size of a message of any format."""

CHUNK_BATCHES = 1_000
"""Batches processed at a time, in about a millisecond."""

_OFFSET_AND_SIZE = Struct(">qi")
_HEADER_FIELDS = Struct(">qiiB6xi30xi")
"""Offset, size, leader epoch, magic, delta of the last offset, count: of `BATCH_HEADER`."""


class FetchedRange(NamedTuple):
    """The offset after the last complete batch, and its leader epoch (-1 if unknown)."""

    end: int
    leader_epoch: int


def find_fetched_range(
    data: Buffer, fetch_offset: int, high_watermark: int | None = None
) -> FetchedRange:
    """Return the range of the bytes of a fetch at `fetch_offset`.

    Bytes that are not a valid batch end the range, as does a batch with an impossible last offset;
    the decoder then raises the error.
    """
    ranges = iter_fetched_range(data, fetch_offset, high_watermark)
    return next(fetched_range for fetched_range in ranges if fetched_range is not None)


def iter_fetched_range(
    data: Buffer, fetch_offset: int, high_watermark: int | None = None
) -> Iterator[FetchedRange | None]:
    """Yield None after each `CHUNK_BATCHES` batches, then the result of `find_fetched_range`."""
    view = memoryview(data)
    position, last_offset, leader_epoch = 0, fetch_offset - 1, NO_LEADER_EPOCH
    size_bytes = len(view)
    last_position = size_bytes - BATCH_OVERHEAD_BYTES
    known_end = MAX_OFFSET if high_watermark is None else high_watermark
    unpack = _HEADER_FIELDS.unpack_from
    while position <= last_position:
        for _ in range(CHUNK_BATCHES):
            if position > last_position:
                break
            last, size, epoch, magic, delta, count = unpack(view, position)
            after = position + LOG_OVERHEAD_BYTES + size
            if size <= 0 or after > size_bytes or last < 0:
                yield FetchedRange(last_offset + 1, leader_epoch)
                return
            if magic < MAGIC_V2:
                epoch = NO_LEADER_EPOCH
            else:
                last += delta
                if size < MIN_BATCH_SIZE or (
                    last >= known_end and exceeds_log_end(last, delta, count, high_watermark)
                ):
                    yield FetchedRange(last_offset + 1, leader_epoch)
                    return
            if last > last_offset:
                last_offset, leader_epoch = last, epoch
            position = after
        else:
            yield None
    while size_bytes - position >= MIN_MESSAGE_BYTES:
        # Too few bytes for a batch of format 2: an old message.
        last, size = _OFFSET_AND_SIZE.unpack_from(view, position)
        after = position + LOG_OVERHEAD_BYTES + size
        if size <= 0 or after > size_bytes or last < 0:
            break
        if view[position + MAGIC_POSITION] >= MAGIC_V2:
            break
        if last > last_offset:
            last_offset, leader_epoch = last, NO_LEADER_EPOCH
        position = after
    yield FetchedRange(last_offset + 1, leader_epoch)


def exceeds_log_end(
    last_offset: int, last_offset_delta: int, count: int, high_watermark: int | None
) -> bool:
    """Return True if the last offset of a batch of format 2 is impossible.

    A batch appended after the broker read its high watermark may end beyond it. Such a recent batch
    is not compacted yet, so its offsets must match its count of records.
    """
    if high_watermark is None or last_offset < high_watermark:
        return False
    return last_offset_delta != count - 1
