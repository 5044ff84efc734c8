"""Conversion of records to the columns of Spark's Kafka connector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow
from pyarrow import compute

from aiokafkawire.records import Records
from aiokafkawire.types import NO_TIMESTAMP

__all__ = ("to_spark_columns",)

MICROSECONDS = pyarrow.timestamp("us", tz="UTC")

HEADER = pyarrow.struct(
    [pyarrow.field("key", pyarrow.string()), pyarrow.field("value", pyarrow.binary())]
)

COLUMN_TYPES = {
    "key": pyarrow.binary(),
    "value": pyarrow.binary(),
    "topic": pyarrow.string(),
    "partition": pyarrow.int32(),
    "offset": pyarrow.int64(),
    "timestamp": MICROSECONDS,
    "timestampType": pyarrow.int32(),
    "headers": pyarrow.list_(HEADER),
}
"""Every column and its type. Spark refuses a batch whose types differ in any detail."""

ARROW_NAMES = {"timestampType": "timestamp_type"}
"""Names of columns in `Records.to_arrow`, where they differ from Spark's."""

_NO_TIME = pyarrow.scalar(NO_TIMESTAMP, pyarrow.timestamp("ms", tz="UTC"))


def to_spark_columns(records: Records, names: Sequence[str]) -> pyarrow.RecordBatch:
    """Convert records to a batch with these columns, in this order."""
    batch = records.to_arrow([ARROW_NAMES.get(name, name) for name in names])
    schema = pyarrow.schema([pyarrow.field(name, COLUMN_TYPES[name]) for name in names])
    arrays = [_convert(*column) for column in zip(names, batch.columns, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _convert(name: str, column: Any) -> Any:
    if name != "timestamp":
        return column
    # Spark's connector shows a missing timestamp (-1) as one millisecond before 1970.
    known = compute.fill_null(column, _NO_TIME) if column.null_count else column
    return known.cast(MICROSECONDS)
