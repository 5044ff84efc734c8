"""Filter pushdown: skip partitions and offsets that a query's filters exclude.

Filters on topic, partition and offset are applied in full here, because these are known before a
record is read. Timestamps need not increase with offsets. For a timestamp, ListOffsets returns the
first offset with that timestamp or a later one: all records before it are older, while those after
it may be older or newer. So a lower bound on the timestamp moves the start of a range, an upper
bound changes nothing, and Spark applies both again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aiokafkawire.types import TopicPartition

from .ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ("NO_FILTERS", "PushedFilters", "apply_min_timestamp", "push_filters")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

MICROSECOND = timedelta(microseconds=1)

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda value, other: value == other,
    "EqualNullSafe": lambda value, other: value == other,
    "GreaterThan": lambda value, other: value > other,
    "GreaterThanOrEqual": lambda value, other: value >= other,
    "LessThan": lambda value, other: value < other,
    "LessThanOrEqual": lambda value, other: value <= other,
    "In": lambda value, others: value in others,
    "StringStartsWith": lambda value, other: value.startswith(other),
    "StringEndsWith": lambda value, other: value.endswith(other),
    "StringContains": lambda value, other: other in value,
}
"""Comparisons of a non-null value with values of its own type, by the name of the filter class.

Names are used instead of classes because the planner does not import PySpark."""

NON_NULL_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType")
"""Columns that are never null."""


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The filters of a query that restrict the partitions and offsets to read.

    Attributes:
        partition_filters: Filters on topic and partition; all must match.
        min_offset: The lowest offset to read in every partition.
        end_offset: The offset to stop at (exclusive), or None for no bound.
        min_timestamp_ms: The lowest timestamp, in milliseconds since 1970, or None for no bound.
    """

    partition_filters: tuple[Filter, ...] = ()
    min_offset: int = 0
    end_offset: int | None = None
    min_timestamp_ms: int | None = None

    def apply(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Apply the filters on topic, partition and offset to the ranges."""
        return [
            self._clip(offset_range)
            for offset_range in ranges
            if self._includes(offset_range.topic_partition)
        ]

    def _includes(self, tp: TopicPartition) -> bool:
        values = {"topic": tp.topic, "partition": tp.partition}
        return all(_matches(predicate, values) for predicate in self.partition_filters)

    def _clip(self, offset_range: OffsetRange) -> OffsetRange:
        start = max(offset_range.start, self.min_offset)
        end = (
            offset_range.end if self.end_offset is None else min(offset_range.end, self.end_offset)
        )
        return offset_range._replace(start=start, end=max(start, end))


def apply_min_timestamp(
    offset_range: OffsetRange, log_end: int, first_match: int | None, log_start: int
) -> OffsetRange:
    """Skip the records of a range that are older than a timestamp.

    Look up `log_end` first, then `first_match`, then `log_start`. All offsets between `log_start`
    and `log_end` were then in the log during the look-up. Offsets outside are not skipped, because
    their timestamps are unknown.

    Args:
        offset_range: The range to shorten.
        log_end: The log end offset.
        found: The first offset with the timestamp or a later one; None if all records are older.
        log_start: The log start offset.
    """
    if log_start > offset_range.start:
        return offset_range
    start = min(offset_range.end, log_end if first_match is None else first_match)
    return offset_range._replace(start=max(offset_range.start, start))


NO_FILTERS = PushedFilters()


def push_filters(filters: Iterable[Filter]) -> tuple[PushedFilters, list[Filter]]:
    """Return the pushed filters, and the filters that Spark must still apply to the rows."""
    pushed = NO_FILTERS
    unhandled = []
    for predicate in filters:
        kind, column = _filter_name(predicate), _column(predicate)
        if kind == "IsNotNull" and column in NON_NULL_COLUMNS:
            continue
        if column in {"topic", "partition"} and _has_comparable_type(predicate, column):
            pushed = replace(pushed, partition_filters=(*pushed.partition_filters, predicate))
            continue
        bounds = _offset_bounds(predicate) if column == "offset" else None
        if bounds is not None:
            pushed = _with_offset_bounds(pushed, *bounds)
            if kind != "In":
                continue
        elif column == "timestamp":
            pushed = _with_min_timestamp(pushed, predicate)
        unhandled.append(predicate)
    return pushed, unhandled


def _filter_name(predicate: Filter) -> str:
    return type(predicate).__name__


def _without_not(predicate: Any) -> Any:
    """Return the child of a `Not`, or the filter itself."""
    return predicate.child if _filter_name(predicate) == "Not" else predicate


def _column(predicate: Filter) -> str | None:
    path: tuple[str, ...] = getattr(_without_not(predicate), "attribute", ())
    return path[0] if len(path) == 1 else None


def _has_comparable_type(predicate: Filter, column: str) -> bool:
    """Return whether Python compares the values of this filter as Spark does."""
    inner = _without_not(predicate)
    if _filter_name(inner) in {"IsNull", "IsNotNull"}:
        return True
    if _filter_name(inner) not in COMPARISONS:
        return False
    value_type = str if column == "topic" else int
    values = inner.value if _filter_name(inner) == "In" else (inner.value,)
    return all(type(value) is value_type for value in values)


def _matches(predicate: Any, values: Mapping[str, Any]) -> bool:
    kind = _filter_name(predicate)
    if kind == "Not":
        return not _matches(predicate.child, values)
    if kind in {"IsNull", "IsNotNull"}:
        return kind == "IsNotNull"
    return COMPARISONS[kind](values[predicate.attribute[0]], predicate.value)


def _offset_bounds(predicate: Any) -> tuple[int, int | None] | None:
    """Return the lowest offset and the end (exclusive) that may match, or None if unknown."""
    kind = _filter_name(predicate)
    if kind == "IsNull":
        return 0, 0
    if kind == "In":
        values = [value for value in predicate.value if value is not None]
        if any(type(value) is not int for value in values):
            return None
        return (min(values), max(values) + 1) if values else (0, 0)
    value = getattr(predicate, "value", None)
    if type(value) is not int:
        return None
    bounds: Mapping[str, tuple[int, int | None]] = {
        "EqualTo": (value, value + 1),
        "EqualNullSafe": (value, value + 1),
        "GreaterThan": (value + 1, None),
        "GreaterThanOrEqual": (value, None),
        "LessThan": (0, value),
        "LessThanOrEqual": (0, value + 1),
    }
    return bounds.get(kind)


def _with_offset_bounds(
    pushed: PushedFilters, min_offset: int, end_offset: int | None
) -> PushedFilters:
    ends = [end for end in (pushed.end_offset, end_offset) if end is not None]
    return replace(
        pushed, min_offset=max(pushed.min_offset, min_offset), end_offset=min(ends, default=None)
    )


def _with_min_timestamp(pushed: PushedFilters, predicate: Any) -> PushedFilters:
    """Add the lower bound of a filter on timestamps, rounded up to Kafka's milliseconds."""
    kind = _filter_name(predicate)
    if kind == "In":
        values = [value for value in predicate.value if value is not None]
    elif kind in {"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"}:
        values = [predicate.value]
    else:
        return pushed
    if not values or not all(_has_time_zone(value) for value in values):
        return pushed
    microseconds = min((value - EPOCH) // MICROSECOND for value in values)
    least_ms = -((-microseconds - (kind == "GreaterThan")) // 1000)
    # Only records without a timestamp are older than 1970.
    return replace(pushed, min_timestamp_ms=max(least_ms, pushed.min_timestamp_ms or 0) or None)


def _has_time_zone(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None
