from __future__ import annotations

import logging
import pickle
import time
from typing import Any

import pyarrow
import pytest

from aiokafkawire import Producer, blocking
from aiokafkawire.broker import Drop
from aiokafkawire.errors import KafkaError, RequestTimedOut
from aiokafkawire.spark.range_reader import read_range
from aiokafkawire.spark.ranges import OffsetRange
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey
from tests.broker.threaded_broker import ThreadedBroker
from tests.spark.kafka import append, fill, transactions

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def read(
    kafka: ThreadedBroker, topic: str, start: int, end: int, *columns: str, **options: Any
) -> list[pyarrow.RecordBatch]:
    fail = options.pop("fail_on_data_loss", True)
    timeout_ms = options.pop("poll_timeout_ms", 20_000)
    return list(
        read_range(
            {"bootstrap_servers": kafka.servers, **options},
            OffsetRange(TopicPartition(topic, 0), start, end),
            columns or ALL,
            fail_on_data_loss=fail,
            poll_timeout_ms=timeout_ms,
        )
    )


def values(*arguments: Any, **options: Any) -> list[bytes]:
    batches = read(*arguments, "value", **options)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def numbered(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@pytest.mark.parametrize(("start", "end"), [(0, 25), (0, 1), (24, 25), (7, 19), (5, 5)])
def test_exactly_the_range_is_read(kafka, start, end):
    topic = f"exact-{start}-{end}"
    fill(kafka, topic, numbered(25), batch_size_bytes=100)
    assert values(kafka, topic, start, end) == [b"%d" % n for n in range(start, end)]


def test_a_range_does_not_wait_for_what_comes_behind_the_one_before(kafka):
    fill(kafka, "tails", ["1"], ["2"])
    began = time.monotonic()
    for number in range(12):
        part = OffsetRange(TopicPartition("tails", number % 2), 0, 1)
        (batch,) = read_range(
            {"bootstrap_servers": kafka.servers},
            part,
            ["value"],
            fail_on_data_loss=True,
            poll_timeout_ms=20_000,
        )
        assert batch.num_rows == 1
    # Each would wait 500 ms, which is how long brokers may keep a fetch that asks for more.
    assert time.monotonic() - began < 3


def test_the_columns_are_those_of_spark(kafka):
    record = {"key": b"k", "value": b"v", "timestamp_ms": 1_700_000_000_123}
    fill(kafka, "columns", [{**record, "headers": [("h", b"1"), ("h", None)]}, {"value": None}])
    (batch,) = read(kafka, "columns", 0, 2)
    assert batch.schema == pyarrow.schema(
        [
            ("key", pyarrow.binary()),
            ("value", pyarrow.binary()),
            ("topic", pyarrow.string()),
            ("partition", pyarrow.int32()),
            ("offset", pyarrow.int64()),
            ("timestamp", pyarrow.timestamp("us", tz="UTC")),
            ("timestampType", pyarrow.int32()),
            (
                "headers",
                pyarrow.list_(
                    pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
                ),
            ),
        ]
    )
    first, second = batch.to_pylist()
    assert first["timestamp"].timestamp() == 1_700_000_000.123
    assert first | {"timestamp": None} == {
        "key": b"k",
        "value": b"v",
        "topic": "columns",
        "partition": 0,
        "offset": 0,
        "timestamp": None,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


def test_columns_are_given_in_the_order_asked_for(kafka):
    fill(kafka, "some", ["a"])
    (batch,) = read(kafka, "some", 0, 1, "offset", "value")
    assert batch.schema.names == ["offset", "value"]


def test_a_range_may_end_with_markers_and_aborted_records(kafka):
    fill(kafka, "marked", [])
    transactions(kafka, "marked", (["a", "b"], True), (["c"], False))
    assert values(kafka, "marked", 0, 5) == [b"a", b"b", b"c"]
    assert values(kafka, "marked", 0, 5, isolation_level="read_committed") == [b"a", b"b"]
    assert values(kafka, "marked", 2, 3) == []
    assert values(kafka, "marked", 3, 5, isolation_level="read_committed") == []


def test_offsets_that_are_gone_fail_with_what_is_left(kafka):
    fill(kafka, "gone", numbered(10))
    kafka.call(kafka.broker.delete_records, "gone", 0, 4)
    with pytest.raises(KafkaError, match="only offsets 4 to 10, but the range is 2 to 8") as caught:
        values(kafka, "gone", 2, 8)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("gone", 0, 2)
    assert values(kafka, "gone", 2, 8, fail_on_data_loss=False) == [b"4", b"5", b"6", b"7"]
    assert values(kafka, "gone", 1, 3, fail_on_data_loss=False) == []
    assert values(kafka, "gone", 4, 10) == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_a_log_that_ends_before_the_range_fails(kafka):
    fill(kafka, "short", numbered(3))
    for start in (1, 3, 7):
        with pytest.raises(KafkaError, match=f"only offsets 0 to 3, but the range is {start} to 9"):
            values(kafka, "short", start, 9)
    assert values(kafka, "short", 1, 9, fail_on_data_loss=False) == [b"1", b"2"]
    assert values(kafka, "short", 7, 9, fail_on_data_loss=False) == []


@pytest.mark.parametrize(
    ("start", "end", "skipped"),
    [(0, 8, "4 offsets (0 to 4)"), (1, 3, "2 offsets (1 to 3)"), (9, 15, "5 offsets (10 to 15)")],
)
def test_the_log_says_how_many_offsets_are_skipped(kafka, caplog, start, end, skipped):
    topic = f"skipped-{start}"
    fill(kafka, topic, numbered(10))
    kafka.call(kafka.broker.delete_records, topic, 0, 4)
    with pytest.raises(KafkaError) as caught:
        values(kafka, topic, start, end)
    assert f"With failOnDataLoss=false the query continues and skips {skipped}" in str(caught.value)
    with caplog.at_level(logging.WARNING, "aiokafkawire.spark"):
        values(kafka, topic, start, end, fail_on_data_loss=False)
    assert f"{topic}-0: records may be lost" in caplog.text
    assert f"skipping {skipped}" in caplog.text


def test_what_an_open_transaction_holds_back_is_no_part_of_the_log(kafka):
    fill(kafka, "open", numbered(3))

    async def leave_open() -> Producer:
        producer = Producer(bootstrap_servers=kafka.servers, transactional_id="open")
        await producer.start()
        await producer.begin_transaction()
        await producer.send("open", b"x", partition=0)
        await producer.flush()
        return producer

    producer = blocking.call(leave_open)
    try:
        with pytest.raises(KafkaError, match="only offsets 0 to 3, but the range is 0 to 4"):
            values(kafka, "open", 0, 4, isolation_level="read_committed")
    finally:
        blocking.call(producer.stop)


def test_a_broker_without_records_times_out(kafka):
    fill(kafka, "silent", numbered(3))
    kafka.call(kafka.broker.on, ApiKey.FETCH, Drop())
    try:
        with pytest.raises(RequestTimedOut, match=r"no progress for 0\.2 s .* ends at 3"):
            values(kafka, "silent", 0, 3, poll_timeout_ms=200)
    finally:
        kafka.call(kafka.broker.clear_faults)


def test_a_reader_that_is_not_read_to_its_end_leaves_a_usable_client(kafka):
    fill(kafka, "left", numbered(30_000), batch_size_bytes=50_000, linger_ms=50)
    wanted = OffsetRange(TopicPartition("left", 0), 0, 30_000)
    client = {"bootstrap_servers": kafka.servers}
    options: Any = {"fail_on_data_loss": True, "poll_timeout_ms": 20_000}
    for _ in range(3):
        batches = read_range(client, wanted, ("offset",), **options)
        assert next(batches).column("offset")[0].as_py() == 0
        batches.close()
    whole = list(read_range(client, wanted, ("offset",), **options))
    assert sum(len(batch) for batch in whole) == 30_000
    assert max(len(batch) for batch in whole) <= 10_000


def test_records_that_come_while_a_task_runs_are_not_read(kafka):
    fill(kafka, "later", numbered(3))
    append(kafka, "later", {0: ["x"]})
    assert values(kafka, "later", 0, 3) == [b"0", b"1", b"2"]


def test_ranges_can_be_pickled():
    wanted = OffsetRange(TopicPartition("t", 3), 1, 2)
    assert pickle.loads(pickle.dumps(wanted)) == wanted
