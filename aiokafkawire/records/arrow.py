"""`Records` as Arrow, column by column from the buffers that they stand in."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import compute

from aiokafkawire.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from .sequence import Records, Segment

__all__ = ("SCHEMA", "to_arrow")

HEADER_TYPE = pyarrow.struct(
    [pyarrow.field("key", pyarrow.string()), pyarrow.field("value", pyarrow.binary())]
)

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


def to_arrow(records: Records) -> pyarrow.RecordBatch:
    """All records as one `pyarrow.RecordBatch` of `SCHEMA`.

    No Python object is made for a record, unless its batch has headers.
    """
    count = len(records)
    parts = [_segment_columns(segment) for segment in records.segments]
    joined = [
        pyarrow.concat_arrays([part[number] for part in parts])
        if parts
        else pyarrow.array([], SCHEMA.field(number + 2).type)
        for number in range(len(SCHEMA) - 2)
    ]
    topic = pyarrow.repeat(pyarrow.scalar(records.topic, pyarrow.string()), count)
    partition = pyarrow.repeat(pyarrow.scalar(records.partition, pyarrow.int32()), count)
    return pyarrow.RecordBatch.from_arrays([topic, partition, *joined], schema=SCHEMA)


def _segment_columns(segment: Segment) -> list[Any]:
    columns, start, stop = segment.columns, segment.start, segment.stop
    timestamps = _int64(columns.timestamps[start:stop])
    missing = compute.equal(timestamps, NO_TIMESTAMP)
    timestamps = compute.if_else(missing, pyarrow.scalar(None, pyarrow.int64()), timestamps)
    keys, values = _keys_and_values(segment)
    return [
        _int64(columns.offsets[start:stop]),
        timestamps.cast(SCHEMA.field("timestamp").type),
        pyarrow.repeat(pyarrow.scalar(int(segment.timestamp_type), pyarrow.int32()), stop - start),
        keys,
        values,
        _headers(segment),
    ]


def _int64(numbers: array[int]) -> pyarrow.Array:
    return pyarrow.Array.from_buffers(
        pyarrow.int64(), len(numbers), [None, pyarrow.py_buffer(numbers)]
    )


def _keys_and_values(segment: Segment) -> tuple[pyarrow.Array, pyarrow.Array]:
    """Cut the batch's buffer into key, gap, value, gap … and take each fourth piece.

    So the copy is Arrow's own, over positions that already stand in arrays.
    """
    columns, start, stop = segment.columns, segment.start, segment.stop
    count = stop - start
    cuts = array("i", bytes(4 * (4 * count + 1)))
    lengths = []
    for place, starts, sizes in (
        (0, columns.key_start, columns.key_length),
        (2, columns.value_start, columns.value_length),
    ):
        begins = _int64(starts[start:stop])
        length = _int64(sizes[start:stop])
        ends = compute.add(begins, compute.max_element_wise(length, 0))
        cuts[place : 4 * count : 4] = _int32_array(begins)
        cuts[place + 1 : 4 * count : 4] = _int32_array(ends)
        lengths.append(length)
    cuts[4 * count] = cuts[4 * count - 1]
    pieces = pyarrow.Array.from_buffers(
        pyarrow.binary(),
        4 * count,
        [None, pyarrow.py_buffer(cuts), pyarrow.py_buffer(columns.data)],
    )
    taken = []
    for place, length in zip((0, 2), lengths, strict=True):
        indices = _int64(array("q", range(place, 4 * count, 4)))
        present = compute.greater_equal(length, 0)
        indices = compute.if_else(present, indices, pyarrow.scalar(None, pyarrow.int64()))
        taken.append(pieces.take(indices))
    return taken[0], taken[1]


def _int32_array(numbers: pyarrow.Array) -> array[int]:
    out = array("i")
    out.frombytes(memoryview(numbers.cast(pyarrow.int32()).buffers()[1])[: 4 * len(numbers)])
    return out


def _headers(segment: Segment) -> pyarrow.Array:
    columns, start, stop = segment.columns, segment.start, segment.stop
    kind = SCHEMA.field("headers").type
    if not columns.has_headers:
        return pyarrow.nulls(stop - start, kind)
    rows = [
        [{"key": key, "value": value} for key, value in columns.headers(index)] or None
        for index in range(start, stop)
    ]
    return pyarrow.array(rows, kind)
