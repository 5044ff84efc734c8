"""Streaming queries, from topic to topic."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from aiokafkawire import Consumer, blocking
from aiokafkawire.types import TopicPartition
from tests.spark.kafka import append, create, fill

TIMEOUT_S = 120
SETTLING_S = 3
IDLE_S = 12
"""Time to watch an idle stream: more than twice the longest fetch wait."""


def stream(spark: Any, kafka: Any, source: str, sink: str, place: Path, **options: str) -> Any:
    """A query that copies values; its trigger is up to the caller."""
    reader = spark.readStream.format("aiokafkawire").options(subscribe=source, **options)
    frame = reader.option("kafka.bootstrap.servers", kafka.servers).load()
    writer = frame.select("key", "value").writeStream.format("aiokafkawire")
    writer = writer.option("kafka.bootstrap.servers", kafka.servers).option("topic", sink)
    return writer.option("checkpointLocation", str(place))


def run(writer: Any) -> Any:
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(TIMEOUT_S)
    finally:
        query.stop()
    return query


def values(spark: Any, kafka: Any, topic: str) -> list[str]:
    reader = spark.read.format("aiokafkawire").option("kafka.bootstrap.servers", kafka.servers)
    rows = reader.option("subscribe", topic).schema("value binary").load().collect()
    return sorted(row.value.decode() for row in rows)


def committed(kafka: Any, group: str, topic: str) -> list[int | None]:
    async def ask() -> list[int | None]:
        async with Consumer(bootstrap_servers=kafka.servers, group_id=group) as consumer:
            tps = [TopicPartition(topic, n) for n in await consumer.partitions_for(topic)]
            found = await consumer.committed(*tps)
            return [None if (at := found[tp]) is None else at.offset for tp in tps]

    return blocking.call(ask)


def offsets(place: Path) -> list[Any]:
    """The ends of the batches in a checkpoint."""
    files = sorted((place / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[2]) for path in files]


def test_what_is_available_is_read_in_limited_batches_and_goes_on_later(spark, kafka, tmp_path):
    fill(kafka, "in", [f"a{n}" for n in range(20)], [f"b{n}" for n in range(10)])
    create(kafka, "out")
    given = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "12",
        "kafka.group.id": "copiers",
    }
    run(stream(spark, kafka, "in", "out", tmp_path, **given))
    everything = [f"a{n}" for n in range(20)] + [f"b{n}" for n in range(10)]
    assert values(spark, kafka, "out") == sorted(everything)
    first, *rest = offsets(tmp_path)
    assert first["in"] == {"0": 8, "1": 4}
    assert rest[-1] == {"in": {"0": 20, "1": 10}}
    assert committed(kafka, "copiers", "in") == [20, 10]
    append(kafka, "in", {1: ["later"]})
    run(stream(spark, kafka, "in", "out", tmp_path, **given))
    assert values(spark, kafka, "out") == sorted([*everything, "later"])
    assert offsets(tmp_path)[-1] == {"in": {"0": 20, "1": 11}}
    assert committed(kafka, "copiers", "in") == [20, 11]


def test_a_stream_that_runs_follows_its_topic(spark, kafka, tmp_path):
    fill(kafka, "live", ["before"])
    create(kafka, "followed")
    query = stream(spark, kafka, "live", "followed", tmp_path).start()
    try:
        end = time.monotonic() + TIMEOUT_S
        number = 0
        # The stream begins at the end as of its start, which is some time after ours.
        while kafka.call(kafka.broker.end_offset, "followed", 0) < 3:
            assert time.monotonic() < end
            assert query.exception() is None
            append(kafka, "live", {0: [f"{number}"]})
            number += 1
            time.sleep(0.5)
        query.processAllAvailable()
    finally:
        query.stop()
    found = sorted(map(int, values(spark, kafka, "followed")))
    assert found == list(range(found[0], number))


def test_an_idle_stream_asks_its_broker_less_than_once_a_second(spark, kafka, tmp_path):
    fill(kafka, "idle", ["1"], ["2"])
    reader = spark.readStream.format("aiokafkawire").option("subscribe", "idle")
    frame = reader.option("kafka.bootstrap.servers", kafka.servers).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    asked: Counter[Any] = Counter()

    def count(request: Any) -> None:
        asked[request.api_key] += 1

    query = writer.start()
    try:
        query.processAllAvailable()
        # What its start asked for is over, and it has seen that nothing is new.
        time.sleep(SETTLING_S)
        kafka.call(kafka.broker.on, None, count)
        time.sleep(IDLE_S)
        kafka.call(kafka.broker.clear_faults)
        assert query.isActive
    finally:
        query.stop()
    assert 0 < asked.total() < IDLE_S, asked


def test_lost_records_fail_the_stream_with_the_reason(spark, kafka, tmp_path):
    fill(kafka, "shrinking", ["0", "1", "2"])
    create(kafka, "kept")
    writer = stream(spark, kafka, "shrinking", "kept", tmp_path, startingOffsets="earliest")
    run(writer)
    kafka.call(kafka.broker.delete_topic, "shrinking")
    fill(kafka, "shrinking", ["3"])
    with pytest.raises(Exception, match="records may be lost: the log end offset changed from 3"):
        run(writer)


def test_a_first_batch_that_failed_reads_the_same_again(spark, kafka, tmp_path):
    fill(kafka, "again", ["before"])
    seen: list[tuple[int, list[int]]] = []
    broken = True

    def handle(frame: Any, batch_id: int) -> None:
        seen.append((batch_id, sorted(row.offset for row in frame.collect())))
        if broken:
            raise RuntimeError("broken on purpose")

    def start(**trigger: Any) -> Any:
        reader = spark.readStream.format("aiokafkawire").option("subscribe", "again")
        frame = reader.option("kafka.bootstrap.servers", kafka.servers).load()
        writer = frame.writeStream.foreachBatch(handle).trigger(**trigger)
        return writer.option("checkpointLocation", str(tmp_path)).start()

    query = start(processingTime="0 seconds")
    end = time.monotonic() + TIMEOUT_S
    while not seen:
        assert time.monotonic() < end
        append(kafka, "again", {0: ["x"]})
        time.sleep(0.3)
    with pytest.raises(Exception, match="broken on purpose"):
        query.awaitTermination(TIMEOUT_S)
    broken = False
    append(kafka, "again", {0: ["y", "z"]})
    last = kafka.call(kafka.broker.end_offset, "again", 0)
    assert start(availableNow=True).awaitTermination(TIMEOUT_S)
    first, repeated, *rest = seen
    assert repeated == first
    assert first[0] == 0
    everything = [offset for _, found in (repeated, *rest) for offset in found]
    begun = offsets(tmp_path)[0]["#initial"]["again"]["0"]
    assert everything == list(range(begun, last))
