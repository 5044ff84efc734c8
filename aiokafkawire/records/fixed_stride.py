"""Decode runs of records with the same layout by slices instead of one by one.

Programs write many records of one size. In a run of them each byte of the layout has a fixed
distance, so a slice with a stride reads it for all records at once. `decode_records` handles other
records and all errors, so results and errors are the same. The compiled `decode_records` is faster
than this module.
"""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from aiokafkawire.errors import CorruptRecord

from .columns import Columns
from .kernel import COMPILED, decode_records, decode_varint

__all__ = ("decode", "decode_fixed_stride")

MAX_INT64 = (1 << 63) - 1
MIN_RUN_RECORDS = 16
"""Minimum length of a run: below it, slices are slower."""
INITIAL_CHUNK_RECORDS = 8
"""Records decoded one by one before the next search for a run; doubled each time."""

_ONE_BYTE_DELTAS = 64  # deltas below it take one byte
_TWO_BYTE_DELTAS = 8192
_ONE_BYTE = bytes(range(0, 128, 2))
_LOW_BYTE = bytes(range(128, 256, 2)) * 128  # first of two bytes, by delta
_HIGH_BYTE = b"".join(bytes((high,)) * 64 for high in range(128))
_CONTINUED = bytes(128) + b"\1" * 128  # tables for bytes.translate: 1 if true for the byte
_ENDED = b"\1" * 128 + bytes(128)
_ODD = b"\0\1" * 128  # in zigzag, odd numbers stand for negative ones
_HALF = bytes(byte >> 1 for byte in range(128)) * 2
_TWO_BYTES = [n >> 1 ^ -(n & 1) for n in range(128 * 128)]


class _RecordLayout(NamedTuple):
    """The layout of one record, with positions relative to its start.

    `constant_positions` has the positions of the bytes that are equal in all records of a run.
    """

    size: int
    constant_positions: tuple[int, ...]
    timestamp_at: int
    timestamp_bytes: int
    offset_at: int
    offset_bytes: int
    offset_delta: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int


def decode_fixed_stride(  # noqa: PLR0917 - the arguments of decode_records
    columns: Columns,
    start: int,
    stop: int,
    base_offset: int,
    base_timestamp: int,
    position: int,
    previous: int,
) -> int:
    """Fill `columns[start:stop]` as `decode_records` does."""
    chunk = INITIAL_CHUNK_RECORDS
    index = start
    while index < stop:
        try:
            layout = (
                _read_layout(columns.data, position) if stop - index >= MIN_RUN_RECORDS else None
            )
        except (CorruptRecord, IndexError):
            layout = None  # decode_records raises the error of the first corrupt record
        if layout is not None and layout.offset_delta > previous:
            length = _run_length(columns.data, position, stop - index, layout)
            if length:
                _fill(columns, index, length, base_offset, base_timestamp, position, layout)
                index += length
                position += length * layout.size
                previous = layout.offset_delta + length - 1
                continue
        end = min(index + chunk, stop)
        position = decode_records(
            columns, index, end, base_offset, base_timestamp, position, previous
        )
        previous = columns.offsets[end - 1] - base_offset
        index = end
        chunk *= 2
    return position


decode = decode_records if COMPILED else decode_fixed_stride


def _read_layout(data: bytes, begin: int) -> _RecordLayout | None:
    """Return the layout of the record at `begin`.

    Returns None if records of this layout cannot be decoded together: the record has headers, bytes
    after them, or a negative offset delta.
    """
    size, at = decode_varint(data, begin)
    constant_positions = list(range(at - begin))
    end = at + size
    timestamp_at = at + 1
    _, offset_at = decode_varint(data, timestamp_at, 10)
    offset_delta, offset_end = decode_varint(data, offset_at)
    key_length, key_at = decode_varint(data, offset_end)
    constant_positions += range(offset_end - begin, key_at - begin)
    after_key = key_at + max(key_length, 0)
    value_length, value_at = decode_varint(data, after_key)
    constant_positions += range(after_key - begin, value_at - begin)
    after_value = value_at + max(value_length, 0)
    constant_positions.append(after_value - begin)
    if data[after_value] or after_value + 1 != end or offset_delta < 0:
        return None
    return _RecordLayout(
        size=end - begin,
        constant_positions=tuple(constant_positions),
        timestamp_at=timestamp_at - begin,
        timestamp_bytes=offset_at - timestamp_at,
        offset_at=offset_at - begin,
        offset_bytes=offset_end - offset_at,
        offset_delta=offset_delta,
        key_at=key_at - begin,
        key_length=key_length,
        value_at=value_at - begin,
        value_length=value_length,
    )


def _run_length(data: bytes, begin: int, max_count: int, layout: _RecordLayout) -> int:
    """Return the number of consecutive records with this layout; 0 if too few."""
    size = layout.size
    deltas = _ONE_BYTE_DELTAS if layout.offset_bytes == 1 else _TWO_BYTE_DELTAS
    count = min(max_count, (len(data) - begin) // size, deltas - layout.offset_delta)
    if layout.timestamp_bytes > 2 or layout.offset_bytes > 2:
        return 0
    for at in layout.constant_positions:
        if count < MIN_RUN_RECORDS:
            return 0
        column = _column(data, begin + at, count, size)
        count -= len(column.lstrip(column[:1]))
    if count < MIN_RUN_RECORDS:
        return 0
    for number in range(layout.timestamp_bytes):
        last = number == layout.timestamp_bytes - 1
        column = _column(data, begin + layout.timestamp_at + number, count, size)
        wrong = column.translate(_CONTINUED if last else _ENDED).find(1)
        count = count if wrong < 0 else wrong
    if count < MIN_RUN_RECORDS or not _offsets_follow(data, begin, count, layout):
        return 0
    return count


def _offsets_follow(data: bytes, begin: int, count: int, layout: _RecordLayout) -> bool:
    wanted = (_ONE_BYTE,) if layout.offset_bytes == 1 else (_LOW_BYTE, _HIGH_BYTE)
    first = layout.offset_delta
    return all(
        _column(data, begin + layout.offset_at + number, count, layout.size)
        == table[first : first + count]
        for number, table in enumerate(wanted)
    )


def _column(data: bytes, at: int, count: int, size: int) -> bytes:
    """Return `count` bytes: the one at `at`, and then every `size`-th byte."""
    return data[at : at + (count - 1) * size + 1 : size]


def _fill(  # noqa: PLR0917 - a hot call
    columns: Columns,
    index: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    begin: int,
    layout: _RecordLayout,
) -> None:
    size = layout.size
    end = index + count
    columns.offsets[index:end] = _rising(count, base_offset + layout.offset_delta, 1)
    columns.timestamps[index:end] = _timestamps(columns.data, begin, count, base_timestamp, layout)
    columns.key_start[index:end] = _rising(count, begin + layout.key_at, size)
    columns.key_length[index:end] = array("q", (layout.key_length,)) * count
    columns.value_start[index:end] = _rising(count, begin + layout.value_at, size)
    columns.value_length[index:end] = array("q", (layout.value_length,)) * count


def _timestamps(
    data: bytes, begin: int, count: int, base_timestamp: int, layout: _RecordLayout
) -> array[int]:
    size, at = layout.size, begin + layout.timestamp_at
    low = _column(data, at, count, size)
    if layout.timestamp_bytes == 1:
        if low.count(low[0]) == count:
            return array("q", (base_timestamp + _TWO_BYTES[low[0]],)) * count
        high = bytes(count)
    else:
        high = _column(data, at + 1, count, size)
    if low.translate(_ODD).find(1) < 0 and 0 <= base_timestamp < MAX_INT64 - _TWO_BYTE_DELTAS:
        deltas = _spread(low.translate(_HALF)) + (_spread(high) << 6)
        return _array(count, deltas + _int64_lanes(count)[1] * base_timestamp)
    pairs = zip(low, high, strict=True)
    return array(
        "q", [base_timestamp + _TWO_BYTES[(less & 127) + (more << 7)] for less, more in pairs]
    )


# --- arrays of 64-bit integers packed into one large integer: an operation applies to all at once


def _rising(count: int, first: int, step: int) -> array[int]:
    """Return `count` non-negative integers that begin with `first` and increase by `step`."""
    if first + count * step > MAX_INT64:
        return array("q", range(first, first + count * step, step))
    indexes, ones = _int64_lanes(count)
    return _array(count, indexes * step + ones * first)


@lru_cache(maxsize=32)
def _int64_lanes(count: int) -> tuple[int, int]:
    """Return the numbers 0 to `count - 1`, and `count` ones, each packed in 64-bit lanes."""
    if count == _TWO_BYTE_DELTAS:
        pack = Struct(f"<{count}q").pack
        columns = range(count), [1] * count
        indexes, ones = (int.from_bytes(pack(*column), "little") for column in columns)
        return indexes, ones
    indexes, ones = _int64_lanes(_TWO_BYTE_DELTAS)
    mask = (1 << 64 * count) - 1
    return indexes & mask, ones & mask


def _spread(column: bytes) -> int:
    """Return each byte in a 64-bit lane."""
    lanes = bytearray(8 * len(column))
    lanes[::8] = column
    return int.from_bytes(lanes, "little")


def _array(count: int, lanes: int) -> array[int]:
    integers = array("q", lanes.to_bytes(8 * count, "little"))
    if sys.byteorder == "big":
        integers.byteswap()
    return integers
