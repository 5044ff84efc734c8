"""Which ranges a query's predicates leave to be read, and what Spark must still look at.

Only what is certain is left out. Partitions and offsets of a record are known before it is read,
so that predicates on them are done with here. Timestamps need not grow with the offsets: the
broker tells the first record at or after a time, all before it are older, and of those behind it
nothing is known. So a lower bound moves the start, an upper one nothing, and Spark applies both
again.
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

__all__ = ("EVERYTHING", "Narrowing", "narrowing", "not_before")

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
"""Of a value that is not null with one, or several, of its own type. By the names of the classes of
filters, as what plans is not to import PySpark."""

ALWAYS_THERE = ("topic", "partition", "offset", "timestamp", "timestampType")
"""Columns that are null in no row."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What is to be read.

    `places` are predicates on topic and partition that all hold, `first` to `end` (without it) are
    the offsets of every partition, `not_before_ms` is the least timestamp.
    """

    places: tuple[Filter, ...] = ()
    first: int = 0
    end: int | None = None
    not_before_ms: int | None = None

    def ranges(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """What the predicates on topic, partition and offset leave."""
        return [self._clipped(wanted) for wanted in ranges if self._wants(wanted.topic_partition)]

    def _wants(self, tp: TopicPartition) -> bool:
        values = {"topic": tp.topic, "partition": tp.partition}
        return all(_holds(place, values) for place in self.places)

    def _clipped(self, wanted: OffsetRange) -> OffsetRange:
        start = max(wanted.start, self.first)
        end = wanted.end if self.end is None else min(wanted.end, self.end)
        return wanted._replace(start=start, end=max(start, end))


def not_before(wanted: OffsetRange, log_end: int, found: int | None, log_start: int) -> OffsetRange:
    """What a least timestamp leaves of a range.

    `found` is the first offset at or after it, None if all records are older. It must have been
    looked up after `log_end` and before `log_start`: then what stands between the two was there.
    What did not, nobody knows, and reading it will tell.
    """
    if log_start > wanted.start:
        return wanted
    start = min(wanted.end, log_end if found is None else found)
    return wanted._replace(start=max(wanted.start, start))


EVERYTHING = Narrowing()


def narrowing(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """What all of these leave to be read, and those that Spark must apply to the rows."""
    narrowed = EVERYTHING
    left = []
    for one in filters:
        kind, column = _kind(one), _column(one)
        if kind == "IsNotNull" and column in ALWAYS_THERE:
            continue
        if column in {"topic", "partition"} and _is_of_one_type(one, column):
            narrowed = replace(narrowed, places=(*narrowed.places, one))
            continue
        bounds = _bounds(one) if column == "offset" else None
        if bounds is not None:
            narrowed = _between(narrowed, *bounds)
            if kind != "In":
                continue
        elif column == "timestamp":
            narrowed = _from_time(narrowed, one)
        left.append(one)
    return narrowed, left


def _kind(one: Filter) -> str:
    return type(one).__name__


def _inner(one: Any) -> Any:
    """A filter without a `not` before it."""
    return one.child if _kind(one) == "Not" else one


def _column(one: Filter) -> str | None:
    path: tuple[str, ...] = getattr(_inner(one), "attribute", ())
    return path[0] if len(path) == 1 else None


def _is_of_one_type(one: Filter, column: str) -> bool:
    """Whether Python compares these as Spark does."""
    inner = _inner(one)
    if _kind(inner) in {"IsNull", "IsNotNull"}:
        return True
    if _kind(inner) not in COMPARISONS:
        return False
    wanted = str if column == "topic" else int
    values = inner.value if _kind(inner) == "In" else (inner.value,)
    return all(type(value) is wanted for value in values)


def _holds(one: Any, values: Mapping[str, Any]) -> bool:
    kind = _kind(one)
    if kind == "Not":
        return not _holds(one.child, values)
    if kind in {"IsNull", "IsNotNull"}:
        return kind == "IsNotNull"
    return COMPARISONS[kind](values[one.attribute[0]], one.value)


def _bounds(one: Any) -> tuple[int, int | None] | None:
    """The offsets that may hold it, first and end; None if it is of another kind."""
    kind = _kind(one)
    if kind == "IsNull":
        return 0, 0
    if kind == "In":
        values = [value for value in one.value if value is not None]
        if any(type(value) is not int for value in values):
            return None
        return (min(values), max(values) + 1) if values else (0, 0)
    value = getattr(one, "value", None)
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


def _between(narrowed: Narrowing, first: int, end: int | None) -> Narrowing:
    ends = [one for one in (narrowed.end, end) if one is not None]
    return replace(narrowed, first=max(narrowed.first, first), end=min(ends, default=None))


def _from_time(narrowed: Narrowing, one: Any) -> Narrowing:
    """A lower bound of the timestamps, in whole milliseconds, which is what Kafka has."""
    kind = _kind(one)
    if kind == "In":
        values = [value for value in one.value if value is not None]
    elif kind in {"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"}:
        values = [one.value]
    else:
        return narrowed
    if not values or not all(_is_instant(value) for value in values):
        return narrowed
    microseconds = min((value - EPOCH) // MICROSECOND for value in values)
    least_ms = -((-microseconds - (kind == "GreaterThan")) // 1000)
    # No record but one without a timestamp is older than 1970.
    return replace(narrowed, not_before_ms=max(least_ms, narrowed.not_before_ms or 0) or None)


def _is_instant(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None
