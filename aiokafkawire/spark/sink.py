"""The writers as Spark sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from aiokafkawire.errors import InvalidOption

from .options import WriteOptions

if TYPE_CHECKING:
    import pyarrow

__all__ = ("KafkaBatchWriter", "KafkaStreamWriter")

TEXT: tuple[type[DataType], ...] = (StringType, BinaryType)

COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "key": TEXT,
    "value": TEXT,
    "topic": (StringType,),
    "headers": (ArrayType,),
    "partition": (IntegerType,),
}
"""The columns that make a record, and their types. Others are left out, as in Spark's connector."""


class _Sink:
    """What both writers do: each task writes by itself, and at least once.

    A task that Spark repeats writes again what the one before wrote.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = options
        self._names = [name for name in schema.fieldNames() if name in COLUMNS]

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        from .writing import write_rows  # noqa: PLC0415 - pyarrow takes long to import

        batches = (batch.select(self._names) for batch in iterator)
        write_rows(self._options.client, self._options.topic, batches)
        return WriterCommitMessage()


class KafkaBatchWriter(_Sink, DataSourceArrowWriter):
    """Appends the rows of a query."""


class KafkaStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch. Offsets of the source are the source's affair."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks have written: nothing is left to do."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What tasks wrote stays written."""


def _check(options: WriteOptions, schema: StructType) -> None:
    there = {field.name: field.dataType for field in schema.fields}
    if "value" not in there:
        raise InvalidOption("a column named value must be there; rename one, or cast the row")
    if options.topic is None and "topic" not in there:
        raise InvalidOption("set the option topic, or give each row its own in a column topic")
    if options.topic == "":
        raise InvalidOption("the option topic is empty")
    for name, kind in there.items():
        wanted = COLUMNS.get(name)
        fits = wanted is None or isinstance(kind, wanted)
        if isinstance(kind, ArrayType) and name == "headers":
            fits = _are_headers(kind)
        if wanted is not None and not fits:
            names = " or ".join(_NAMES[one] for one in wanted)
            raise InvalidOption(f"the column {name} must be {names}, not {kind.simpleString()}")


def _are_headers(kind: ArrayType) -> bool:
    parts = kind.elementType
    if not isinstance(parts, StructType):
        return False
    return [(part.name, type(part.dataType)) for part in parts.fields] == [
        ("key", StringType),
        ("value", BinaryType),
    ]


_NAMES: dict[type[DataType], str] = {
    StringType: "string",
    BinaryType: "binary",
    IntegerType: "int",
    ArrayType: "array<struct<key:string,value:binary>>",
}
