"""The task side of the batch and the stream reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from .options import ReadOptions
from .ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow

__all__ = ("KafkaInputPartition", "read_partition")


class KafkaInputPartition(InputPartition):
    """The offset range that one task reads."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(offset_range)


def read_partition(
    options: ReadOptions, partition: InputPartition, columns: Sequence[str]
) -> Iterator[pyarrow.RecordBatch]:
    """Read the rows of a task."""
    # Spark creates one empty task if a reader plans none.
    if partition.value is None:
        return iter(())
    from .range_reader import read_range  # noqa: PLC0415 - planning does not need it

    return read_range(
        options.client,
        partition.value,
        columns,
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout_ms=options.poll_timeout_ms,
    )
