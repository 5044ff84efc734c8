"""How far fetched bytes reach, found without decoding them.

So the next fetch can go out before anybody looks at the records of this one. What is found here and
what decoding finds later must agree on where readable batches end: both go by `reaches_too_far`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from aiokafkawire.types import ANY_LEADER_EPOCH

from .batch import (
    BATCH_OVERHEAD_BYTES,
    LEAST_BATCH_SIZE,
    MAGIC_POSITION,
    MAGIC_V2,
    MAX_OFFSET,
)
from .kernel import Buffer
from .legacy import HEAD_BYTES, overhead_bytes

__all__ = ("Extent", "ends_of", "extent_of", "reaches_too_far")

LEAST_BYTES = overhead_bytes(0)
"""Fewer hold no message of any format."""

PIECE_BATCHES = 1_000
"""Batches that are walked over at a time: about a millisecond."""

_OFFSET_AND_SIZE = Struct(">qi")
_MOST_OF_HEADER = Struct(">qiiB6xi30xi")
"""Offset, size, leader epoch, magic, delta of the last offset, count: of `BATCH_HEADER`."""


class Extent(NamedTuple):
    """How far fetched bytes reach: the offset after the last whole batch, and that batch's epoch.

    The epoch is -1 if it is not known.
    """

    end: int
    leader_epoch: int


def extent_of(data: Buffer, fetch_offset: int, high_watermark: int | None = None) -> Extent:
    """How far the bytes reach that a fetch at `fetch_offset` brought.

    What does not look like batches ends it, as a batch does that cannot reach as far as it says:
    decoding tells what is wrong with it.
    """
    found = ends_of(data, fetch_offset, high_watermark)
    return next(extent for extent in found if extent is not None)


def ends_of(
    data: Buffer, fetch_offset: int, high_watermark: int | None = None
) -> Iterator[Extent | None]:
    """As `extent_of`, which comes last; None after each `PIECE_BATCHES` batches before."""
    view = memoryview(data)
    position, furthest, leader_epoch = 0, fetch_offset - 1, ANY_LEADER_EPOCH
    size_bytes = len(view)
    last_position = size_bytes - BATCH_OVERHEAD_BYTES
    known_end = MAX_OFFSET if high_watermark is None else high_watermark
    unpack = _MOST_OF_HEADER.unpack_from
    while position <= last_position:
        for _ in range(PIECE_BATCHES):
            if position > last_position:
                break
            last, size, epoch, magic, delta, count = unpack(view, position)
            after = position + HEAD_BYTES + size
            if size <= 0 or after > size_bytes or last < 0:
                yield Extent(furthest + 1, leader_epoch)
                return
            if magic < MAGIC_V2:
                epoch = ANY_LEADER_EPOCH
            else:
                last += delta
                if size < LEAST_BATCH_SIZE or (
                    last >= known_end and reaches_too_far(last, delta, count, high_watermark)
                ):
                    yield Extent(furthest + 1, leader_epoch)
                    return
            if last > furthest:
                furthest, leader_epoch = last, epoch
            position = after
        else:
            yield None
    while size_bytes - position >= LEAST_BYTES:
        # Too few bytes for a batch of format 2: an old message.
        last, size = _OFFSET_AND_SIZE.unpack_from(view, position)
        after = position + HEAD_BYTES + size
        if size <= 0 or after > size_bytes or last < 0:
            break
        if view[position + MAGIC_POSITION] >= MAGIC_V2:
            break
        if last > furthest:
            furthest, leader_epoch = last, ANY_LEADER_EPOCH
        position = after
    yield Extent(furthest + 1, leader_epoch)


def reaches_too_far(
    last_offset: int, last_offset_delta: int, count: int, high_watermark: int | None
) -> bool:
    """Whether a batch of format 2 cannot reach as far as it says.

    A batch that was appended after a broker looked for its high watermark may lie behind it; such
    a young one has all its records still, as compaction leaves none of them out.
    """
    if high_watermark is None or last_offset < high_watermark:
        return False
    return last_offset_delta != count - 1
