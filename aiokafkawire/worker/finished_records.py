"""The finished records above a committed offset, as the metadata of the commit.

The metadata is `aiokafkawire-finished:` and the base64 form of: the committed offset and a leader
epoch as zigzag varlongs; then the lengths of the ranges of unfinished and finished offsets, by
turns, from the committed offset on, as unsigned varints; and the CRC-32 of all of it.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from bisect import bisect_right
from operator import itemgetter
from typing import NamedTuple

from aiokafkawire.wire.primitives import (
    decode_unsigned_varint,
    decode_varlong,
    encode_unsigned_varint,
    encode_varlong,
)

__all__ = ("FinishedRecords", "decode_metadata", "encode_metadata")

PREFIX = "aiokafkawire-finished:"

MAX_METADATA = 4_096
"""Default of the broker's `offset.metadata.max.bytes`."""

CRC_BYTES = 4

MAX_BODY = (MAX_METADATA - len(PREFIX)) // 4 * 3 - CRC_BYTES

MAX_RANGE = 2**32 - 1
"""Longest range that an unsigned varint can hold."""


class FinishedRecords(NamedTuple):
    """Records above a committed offset that are finished.

    Attributes:
        offset: The committed offset.
        leader_epoch: No finished record has a higher one. Records that are written after the log
            was truncated have a higher one (KIP-101), and are none of these.
        ranges: First offset of each range of finished records, and the offset after its last one.
    """

    offset: int
    leader_epoch: int
    ranges: tuple[tuple[int, int], ...]

    def has(self, offset: int, leader_epoch: int) -> bool:
        """Return whether a record is finished."""
        index = bisect_right(self.ranges, offset, key=itemgetter(0)) - 1
        return index >= 0 and offset < self.ranges[index][1] and leader_epoch <= self.leader_epoch


def encode_metadata(finished: FinishedRecords) -> str:
    """Return the metadata of a commit; empty if no record above the offset is finished.

    If not all ranges fit, the last ones are left out: their records are processed again.
    """
    body = bytearray(encode_varlong(finished.offset) + encode_varlong(finished.leader_epoch))
    end, has_ranges = finished.offset, False
    for first, after in finished.ranges:
        if first - end > MAX_RANGE or after - first > MAX_RANGE:
            break
        lengths = encode_unsigned_varint(first - end) + encode_unsigned_varint(after - first)
        if len(body) + len(lengths) > MAX_BODY:
            break
        body += lengths
        end, has_ranges = after, True
    if not has_ranges:
        return ""
    body += zlib.crc32(body).to_bytes(CRC_BYTES, "big")
    return PREFIX + base64.b64encode(body).decode()


def decode_metadata(offset: int, metadata: str) -> FinishedRecords | None:
    """Return the finished records that the metadata of a committed offset names.

    Returns:
        None for metadata of another program, of another offset, or that is damaged.
    """
    if not metadata.startswith(PREFIX) or len(metadata) > MAX_METADATA:
        return None
    try:
        data = base64.b64decode(metadata.removeprefix(PREFIX), validate=True)
        body, crc = data[:-CRC_BYTES], data[-CRC_BYTES:]
        # mutation: damaged-metadata-trusted
        if zlib.crc32(body).to_bytes(CRC_BYTES, "big") != crc:
            return None
        encoded_offset, position = decode_varlong(body, 0)
        leader_epoch, position = decode_varlong(body, position)
        end, ranges = encoded_offset, []
        while position < len(body):
            unfinished, position = decode_unsigned_varint(body, position)
            length, position = decode_unsigned_varint(body, position)
            ranges.append((end + unfinished, end + unfinished + length))
            end += unfinished + length
    except (binascii.Error, ValueError):  # also a `BufferOverrun`
        return None
    # mutation: metadata-of-other-offset-trusted
    if encoded_offset != offset or not ranges:
        return None
    return FinishedRecords(offset, leader_epoch, tuple(ranges))
