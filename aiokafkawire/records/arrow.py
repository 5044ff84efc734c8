"""Convert `Records` to Arrow, column by column from the decompressed buffers."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import compute

from aiokafkawire.types import NO_TIMESTAMP

from .kernel import fill_binary, total

if TYPE_CHECKING:
    from .sequence import Records

__all__ = ("SCHEMA", "to_arrow")

HEADER_TYPE = pyarrow.struct(
    [pyarrow.field("key", pyarrow.string()), pyarrow.field("value", pyarrow.binary())]
)

MAX_BINARY_BYTES = (1 << 31) - 1
"""Maximum content of one binary column, because its offsets have 32 bits."""

MAX_CACHED_ARRAYS = 32
MAX_CACHED_ROWS = 10_000
"""Number of cached constant columns, and the maximum number of rows of each."""

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


# Getters for many segments: one C call per segment.
_get_timestamp_type = attrgetter("timestamp_type")
_HAS_HEADERS = attrgetter("columns.has_headers")
_OFFSETS = attrgetter("columns.offsets", "start", "stop")
_TIMESTAMPS = attrgetter("columns.timestamps", "start", "stop")
_KEY_LENGTHS = attrgetter("columns.key_length", "start", "stop")
_KEYS = attrgetter("columns.data", "columns.key_start", "columns.key_length", "start", "stop")
_VALUES = attrgetter("columns.data", "columns.value_start", "columns.value_length", "start", "stop")


def to_arrow(records: Records[Any, Any], names: Sequence[str] | None = None) -> pyarrow.RecordBatch:
    """Convert all records to a `pyarrow.RecordBatch` with the columns of `SCHEMA`, or `names`.

    Creates no Python object per record, unless records of the batch have headers.
    """
    schema = SCHEMA if names is None else pyarrow.schema([SCHEMA.field(name) for name in names])
    arrays = [_COLUMNS[name](records) for name in schema.names]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _repeated_column(value: str | int, records: Records) -> pyarrow.Array:
    count = len(records)
    repeated = _repeated if count <= MAX_CACHED_ROWS else _repeated.__wrapped__
    return repeated(value, count)


@lru_cache(MAX_CACHED_ARRAYS)
def _repeated(value: str | int, count: int) -> pyarrow.Array:
    """Return a cached column of equal rows: arrays are immutable, and creating one is slow."""
    if isinstance(value, str):
        return pyarrow.repeat(pyarrow.scalar(value, pyarrow.string()), count)
    return _numeric(pyarrow.int32(), array("i", (value,)) * count)


def _null_column(name: str, records: Records) -> pyarrow.Array:
    """Return a column of nulls."""
    count = len(records)
    nulls = _nulls if count <= MAX_CACHED_ROWS else _nulls.__wrapped__
    return nulls(name, count)


@lru_cache(MAX_CACHED_ARRAYS)
def _nulls(name: str, count: int) -> pyarrow.Array:
    return pyarrow.nulls(count, SCHEMA.field(name).type)


def _timestamp_types(records: Records) -> pyarrow.Array:
    distinct = set(map(int, map(_get_timestamp_type, records.segments)))
    if len(distinct) == 1:
        (kind,) = distinct
        return _repeated_column(kind, records)
    timestamp_types = array("i")
    for segment in records.segments:
        timestamp_types += array("i", (segment.timestamp_type,)) * (segment.stop - segment.start)
    return _numeric(pyarrow.int32(), timestamp_types)


def _offsets(records: Records) -> pyarrow.Array:
    return _numeric(pyarrow.int64(), _joined(map(_OFFSETS, records.segments)))


def _timestamp_column(records: Records) -> pyarrow.Array:
    return _timestamps(_joined(map(_TIMESTAMPS, records.segments)))


def _keys(records: Records) -> pyarrow.Array:
    lengths = _joined(map(_KEY_LENGTHS, records.segments))
    if lengths == b"\xff" * len(lengths):  # all are -1, which stands for null
        return _null_column("key", records)
    return _binary(list(map(_KEYS, records.segments)))


def _values(records: Records) -> pyarrow.Array:
    return _binary(list(map(_VALUES, records.segments)))


def _joined(parts: Iterable[tuple[array[int], int, int]]) -> bytes:
    """Join slices of columns of 64-bit integers."""
    return b"".join(
        [
            column if stop - start == len(column) else memoryview(column)[start:stop]
            for column, start, stop in parts
        ]
    )


def _numeric(kind: Any, numbers: bytes | array[int]) -> pyarrow.Array:
    buffer = pyarrow.py_buffer(numbers)
    return pyarrow.Array.from_buffers(kind, 8 * len(buffer) // kind.bit_width, [None, buffer])


def _timestamps(numbers: bytes) -> pyarrow.Array:
    kind = SCHEMA.field("timestamp").type
    timestamps = _numeric(kind, numbers)
    if 255 not in numbers[_TOP_BYTE::8]:  # none is negative; much faster than a comparison in Arrow
        return timestamps
    missing = compute.equal(timestamps.view(pyarrow.int64()), NO_TIMESTAMP)
    return compute.if_else(missing, pyarrow.scalar(None, kind), timestamps)


def _binary(parts: list[tuple[Any, array[int], array[int], int, int]]) -> pyarrow.Array:
    """Return a column of slices; a part has the data, starts, lengths, start and stop index."""
    count = size = 0
    for _, _, lengths, start, stop in parts:
        count += stop - start
        size += total(lengths, start, stop)
    if size > MAX_BINARY_BYTES:
        raise ValueError(
            f"{size} bytes are more than a column of Arrow can hold: slice the records"
        )
    content = pyarrow.allocate_buffer(size, resizable=False)
    out = memoryview(content).cast("B")
    ends = array("i", (0,)) * (count + 1)
    valid = bytearray((count + 7) // 8)
    row = 0
    for data, starts, lengths, start, stop in parts:
        fill_binary(data, starts, lengths, start, stop, out, ends, valid, row)
        row += stop - start
    buffers = [pyarrow.py_buffer(valid), pyarrow.py_buffer(ends), content]
    return pyarrow.Array.from_buffers(pyarrow.binary(), count, buffers)


def _headers(records: Records) -> pyarrow.Array:
    segments = records.segments
    if not any(map(_HAS_HEADERS, segments)):
        return _null_column("headers", records)
    rows = [
        [{"key": key, "value": value} for key, value in segment.columns.headers(index)] or None
        for segment in segments
        for index in range(segment.start, segment.stop)
    ]
    return pyarrow.array(rows, SCHEMA.field("headers").type)


_COLUMNS: dict[str, Callable[[Records], pyarrow.Array]] = {
    "topic": lambda records: _repeated_column(records.topic, records),
    "partition": lambda records: _repeated_column(records.partition, records),
    "offset": _offsets,
    "timestamp": _timestamp_column,
    "timestamp_type": _timestamp_types,
    "key": _keys,
    "value": _values,
    "headers": _headers,
}
"""The function that creates each column; only the requested columns are created."""
