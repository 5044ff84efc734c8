"""Predicates at the source, in batch queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.kafka import fill
from tests.spark.queries.test_batch import load

SETTING = "spark.sql.python.filterPushdown.enabled"

BASE_MS = 1_700_000_000_000
TIMES = [0, 3, 1, 4, 2, 9, 5, 7, 8, 6]
"""Seconds after the base, of the records of each partition: in no order."""


@pytest.fixture(scope="module")
def topic(kafka: Any) -> str:
    records: Any = [
        {"value": str(n).encode(), "timestamp_ms": BASE_MS + time * 1000}
        for n, time in enumerate(TIMES)
    ]
    fill(kafka, "pushed", records, records, records)
    return "pushed"


@pytest.fixture
def frame(spark: Any, kafka: Any, topic: str) -> Any:
    return load(spark, kafka, subscribe=topic)


@pytest.fixture(params=["true", "false"], ids=["pushed", "not-pushed"])
def pushed(spark: Any, request: pytest.FixtureRequest) -> Iterator[bool]:
    spark.conf.set(SETTING, request.param)
    yield request.param == "true"
    spark.conf.unset(SETTING)


@pytest.mark.parametrize(
    ("where", "rows", "tasks"),
    [
        ("partition = 1", 10, 1),
        ("partition <> 1 and offset >= 8", 4, 2),
        ("topic = 'pushed' and partition in (0, 2)", 20, 2),
        ("topic = 'other'", 0, 1),
        ("offset in (2, 6) and partition = 0", 2, 1),
        ("timestamp >= timestamp_millis({base} + 7000) and partition = 0", 3, 1),
        # One empty task is what Spark makes of none.
        ("timestamp > timestamp_millis({base} + 9000)", 0, 1),
        ("timestamp < timestamp_millis({base} + 2000) and partition < 2", 4, 2),
        ("partition = 0 or offset = 3", 12, 3),
        ("value = '3'", 3, 3),
    ],
)
def test_rows_are_the_same_and_tasks_are_fewer(frame, pushed, where, rows, tasks):
    found = frame.where(where.format(base=BASE_MS))
    assert len(found.collect()) == rows
    assert found.rdd.getNumPartitions() == (tasks if pushed else 3)
