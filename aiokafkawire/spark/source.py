"""The data source as Spark sees it."""

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
from .pushdown import EVERYTHING, narrowing
from .sink import KafkaBatchWriter, KafkaStreamWriter
from .streaming import KafkaStreamReader
from .tasks import RangePartition, read_partition

if TYPE_CHECKING:
    import pyarrow

__all__ = ("KafkaBatchReader", "KafkaDataSource", "columns_of")

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

    Options, columns and the JSON of offsets are those of Spark's own Kafka connector; a `.schema()`
    of some of the columns reads these alone. Wrong options raise `InvalidOption`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # PySpark is installed without it as well; its workers then only crash.
        if find_spec("pyarrow") is None:
            raise ImportError("the data source needs pyarrow: install aiokafkawire[spark]")

    @classmethod
    def name(cls) -> str:
        return "aiokafkawire"

    def schema(self) -> StructType:
        headers = self.options.get("includeheaders", "false").strip().lower() == "true"
        return StructType([*SCHEMA.fields, HEADERS] if headers else SCHEMA.fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        return KafkaBatchReader(ReadOptions.of(self.options, streaming=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> KafkaStreamReader:  # noqa: N802 - Spark's name
        return KafkaStreamReader(ReadOptions.of(self.options, streaming=True), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        if overwrite:
            raise InvalidOption("a topic cannot be overwritten: use the mode append")
        return KafkaBatchWriter(WriteOptions.of(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:  # noqa: N802
        # `overwrite` is how Spark says complete: all results of the query, again and again, which
        # its own connector appends as well.
        return KafkaStreamWriter(WriteOptions.of(self.options, streaming=True), schema)


class _PushFilters:
    """A method that Spark calls where `spark.sql.python.filterPushdown.enabled` is set, and else
    takes for one that nobody has overridden: it would refuse the query. Here all predicates hold
    without it too.
    """

    def __init__(self, function: Callable[[Iterable[Filter]], list[Filter]]) -> None:
        self._function = function
        # What Spark looks at.
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: Iterable[Filter]) -> list[Filter]:
        return self._function(filters)


class KafkaBatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._narrowed = EVERYTHING

    @property
    def pushFilters(self) -> _PushFilters:  # noqa: N802 - Spark's name
        return _PushFilters(self._narrow)

    def _narrow(self, filters: Iterable[Filter]) -> list[Filter]:
        self._narrowed, left = narrowing(filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        # A process that only looks what there is, or commits, imports no client.
        from aiokafkawire import blocking  # noqa: PLC0415
        from aiokafkawire.consumer import Consumer  # noqa: PLC0415

        from .clients import borrowed  # noqa: PLC0415
        from .planning import Planner, driver_options  # noqa: PLC0415

        with borrowed(Consumer, driver_options(self._options.client)) as consumer:
            ranges = blocking.call(Planner(consumer, self._options).batch, self._narrowed)
        return [RangePartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read_partition(self._options, partition, self._columns)


def columns_of(schema: StructType) -> list[str]:
    """The columns that a query reads. Raises `InvalidOption` for what there is not."""
    there = {field.name: field.dataType for field in (*SCHEMA.fields, HEADERS)}
    for column in schema.fields:
        if there.get(column.name) != column.dataType:
            known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in there.items())
            raise InvalidOption(
                f"there is no column {column.name} of type {column.dataType.simpleString()};"
                f" there are {known}"
            )
    return [column.name for column in schema.fields]
