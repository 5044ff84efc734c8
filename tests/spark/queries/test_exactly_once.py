"""The exactly-once sink in queries, and while they are killed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire import Consumer, blocking
from aiokafkawire.broker import Delay
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey
from tests.broker.threaded_broker import threaded_broker
from tests.spark.exactly_once import Kill, run
from tests.spark.kafka import append, create, fill


def write(frame: Any, kafka: Any, topic: str, version: int, **options: str) -> None:
    writer = frame.write.format("aiokafkawire").mode("append").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", kafka.servers)
    once = {"exactlyOnce": "true", "txnAppId": f"to-{topic}", "txnVersion": str(version)}
    writer.options(**once, **options).save()


def rows(spark: Any, kafka: Any, topic: str) -> list[int]:
    reader = spark.read.format("aiokafkawire").option("kafka.bootstrap.servers", kafka.servers)
    reader = reader.option("subscribe", topic).option("kafka.isolation.level", "read_committed")
    return sorted(int(row.value) for row in reader.load().select("value").collect())


def markers(kafka: Any, group: str, topic: str, partitions: int) -> list[int | None]:
    async def ask() -> list[int | None]:
        async with Consumer(bootstrap_servers=kafka.servers, group_id=group) as consumer:
            tps = [TopicPartition(topic, number) for number in range(partitions)]
            found = await consumer.committed(*tps)
            return [None if (at := found[tp]) is None else at.offset for tp in tps]

    return blocking.call(ask)


def numbers(spark: Any, first: int, last: int, tasks: int) -> Any:
    return spark.range(first, last, 1, tasks).selectExpr("cast(id as string) value")


def test_a_batch_that_is_repeated_is_written_once(spark, kafka):
    create(kafka, "once", 2)
    for _ in range(2):
        write(numbers(spark, 0, 1_000, 3), kafka, "once", 1)
    assert rows(spark, kafka, "once") == [*range(1_000)]
    assert markers(kafka, "to-once-0", "once", 2) == [1, 1]
    write(numbers(spark, 1_000, 1_100, 1), kafka, "once", 2)
    assert rows(spark, kafka, "once") == [*range(1_100)]


def test_a_version_with_other_rows_fails(spark, kafka):
    create(kafka, "other", 2)
    write(numbers(spark, 0, 100, 2), kafka, "other", 1)
    for again in (numbers(spark, 0, 101, 2), numbers(spark, 0, 100, 3)):
        with pytest.raises(Exception, match="gives the same rows to the same tasks"):
            write(again, kafka, "other", 1)
    assert rows(spark, kafka, "other") == [*range(100)]


def test_a_transaction_that_timed_out_fails_the_query_and_is_written_by_the_next_run(spark, kafka):
    create(kafka, "late", 2)
    short = {"kafka.transaction.timeout.ms": "1500"}
    kafka.call(lambda: kafka.broker.on(ApiKey.END_TXN, Delay(3), times=1))
    with pytest.raises(Exception, match=r"no task is committed\)\. Run"):
        write(numbers(spark, 0, 100, 2), kafka, "late", 1, **short)
    write(numbers(spark, 0, 100, 2), kafka, "late", 1)
    assert rows(spark, kafka, "late") == [*range(100)]


def test_a_stream_goes_on_behind_its_markers(spark, kafka, tmp_path):
    fill(kafka, "live-in", [f"{n}" for n in range(50)], [f"{n}" for n in range(50, 90)])
    create(kafka, "live-out", 2)

    def copy() -> Any:
        reader = spark.readStream.format("aiokafkawire").option("subscribe", "live-in")
        reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="40")
        frame = reader.option("kafka.bootstrap.servers", kafka.servers).load()
        writer = frame.select("value").writeStream.format("aiokafkawire")
        writer = writer.option("kafka.bootstrap.servers", kafka.servers).option("topic", "live-out")
        writer = writer.option("exactlyOnce", "true").option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return query

    query = copy()
    assert rows(spark, kafka, "live-out") == [*range(90)]
    # The last batch may have had rows of one task alone.
    assert max(filter(None, markers(kafka, f"{query.id}-0", "live-out", 2))) == 2
    # As if the driver had died when all was written: Spark does not know that it is.
    (Path(tmp_path) / "commits" / "2").unlink()
    (Path(tmp_path) / "commits" / ".2.crc").unlink(missing_ok=True)
    append(kafka, "live-in", {0: ["90"]})
    copy()
    assert rows(spark, kafka, "live-out") == [*range(91)]


@pytest.mark.parametrize(
    "kills",
    [
        # Between the first end and the others, which go together; then in a task that has written.
        [
            Kill("driver", ApiKey.END_TXN, 1, carried_out=True),
            Kill("task", ApiKey.TXN_OFFSET_COMMIT, 2, carried_out=False),
        ],
    ],
    ids=["driver-and-task"],
)
def test_killed_tasks_leave_every_row_once(kills, tmp_path):
    with threaded_broker() as broker:
        result = run(broker, kills, random.Random(1), tmp_path, plain=False)
    assert result.done == kills
    assert result.starts >= 2
    assert (result.missing, result.repeated) == (0, 0)
    assert result.aborted


def test_the_default_sink_would_write_some_twice(tmp_path):
    kills = [Kill("driver", ApiKey.PRODUCE, 7, carried_out=True)]
    with threaded_broker() as broker:
        result = run(broker, kills, random.Random(1), tmp_path, plain=True)
    assert (result.missing, result.done) == (0, kills)
    assert result.repeated
