"""Batch queries that write."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.broker import Answer
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.spark.kafka import create


def write(frame: Any, kafka: Any, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("aiokafkawire").mode(mode)
    writer.option("kafka.bootstrap.servers", kafka.servers).options(**options).save()


def read(spark: Any, kafka: Any, topic: str) -> list[tuple[Any, ...]]:
    reader = spark.read.format("aiokafkawire").option("kafka.bootstrap.servers", kafka.servers)
    frame = reader.option("subscribe", topic).option("includeHeaders", "true").load()
    rows = frame.orderBy("partition", "offset").collect()
    return [(row.key, row.value, row.partition, row.headers) for row in rows]


def test_rows_are_written_by_their_columns(spark, kafka):
    create(kafka, "by-columns", 2)
    create(kafka, "beside")
    frame = spark.sql(
        "select * from values"
        " ('by-columns', 1, 'k', 'v',"
        " array(named_struct('key', 'h', 'value', cast('1' as binary)))),"
        " ('by-columns', 0, null, 'w', null),"
        " ('beside', 0, 'k', null, null)"
        " as t(topic, partition, key, value, headers)"
    ).selectExpr("*", "1 as other")
    write(frame, kafka)
    first, second = read(spark, kafka, "by-columns")
    assert first == (None, b"w", 0, None)
    assert second[:3] == (b"k", b"v", 1)
    assert [tuple(header) for header in second[3]] == [("h", b"1")]
    assert read(spark, kafka, "beside") == [(b"k", None, 0, None)]


def test_many_rows_are_all_there_once(spark, kafka):
    create(kafka, "counted", 3)
    write(spark.range(20_000).selectExpr("cast(id as string) value"), kafka, topic="counted")
    written = [int(row[1]) for row in read(spark, kafka, "counted")]
    assert sorted(written) == list(range(20_000))


@pytest.mark.parametrize(
    ("columns", "mode", "options", "text"),
    [
        (["'a' value"], "append", {}, "set the option topic"),
        (["'a' key"], "append", {"topic": "t"}, "no column named value"),
        (["1 value"], "append", {"topic": "t"}, "column value must be string or binary, not int"),
        (["'a' value", "'b' headers"], "append", {"topic": "t"}, "headers must be array<struct"),
        (["'a' value", "1L partition"], "append", {"topic": "t"}, "partition must be int, not big"),
        (["'a' value"], "append", {"topic": "t", "toppic": "x"}, "unknown option 'toppic'"),
        (["'a' value"], "overwrite", {"topic": "t"}, "cannot be overwritten"),
    ],
)
def test_what_cannot_be_written_is_reported(  # noqa: PLR0917 - fixtures
    spark, kafka, columns, mode, options, text
):
    with pytest.raises(Exception, match=text):
        write(spark.range(1).selectExpr(*columns), kafka, mode, **options)


def test_a_failed_record_fails_the_query_with_its_partition_and_reason(spark, kafka):
    create(kafka, "refused")
    kafka.call(kafka.broker.on, ApiKey.PRODUCE, Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    try:
        with pytest.raises(Exception, match=r"1 records failed, in refused-0 \(1\)"):
            write(spark.range(1).selectExpr("'a' value"), kafka, topic="refused")
    finally:
        kafka.call(kafka.broker.clear_faults)
