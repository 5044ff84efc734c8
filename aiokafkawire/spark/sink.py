"""The writers that Spark calls."""

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

from .exactly_once import SinkBatch, TaskResult
from .options import ExactlyOnceOptions, WriteOptions

if TYPE_CHECKING:
    import pyarrow

__all__ = ("KafkaBatchWriter", "KafkaStreamWriter")

TEXT_TYPES: tuple[type[DataType], ...] = (StringType, BinaryType)

QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"
"""Local properties of a task with the id of its stream and the number of its micro-batch."""

COLUMN_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": TEXT_TYPES,
    "value": TEXT_TYPES,
    "topic": (StringType,),
    "headers": (ArrayType,),
    "partition": (IntegerType,),
}
"""The columns of a record and their types. Other columns are ignored, as in Spark's connector."""


class TaskCommitMessage(WriterCommitMessage):
    """The result of a task of the exactly-once sink, which Spark passes to the driver."""

    def __init__(self, result: TaskResult) -> None:
        self.result = result


class _KafkaWriter:
    """The common part of both writers.

    By default rows are written at least once: a task that Spark repeats writes its rows again. With
    `exactlyOnce` each task leaves a transaction open, and the driver commits all of them.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _validate_schema(options, schema)
        self._options = options
        self._names = [name for name in schema.fieldNames() if name in COLUMN_TYPES]

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        options = self._options
        batches = (batch.select(self._names) for batch in iterator)
        # Every process of Spark imports this module; import only what the mode needs.
        if options.exactly_once is None:
            from .writing import write_rows  # noqa: PLC0415

            write_rows(options.client, options.topic, batches)
            return WriterCommitMessage()
        from .transactions import write_in_transaction  # noqa: PLC0415

        task, batch = _current_task(options.exactly_once)
        return TaskCommitMessage(
            write_in_transaction(options.client, options.topic, batch, task, batches)
        )

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once is not None:
            from .transactions import commit_all  # noqa: PLC0415 - see write

            results = _task_results(messages)
            if len(results) != len(messages):
                count = f"{len(results)} of {len(messages)} tasks"
                raise KafkaError(
                    f"exactlyOnce: Spark passed the results of {count} to the driver; run the"
                    " batch again"
                )
            commit_all(self._options.client, results)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once is not None:
            from .transactions import abort_all  # noqa: PLC0415 - see write

            abort_all(self._options.client, _task_results(messages))


class KafkaBatchWriter(_KafkaWriter, DataSourceArrowWriter):
    """The writer of a batch query, which appends its rows."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the transactions of all tasks, if there are any."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the transactions of all tasks. Rows outside transactions stay written."""
        self._abort(messages)


class KafkaStreamWriter(_KafkaWriter, DataSourceStreamArrowWriter):
    """The writer of a streaming query, which appends the rows of each micro-batch."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the transactions of all tasks, if there are any."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort the transactions of all tasks. Rows outside transactions stay written."""
        self._abort(messages)


def _current_task(options: ExactlyOnceOptions) -> tuple[int, SinkBatch]:
    """Return the number of this task and its batch."""
    context = TaskContext.get()
    assert context is not None, "runs in a task only"
    number, query = options.version, ""
    if number is None:
        query = context.getLocalProperty(QUERY_ID_PROPERTY) or ""
        number = int(context.getLocalProperty(BATCH_ID_PROPERTY) or -1)
        if not query or number < 0:
            raise KafkaError(
                "exactlyOnce: the micro-batch of the task is unknown, because Spark did not set the"
                f" local properties {QUERY_ID_PROPERTY} and {BATCH_ID_PROPERTY}"
            )
    return context.partitionId(), SinkBatch(
        options.app_id or query, query, number, options.marker_topic
    )


def _task_results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    return [message.result for message in messages if isinstance(message, TaskCommitMessage)]


def _validate_schema(options: WriteOptions, schema: StructType) -> None:
    column_types = {field.name: field.dataType for field in schema.fields}
    if "value" not in column_types:
        raise InvalidOption("the rows have no column named value: rename a column, or cast the row")
    if options.topic is None and "topic" not in column_types:
        raise InvalidOption(
            "no topic: set the option topic, or add a column topic with the topic of each row"
        )
    if options.topic == "":
        raise InvalidOption("the option topic is empty")
    for name, kind in column_types.items():
        allowed = COLUMN_TYPES.get(name)
        fits = allowed is None or isinstance(kind, allowed)
        if isinstance(kind, ArrayType) and name == "headers":
            fits = _is_headers_type(kind)
        if allowed is not None and not fits:
            names = " or ".join(_TYPE_NAMES[column_type] for column_type in allowed)
            raise InvalidOption(f"the column {name} must be {names}, not {kind.simpleString()}")


def _is_headers_type(kind: ArrayType) -> bool:
    parts = kind.elementType
    if not isinstance(parts, StructType):
        return False
    return [(part.name, type(part.dataType)) for part in parts.fields] == [
        ("key", StringType),
        ("value", BinaryType),
    ]


_TYPE_NAMES: dict[type[DataType], str] = {
    StringType: "string",
    BinaryType: "binary",
    IntegerType: "int",
    ArrayType: "array<struct<key:string,value:binary>>",
}
