"""The stream reader that Spark calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from .offsets import to_nested
from .options import ReadOptions
from .read_task import KafkaInputPartition, read_partition

if TYPE_CHECKING:
    import pyarrow

    from .offset_progress import OffsetProgress

__all__ = ("KafkaStreamReader",)


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query.

    One instance lives in a process of the driver as long as the query; tasks use copies.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._cached_progress: OffsetProgress | None = None

    @property
    def _progress(self) -> OffsetProgress:
        if self._cached_progress is None:
            # Only on the driver; the copies in tasks need no consumer for offsets.
            from .offset_progress import OffsetProgress  # noqa: PLC0415

            self._cached_progress = OffsetProgress(self._options)
        return self._cached_progress

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as all here
        return self._progress.initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None and not self._progress.has_fixed_end:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ignore_limits = isinstance(limit, ReadAllAvailable)
        return self._progress.latest_offset(start, rows, ignore_limits=ignore_limits)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return to_nested(self._progress.latest_offsets) or None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._progress.prepare_for_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [
            KafkaInputPartition(offset_range)
            for offset_range in self._progress.plan_ranges(start, end)
        ]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read_partition(self._options, partition, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        self._progress.commit(end)
