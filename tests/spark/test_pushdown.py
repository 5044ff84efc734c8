from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from aiokafkawire.spark.pushdown import NO_FILTERS, apply_min_timestamp, push_filters
from aiokafkawire.spark.ranges import OffsetRange
from aiokafkawire.types import TopicPartition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TOPIC, PARTITION, OFFSET, TIMESTAMP = ("topic",), ("partition",), ("offset",), ("timestamp",)

Row = dict[str, Any]


def at(milliseconds: float) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def holds(one: Filter, row: Row) -> bool | None:
    """As SQL has it: None is neither, and passes no row."""
    if isinstance(one, Not):
        inner = holds(one.child, row)
        return None if inner is None else not inner
    value = row[one.attribute[0]]  # type: ignore[attr-defined]
    match one:
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe(value=other):
            return bool(value == other)
        case In(value=others):
            return True if value in others else (None if None in others else False)
    other = one.value  # type: ignore[attr-defined]
    if value is None or other is None:
        return None
    match one:
        case EqualTo():
            return bool(value == other)
        case GreaterThan():
            return bool(value > other)
        case GreaterThanOrEqual():
            return bool(value >= other)
        case LessThan():
            return bool(value < other)
        case LessThanOrEqual():
            return bool(value <= other)
        case StringStartsWith():
            return bool(value.startswith(other))
        case StringEndsWith():
            return bool(value.endswith(other))
        case StringContains():
            return other in value
    raise AssertionError(one)


def passing(filters: Sequence[Filter], rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if all(holds(one, row) for one in filters)]


TOPICS = ("a", "ab", "b")
TIMES = st.integers(-3, 40)
"""Milliseconds, so few that equal ones are common; -1 is that of a record without."""

VALUES = {
    TOPIC: st.sampled_from([*TOPICS, "", "c"]),
    PARTITION: st.integers(-1, 3),
    OFFSET: st.integers(-2, 22),
    TIMESTAMP: TIMES.map(at) | st.integers(-3_000, 40_000).map(lambda us: at(us / 1000)),
    ("value",): st.sampled_from(["x", "y"]),
}


@st.composite
def comparisons(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    values = VALUES[column]
    maybe = values | st.none()
    kinds = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
    if column == TOPIC:
        text = [StringStartsWith, StringEndsWith, StringContains]
        more = [st.builds(kind, st.just(column), values) for kind in text]
    else:
        more = []
    return draw(
        st.one_of(
            *(st.builds(kind, st.just(column), maybe) for kind in kinds),
            st.builds(In, st.just(column), st.lists(maybe, max_size=3).map(tuple)),
            st.builds(IsNull, st.just(column)),
            st.builds(IsNotNull, st.just(column)),
            *more,
        )
    )


FILTERS = st.lists(comparisons() | comparisons().map(Not), max_size=4)


@st.composite
def logs(draw: st.DrawFn) -> dict[TopicPartition, list[Row]]:
    """Partitions with gaps in the offsets, and timestamps in no order."""
    found = {}
    for topic in draw(st.lists(st.sampled_from(TOPICS), max_size=2, unique=True)):
        for partition in range(draw(st.integers(1, 3))):
            offsets = sorted(draw(st.sets(st.integers(0, 20), max_size=12)))
            found[TopicPartition(topic, partition)] = [
                {
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "timestamp": at(draw(st.integers(-1, 40))),
                    "value": draw(st.sampled_from(["x", "y", None])),
                }
                for offset in offsets
            ]
    return found


@settings(max_examples=200)
@given(FILTERS, logs(), st.data())
def test_no_row_is_left_out_that_passes(filters, log, data):
    ranges = []
    for tp in log:
        start, end = sorted(data.draw(st.tuples(st.integers(0, 22), st.integers(0, 22))))
        ranges.append(OffsetRange(tp, start, end))
    pushed, unhandled = push_filters(filters)
    assert all(any(one is given for given in filters) for one in unhandled)
    found = pushed.apply(ranges)
    if pushed.min_timestamp_ms is not None:
        found = [
            apply_min_timestamp(
                wanted, 21, first_at_or_after(rows, pushed.min_timestamp_ms), log_start
            )
            for wanted in found
            for rows in (log[wanted.topic_partition],)
            for log_start in (data.draw(st.integers(0, 3)),)
        ]
    assert passing(unhandled, rows_of(log, found)) == passing(filters, rows_of(log, ranges))


def rows_of(log: dict[TopicPartition, list[Row]], ranges: Sequence[OffsetRange]) -> list[Row]:
    return [
        row
        for wanted in ranges
        for row in log[wanted.topic_partition]
        if wanted.start <= row["offset"] < wanted.end
    ]


def first_at_or_after(rows: list[Row], time_ms: int) -> int | None:
    """Return the offset that a broker finds for a timestamp."""
    return next((row["offset"] for row in rows if row["timestamp"] >= at(time_ms)), None)


RANGES = [OffsetRange(TopicPartition(topic, n), 2, 9) for topic in ("a", "b") for n in range(2)]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], [("a", 0, 2, 9), ("a", 1, 2, 9), ("b", 0, 2, 9), ("b", 1, 2, 9)]),
        ([IsNotNull(PARTITION), EqualTo(PARTITION, 1)], [("a", 1, 2, 9), ("b", 1, 2, 9)]),
        ([EqualTo(TOPIC, "a"), LessThan(PARTITION, 1)], [("a", 0, 2, 9)]),
        ([StringStartsWith(TOPIC, "b"), Not(In(PARTITION, (1, 3)))], [("b", 0, 2, 9)]),
        ([EqualTo(TOPIC, "a"), EqualTo(PARTITION, 0), EqualTo(OFFSET, 4)], [("a", 0, 4, 5)]),
        (
            [
                EqualTo(TOPIC, "a"),
                EqualTo(PARTITION, 0),
                GreaterThan(OFFSET, 4),
                LessThanOrEqual(OFFSET, 6),
            ],
            [("a", 0, 5, 7)],
        ),
        ([IsNull(TOPIC)], []),
    ],
)
def test_predicates_on_places_are_done_with(filters, expected):
    pushed, unhandled = push_filters(filters)
    found = pushed.apply(RANGES)
    shown = [(*part.topic_partition, part.start, part.end) for part in found]
    assert (shown, unhandled) == (expected, [])


@pytest.mark.parametrize(
    ("filters", "first", "end"),
    [
        ([In(OFFSET, (5, 3, None))], 3, 6),
        ([In(OFFSET, ())], 0, 0),
    ],
)
def test_a_set_of_offsets_is_a_range_of_which_spark_takes_some(filters, first, end):
    pushed, unhandled = push_filters(filters)
    assert (pushed.min_offset, pushed.end_offset, unhandled) == (first, end, filters)


@pytest.mark.parametrize(
    ("predicate", "min_timestamp_ms"),
    [
        (GreaterThanOrEqual(TIMESTAMP, at(5)), 5),
        (GreaterThanOrEqual(TIMESTAMP, at(5.001)), 6),
        (GreaterThan(TIMESTAMP, at(5)), 6),
        (GreaterThan(TIMESTAMP, at(5.001)), 6),
        (EqualTo(TIMESTAMP, at(5)), 5),
        (In(TIMESTAMP, (at(9), at(7))), 7),
        (LessThan(TIMESTAMP, at(5)), None),
        (GreaterThan(TIMESTAMP, at(-5)), None),
        (Not(EqualTo(TIMESTAMP, at(5))), None),
        (GreaterThan(TIMESTAMP, datetime(1970, 1, 2)), None),
    ],
)
def test_a_least_timestamp_is_looked_up_and_looked_at_again(predicate, min_timestamp_ms):
    pushed, unhandled = push_filters([predicate])
    assert (pushed.min_timestamp_ms, unhandled) == (min_timestamp_ms, [predicate])


@pytest.mark.parametrize(
    "predicate",
    [
        EqualTo(PARTITION, True),
        EqualTo(PARTITION, 1.0),
        EqualTo(PARTITION, None),
        In(PARTITION, (1, None)),
        EqualTo(TOPIC, 1),
        EqualTo(OFFSET, 1.0),
        In(OFFSET, (1, "2")),
        Not(EqualTo(OFFSET, 1)),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("value",), b"x"),
        IsNotNull(("key",)),
    ],
)
def test_of_what_is_not_understood_nothing_is_left_out(predicate):
    assert push_filters([predicate]) == (NO_FILTERS, [predicate])


@pytest.mark.parametrize(
    ("log_end", "found", "log_start", "start"),
    [
        (9, 4, 0, 4),
        (9, 1, 0, 2),
        (9, 12, 0, 9),
        (9, None, 0, 9),
        # Beyond the end of the log nobody knows.
        (5, None, 0, 5),
        # What was deleted may have been young enough: reading tells that it is gone.
        (9, 7, 3, 2),
        (9, 7, 2, 7),
    ],
)
def test_only_what_was_looked_through_is_left_out(log_end, found, log_start, start):
    wanted = OffsetRange(TopicPartition("t", 0), 2, 9)
    assert apply_min_timestamp(wanted, log_end, found, log_start) == wanted._replace(start=start)
