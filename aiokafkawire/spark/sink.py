"""The writers as Spark sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
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

from aiokafkawire.errors import InvalidOption, KafkaError

from .exactly_once import Batch, Result
from .options import ExactlyOnce, WriteOptions

if TYPE_CHECKING:
    import pyarrow

__all__ = ("KafkaBatchWriter", "KafkaStreamWriter")

TEXT: tuple[type[DataType], ...] = (StringType, BinaryType)

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Where Spark tells tasks of a stream which one it is, and which of its micro-batches."""

COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "key": TEXT,
    "value": TEXT,
    "topic": (StringType,),
    "headers": (ArrayType,),
    "partition": (IntegerType,),
}
"""The columns that make a record, and their types. Others are left out, as in Spark's connector."""


class TaskDone(WriterCommitMessage):
    """What a task of the exactly-once sink tells the driver."""

    def __init__(self, result: Result) -> None:
        self.result = result


class _Sink:
    """What both writers do: each task writes by itself, and at least once, or exactly once and
    then the driver ends what all have written.

    At least once: a task that Spark repeats writes again what the one before wrote.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _check(options, schema)
        self._options = options
        self._names = [name for name in schema.fieldNames() if name in COLUMNS]

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        options = self._options
        batches = (batch.select(self._names) for batch in iterator)
        # Each process of Spark's imports for itself: no more than it needs.
        if options.exactly_once is None:
            from .writing import write_rows  # noqa: PLC0415

            write_rows(options.client, options.topic, batches)
            return WriterCommitMessage()
        from .transactions import write_in_transaction  # noqa: PLC0415

        task, batch = _here(options.exactly_once)
        return TaskDone(write_in_transaction(options.client, options.topic, batch, task, batches))

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once is not None:
            from .transactions import end_all  # noqa: PLC0415 - see write

            results = _results(messages)
            if len(results) != len(messages):
                told = f"{len(results)} of {len(messages)} tasks"
                raise KafkaError(f"exactlyOnce: Spark hands over what {told} have written")
            end_all(self._options.client, results)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once is not None:
            from .transactions import abort_all  # noqa: PLC0415 - see write

            abort_all(self._options.client, _results(messages))


class KafkaBatchWriter(_Sink, DataSourceArrowWriter):
    """Appends the rows of a query."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks have written: end their transactions, if there are any."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What tasks wrote stays written, if not in transactions."""
        self._abort(messages)


class KafkaStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch. Offsets of the source are the source's affair."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks have written: end their transactions, if there are any."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What tasks wrote stays written, if not in transactions."""
        self._abort(messages)


def _here(how: ExactlyOnce) -> tuple[int, Batch]:
    """The number of this task, and the batch that it is of."""
    context = TaskContext.get()
    assert context is not None, "tasks have one"
    number, query = how.version, ""
    if number is None:
        query = context.getLocalProperty(QUERY_ID) or ""
        number = int(context.getLocalProperty(BATCH_ID) or -1)
        if not query or number < 0:
            raise KafkaError("exactlyOnce: Spark does not tell which micro-batch a task is of")
    return context.partitionId(), Batch(how.app_id or query, query, number, how.marker_topic)


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[Result]:
    return [message.result for message in messages if isinstance(message, TaskDone)]


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
