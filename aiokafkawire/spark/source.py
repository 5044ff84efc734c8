"""The data source and the batch reader that Spark calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from aiokafkawire.errors import InvalidOption

from .options import ReadOptions, WriteOptions
from .pushdown import NO_FILTERS, push_filters
from .read_task import KafkaInputPartition, read_partition
from .sink import KafkaBatchWriter, KafkaStreamWriter
from .streaming import KafkaStreamReader

if TYPE_CHECKING:
    import pyarrow

__all__ = ("KafkaBatchReader", "KafkaDataSource", "column_names")

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

HEADERS = StructField("headers", ArrayType(_HEADER))

SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)


class KafkaDataSource(DataSource):
    """Kafka for Spark's batch and streaming queries: format `aiokafkawire`.

    ::

        spark.read.format("aiokafkawire")
            .option("kafka.bootstrap.servers", "localhost:9092")
            .option("subscribe", "orders")
            .load()

    Options, columns and the JSON of offsets are those of Spark's Kafka connector. A `.schema()`
    with some of the columns reads only these.

    Raises:
        InvalidOption: An option is unknown, missing or invalid.
        ImportError: pyarrow is not installed.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # PySpark does not require pyarrow; without it, workers crash without an explanation.
        if find_spec("pyarrow") is None:
            raise ImportError("the data source needs pyarrow: install aiokafkawire[spark]")

    @classmethod
    def name(cls) -> str:
        return "aiokafkawire"

    def schema(self) -> StructType:
        headers = self.options.get("includeheaders", "false").strip().lower() == "true"
        return StructType([*SCHEMA.fields, HEADERS] if headers else SCHEMA.fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        return KafkaBatchReader(
            ReadOptions.parse(self.options, streaming=False), column_names(schema)
        )

    def streamReader(self, schema: StructType) -> KafkaStreamReader:  # noqa: N802 - Spark's name
        return KafkaStreamReader(
            ReadOptions.parse(self.options, streaming=True), column_names(schema)
        )

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        if overwrite:
            raise InvalidOption("a topic cannot be overwritten: use the mode append")
        return KafkaBatchWriter(WriteOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802
        # Spark sets `overwrite` in the output mode complete, where each batch has all results of
        # the query. Spark's own connector appends these as well.
        return KafkaStreamWriter(WriteOptions.parse(self.options, streaming=True), schema)


class _PushFilters:
    """A `pushFilters` method that Spark takes for one that is not overridden.

    Spark refuses a reader that overrides `pushFilters` unless
    `spark.sql.python.filterPushdown.enabled` is set. With the setting Spark calls this method;
    without it, Spark applies all filters itself.
    """

    def __init__(self, function: Callable[[Iterable[Filter]], list[Filter]]) -> None:
        self._function = function
        # The attribute that Spark compares.
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: Iterable[Filter]) -> list[Filter]:
        return self._function(filters)


class KafkaBatchReader(DataSourceReader):
    """The reader of a batch query: it plans on the driver and reads in tasks."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._pushed_filters = NO_FILTERS

    @property
    def pushFilters(self) -> _PushFilters:  # noqa: N802 - Spark's name
        return _PushFilters(self._set_filters)

    def _set_filters(self, filters: Iterable[Filter]) -> list[Filter]:
        self._pushed_filters, unhandled = push_filters(filters)
        return unhandled

    def partitions(self) -> Sequence[InputPartition]:
        # Import the client only here: processes that only check the schema do not need it.
        from aiokafkawire import blocking  # noqa: PLC0415
        from aiokafkawire.consumer import Consumer  # noqa: PLC0415

        from .clients import borrow_client  # noqa: PLC0415
        from .offset_reader import OffsetReader, driver_options  # noqa: PLC0415

        with borrow_client(Consumer, driver_options(self._options.client)) as consumer:
            ranges = blocking.call(
                OffsetReader(consumer, self._options).plan_batch, self._pushed_filters
            )
        return [KafkaInputPartition(offset_range) for offset_range in ranges]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read_partition(self._options, partition, self._columns)


def column_names(schema: StructType) -> list[str]:
    """Return the names of the columns that a query reads.

    Raises:
        InvalidOption: The schema has a column that does not exist, or one of another type.
    """
    column_types = {field.name: field.dataType for field in (*SCHEMA.fields, HEADERS)}
    for column in schema.fields:
        if column_types.get(column.name) != column.dataType:
            known = ", ".join(
                f"{name} {kind.simpleString()}" for name, kind in column_types.items()
            )
            raise InvalidOption(
                f"there is no column {column.name} of type {column.dataType.simpleString()};"
                f" use {known}"
            )
    return [column.name for column in schema.fields]
