from __future__ import annotations

from typing import Any

import pyarrow
import pytest

from aiokafkawire import Producer, blocking
from aiokafkawire.broker import Answer
from aiokafkawire.errors import KafkaError, RecordTooLarge
from aiokafkawire.spark.clients import borrow_client
from aiokafkawire.spark.range_reader import read_range
from aiokafkawire.spark.ranges import OffsetRange
from aiokafkawire.spark.writing import write_rows
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.broker.threaded_broker import ThreadedBroker
from tests.spark.kafka import create

HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))


def write(
    kafka: ThreadedBroker, topic: str | None, *columns: dict[str, Any], **options: Any
) -> int:
    batches = (pyarrow.RecordBatch.from_pydict(column) for column in columns)
    return write_rows({"bootstrap_servers": kafka.servers, **options}, topic, batches)


def rows(kafka: ThreadedBroker, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    end = kafka.call(kafka.broker.end_offset, topic, partition)
    wanted = OffsetRange(TopicPartition(topic, partition), 0, end)
    client = {"bootstrap_servers": kafka.servers}
    names = ("key", "value", "headers")
    options: Any = {"fail_on_data_loss": True, "poll_timeout_ms": 20_000}
    batches = read_range(client, wanted, names, **options)
    return [row for batch in batches for row in batch.to_pylist()]


def values(kafka: ThreadedBroker, topic: str, partition: int = 0) -> list[bytes]:
    return [row["value"] for row in rows(kafka, topic, partition)]


@pytest.mark.parametrize(
    "kind", [pyarrow.string(), pyarrow.binary(), pyarrow.large_string(), pyarrow.large_binary()]
)
def test_strings_and_bytes_are_written_as_they_are(kafka, kind):
    topic = f"kind-{kind}"
    create(kafka, topic)
    key = pyarrow.array(["k", None, "ä"], pyarrow.string()).cast(kind)
    value = pyarrow.array([None, "v", "ö"], pyarrow.string()).cast(kind)
    assert write(kafka, topic, {"key": key, "value": value}) == 3
    expected = [(b"k", None), (None, b"v"), ("ä".encode(), "ö".encode())]
    assert [(row["key"], row["value"]) for row in rows(kafka, topic)] == expected


def test_headers_are_written(kafka):
    create(kafka, "headers")
    given = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []]
    write(kafka, "headers", {"value": ["x", "y", "z"], "headers": pyarrow.array(given, HEADERS)})
    assert [row["headers"] for row in rows(kafka, "headers")] == [given[0], None, None]


def test_rows_go_to_their_topics_and_partitions_in_their_order(kafka):
    create(kafka, "one", 2)
    create(kafka, "two", 2)
    numbers = [0, 1, 1, 0, 1, 0]
    columns = {
        "topic": ["one", "two", "one", "one", "two", "two"],
        "partition": pyarrow.array(numbers, pyarrow.int32()),
        "value": ["a", "b", "c", "d", "e", "f"],
    }
    write(kafka, None, columns)
    assert values(kafka, "one", 0) == [b"a", b"d"]
    assert values(kafka, "one", 1) == [b"c"]
    assert values(kafka, "two", 0) == [b"f"]
    assert values(kafka, "two", 1) == [b"b", b"e"]


def test_a_null_partition_leaves_it_to_the_producer(kafka):
    create(kafka, "any", 2)
    numbers = pyarrow.array([None, 1, None], pyarrow.int32())
    write(kafka, "any", {"partition": numbers, "value": ["a", "b", "c"], "key": ["k", "k", "k"]})
    written = values(kafka, "any", 0) + values(kafka, "any", 1)
    assert sorted(written) == [b"a", b"b", b"c"]
    assert b"b" in values(kafka, "any", 1)


def test_the_option_is_the_topic_of_all_rows(kafka):
    create(kafka, "chosen")
    write(kafka, "chosen", {"topic": ["other", None], "value": ["a", "b"]})
    assert values(kafka, "chosen") == [b"a", b"b"]


def test_a_row_without_a_topic_is_refused(kafka):
    create(kafka, "present")
    with pytest.raises(KafkaError, match="a row's topic is null"):
        write(kafka, None, {"topic": ["present", None], "value": ["a", "b"]})


def test_many_rows_are_all_there(kafka):
    create(kafka, "many", 3)
    batches = [{"value": [f"{n}:{i}" for i in range(5_000)]} for n in range(4)]
    assert write(kafka, "many", *batches, buffer_memory_bytes=200_000) == 20_000
    found = [value for number in range(3) for value in values(kafka, "many", number)]
    assert sorted(found) == sorted(v.encode() for batch in batches for v in batch["value"])


def test_failures_are_reported_with_partition_and_reason(kafka):
    create(kafka, "failing", 2)
    fault = Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    kafka.call(kafka.broker.on, ApiKey.PRODUCE, fault)
    try:
        numbers = pyarrow.array([1, 1], pyarrow.int32())
        with pytest.raises(KafkaError, match=r"2 records failed, in failing-1 \(2\).*AUTHORIZ"):
            write(kafka, "failing", {"partition": numbers, "value": ["a", "b"]})
    finally:
        kafka.call(kafka.broker.clear_faults)
    assert write(kafka, "failing", {"value": ["c"]}) == 1


def test_a_record_that_is_too_large_is_refused(kafka):
    create(kafka, "small")
    with pytest.raises(RecordTooLarge, match="topic small"):
        write(kafka, "small", {"value": ["x" * 2_000_000]})


def test_no_rows_are_no_records(kafka):
    create(kafka, "none")
    nothing = pyarrow.array([], pyarrow.string())
    assert write(kafka, "none", {"value": nothing}) == write(kafka, "none") == 0
    assert values(kafka, "none") == []


@pytest.mark.parametrize(
    ("options", "least", "most"), [({}, 4, 8), ({"batch_size_bytes": 50_000}, 40, 80)]
)
def test_batches_are_large_by_default(kafka, options, least, most):
    topic = f"sized-{most}"
    create(kafka, topic)
    client = {"bootstrap_servers": kafka.servers, "linger_ms": 200, **options}
    write(kafka, topic, {"value": [b"x" * 100] * 20_000}, **client)
    # The producer that wrote them waits for the next task.
    with borrow_client(Producer, {"batch_size_bytes": 512 * 1024, **client}) as producer:

        async def sent() -> float:
            return producer.metrics()["batches_sent_total"]

        assert least <= blocking.call(sent) <= most
