"""`Records` as Arrow, column by column from the buffers that they stand in."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import compute

from aiokafkawire.types import NO_TIMESTAMP

from .kernel import fill_binary, total

if TYPE_CHECKING:
    from .sequence import Records, Segment

__all__ = ("SCHEMA", "to_arrow")

HEADER_TYPE = pyarrow.struct(
    [pyarrow.field("key", pyarrow.string()), pyarrow.field("value", pyarrow.binary())]
)

MAX_BINARY_BYTES = (1 << 31) - 1
"""In one column: its offsets have 32 bits."""

MAX_SHARED = 32
MAX_SHARED_ROWS = 10_000
"""So many columns whose rows are all the same are kept, of at most so many rows."""

_TOP_BYTE = 7 if sys.byteorder == "little" else 0

SCHEMA = pyarrow.schema(
    [
        pyarrow.field("topic", pyarrow.string(), nullable=False),
        pyarrow.field("partition", pyarrow.int32(), nullable=False),
        pyarrow.field("offset", pyarrow.int64(), nullable=False),
        pyarrow.field("timestamp", pyarrow.timestamp("ms", tz="UTC")),
        pyarrow.field("timestamp_type", pyarrow.int32(), nullable=False),
        pyarrow.field("key", pyarrow.binary()),
        pyarrow.field("value", pyarrow.binary()),
        pyarrow.field("headers", pyarrow.list_(HEADER_TYPE)),
    ]
)


def to_arrow(records: Records, names: Sequence[str] | None = None) -> pyarrow.RecordBatch:
    """All records as one `pyarrow.RecordBatch`: the columns of `SCHEMA`, or those of these names.

    No Python object is made for a record, unless its batch has headers.
    """
    schema = SCHEMA if names is None else pyarrow.schema([SCHEMA.field(name) for name in names])
    arrays = [_COLUMNS[name](records) for name in schema.names]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _same(value: str | int, records: Records) -> pyarrow.Array:
    count = len(records)
    repeated = _repeated if count <= MAX_SHARED_ROWS else _repeated.__wrapped__
    return repeated(value, count)


@lru_cache(MAX_SHARED)
def _repeated(value: str | int, count: int) -> pyarrow.Array:
    """Rows that are all the same, as most batches have them: nothing changes an array, and making
    it takes a good part of what all the rest takes."""
    if isinstance(value, str):
        return pyarrow.repeat(pyarrow.scalar(value, pyarrow.string()), count)
    return _plain(pyarrow.int32(), array("i", (value,)) * count)


def _no(name: str, records: Records) -> pyarrow.Array:
    """A column without any."""
    count = len(records)
    nulls = _nulls if count <= MAX_SHARED_ROWS else _nulls.__wrapped__
    return nulls(name, count)


@lru_cache(MAX_SHARED)
def _nulls(name: str, count: int) -> pyarrow.Array:
    return pyarrow.nulls(count, SCHEMA.field(name).type)


def _kinds(records: Records) -> pyarrow.Array:
    different = {int(segment.timestamp_type) for segment in records.segments}
    if len(different) == 1:
        (kind,) = different
        return _same(kind, records)
    kinds = array("i")
    for segment in records.segments:
        kinds += array("i", (segment.timestamp_type,)) * (segment.stop - segment.start)
    return _plain(pyarrow.int32(), kinds)


def _offsets(records: Records) -> pyarrow.Array:
    segments = records.segments
    return _plain(pyarrow.int64(), _joined([part.columns.offsets for part in segments], segments))


def _times(records: Records) -> pyarrow.Array:
    segments = records.segments
    return _timestamps(_joined([part.columns.timestamps for part in segments], segments))


def _keys(records: Records) -> pyarrow.Array:
    segments = records.segments
    lengths = _joined([part.columns.key_length for part in segments], segments)
    if lengths == b"\xff" * len(lengths):  # -1 each: a comparison that is cheap
        return _no("key", records)
    return _binary([(p.columns.key_start, p.columns.key_length) for p in segments], segments)


def _values(records: Records) -> pyarrow.Array:
    segments = records.segments
    return _binary([(p.columns.value_start, p.columns.value_length) for p in segments], segments)


def _joined(columns: list[array[int]], segments: Sequence[Segment]) -> bytes:
    """The parts of columns of 64-bit integers that the segments show."""
    parts = [
        column if stop - start == len(column) else memoryview(column)[start:stop]
        for column, (_, start, stop, _, _) in zip(columns, segments, strict=True)
    ]
    return b"".join(parts)


def _plain(kind: Any, numbers: bytes | array[int]) -> pyarrow.Array:
    buffer = pyarrow.py_buffer(numbers)
    return pyarrow.Array.from_buffers(kind, 8 * len(buffer) // kind.bit_width, [None, buffer])


def _timestamps(numbers: bytes) -> pyarrow.Array:
    kind = SCHEMA.field("timestamp").type
    found = _plain(kind, numbers)
    if 255 not in numbers[_TOP_BYTE::8]:  # none is negative: far cheaper than Arrow's way
        return found
    missing = compute.equal(found.view(pyarrow.int64()), NO_TIMESTAMP)
    return compute.if_else(missing, pyarrow.scalar(None, kind), found)


def _binary(
    columns: list[tuple[array[int], array[int]]], segments: Sequence[Segment]
) -> pyarrow.Array:
    """The pieces of the batches' data that pairs of starts and lengths tell of."""
    parts = [
        (segment.columns.data, starts, lengths, segment.start, segment.stop)
        for segment, (starts, lengths) in zip(segments, columns, strict=True)
    ]
    count = sum(stop - start for _, _, _, start, stop in parts)
    size = sum(total(lengths, start, stop) for _, _, lengths, start, stop in parts)
    if size > MAX_BINARY_BYTES:
        raise ValueError(
            f"{size} bytes are more than a column of Arrow can hold: slice the records"
        )
    content = pyarrow.allocate_buffer(size, resizable=False)
    out = memoryview(content).cast("B")
    ends = array("i", (0,)) * (count + 1)
    valid = bytearray((count + 7) // 8)
    row = 0
    for part in parts:
        fill_binary(*part, out, ends, valid, row)
        row += part[4] - part[3]
    buffers = [pyarrow.py_buffer(valid), pyarrow.py_buffer(ends), content]
    return pyarrow.Array.from_buffers(pyarrow.binary(), count, buffers)


def _headers(records: Records) -> pyarrow.Array:
    segments = records.segments
    if not any(segment.columns.has_headers for segment in segments):
        return _no("headers", records)
    rows = [
        [{"key": key, "value": value} for key, value in segment.columns.headers(index)] or None
        for segment in segments
        for index in range(segment.start, segment.stop)
    ]
    return pyarrow.array(rows, SCHEMA.field("headers").type)


_COLUMNS: dict[str, Callable[[Records], pyarrow.Array]] = {
    "topic": lambda records: _same(records.topic, records),
    "partition": lambda records: _same(records.partition, records),
    "offset": _offsets,
    "timestamp": _times,
    "timestamp_type": _kinds,
    "key": _keys,
    "value": _values,
    "headers": _headers,
}
"""How each column is made: one that is not asked for costs nothing."""
