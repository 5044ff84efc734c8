"""Batch queries. The data source is found by its name alone: nothing registers it here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.spark.kafka import fill


def load(spark: Any, kafka: Any, **options: str) -> Any:
    reader = spark.read.format("aiokafkawire").option("kafka.bootstrap.servers", kafka.servers)
    return reader.options(**options).load()


def test_rows_are_those_of_the_topic(spark, kafka):
    time_ms = 1_700_000_000_123
    records: Any = [{"key": b"k", "value": b"v", "timestamp_ms": time_ms}, {"timestamp_ms": 0}]
    fill(kafka, "rows", records, ["x"])
    frame = load(spark, kafka, subscribe="rows")
    assert frame.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    rows = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
    assert [tuple(row)[:5] for row in rows] == [
        (b"k", b"v", "rows", 0, 0),
        (None, None, "rows", 0, 1),
        (None, b"x", "rows", 1, 0),
    ]
    assert rows[0].timestampType == 0
    as_text = frame.where("key is not null").selectExpr("cast(timestamp as string) t").first()
    expected = datetime.fromtimestamp(time_ms / 1000, UTC)
    assert as_text.t == expected.strftime("%Y-%m-%d %H:%M:%S.") + "123"


def test_headers_are_given_when_asked_for(spark, kafka):
    fill(kafka, "headed", [{"value": b"v", "headers": [("h", b"1")]}, "plain"])
    frame = load(spark, kafka, subscribe="headed", includeHeaders="true")
    first, second = frame.orderBy("offset").select("headers").collect()
    assert [tuple(header) for header in first.headers] == [("h", b"1")]
    assert second.headers is None


def test_large_topics_are_split_among_tasks(spark, kafka):
    fill(kafka, "large", *[[f"{n}" for n in range(30_000)]] * 2, batch_size_bytes=100_000)
    frame = load(spark, kafka, subscribe="large", minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    (row,) = frame.selectExpr(
        "count(*) n",
        "count(distinct partition, offset) single",
        "sum(cast(cast(value as string) as int)) total",
    ).collect()
    assert (row.n, row.single, row.total) == (60_000, 60_000, 2 * sum(range(30_000)))


def test_a_schema_of_some_columns_reads_these_alone(spark, kafka):
    fill(kafka, "pruned", ["a"])
    reader = spark.read.format("aiokafkawire").option("kafka.bootstrap.servers", kafka.servers)
    frame = reader.option("subscribe", "pruned").schema("offset bigint, value binary").load()
    assert [tuple(row) for row in frame.collect()] == [(0, b"a")]
    with pytest.raises(Exception, match="there is no column key of type string"):
        reader.option("subscribe", "pruned").schema("key string").load().collect()


def test_an_empty_topic_has_no_rows(spark, kafka):
    fill(kafka, "empty", [], [])
    assert load(spark, kafka, subscribe="empty").collect() == []


def test_a_limit_ends_a_task_early(spark, kafka):
    fill(kafka, "limited", [str(n) for n in range(25_000)])
    assert len(load(spark, kafka, subscribe="limited").limit(3).collect()) == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "rows", "subscirbe": "x"}, "unknown option 'subscirbe'"),
        ({}, "one of the options subscribe"),
        ({"subscribe": "rows", "startingOffsets": "latest"}, "can't be latest for batch"),
    ],
)
def test_wrong_options_are_reported(spark, kafka, options, text):
    with pytest.raises(Exception, match=text):
        load(spark, kafka, **options).collect()


def test_lost_records_fail_the_query_by_default(spark, kafka):
    fill(kafka, "lossy", ["0", "1", "2", "3"])
    kafka.call(kafka.broker.delete_records, "lossy", 0, 2)
    wanted = {"subscribe": "lossy", "startingOffsets": '{"lossy":{"0":1}}'}
    with pytest.raises(Exception, match="records may be lost: the log has only offsets 2 to 4"):
        load(spark, kafka, **wanted).collect()
    rows = load(spark, kafka, **wanted, failOnDataLoss="false").collect()
    assert [row.offset for row in rows] == [2, 3]
