from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from aiokafkawire import blocking
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import InvalidOption, NoBrokerAvailable, UnknownTopic
from aiokafkawire.spark.clients import borrow_client
from aiokafkawire.spark.offset_reader import OffsetReader, driver_options
from aiokafkawire.spark.options import ReadOptions
from aiokafkawire.spark.pushdown import NO_FILTERS, PushedFilters
from tests.broker.threaded_broker import ThreadedBroker, threaded_broker
from tests.spark.kafka import append, fill, transactions


def plan(
    kafka: ThreadedBroker, pushed: PushedFilters = NO_FILTERS, **given: str
) -> list[tuple[str, int, int, int]]:
    servers = {"kafka.bootstrap.servers": kafka.servers}
    options = ReadOptions.parse(servers | given, streaming=False)
    with borrow_client(Consumer, driver_options(options.client)) as consumer:
        ranges = blocking.call(OffsetReader(consumer, options).plan_batch, pushed)
    return [(*part.topic_partition, part.start, part.end) for part in ranges]


@pytest.fixture(scope="module", autouse=True)
def topics(kafka: ThreadedBroker) -> None:
    fill(kafka, "a", ["1", "2", "3"], [], ["4"])
    fill(kafka, "ab", ["1", "2"])
    timed: Any = [{"value": b"", "timestamp_ms": 1000 * number} for number in range(1, 6)]
    fill(kafka, "timed", timed, timed[:2])
    fill(kafka, "cut", ["1", "2", "3", "4"])
    kafka.call(kafka.broker.delete_records, "cut", 0, 3)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": "a"}, [("a", 0, 0, 3), ("a", 2, 0, 1)]),
        ({"subscribe": "ab,a"}, [("a", 0, 0, 3), ("a", 2, 0, 1), ("ab", 0, 0, 2)]),
        ({"subscribePattern": "^ab?$"}, [("a", 0, 0, 3), ("a", 2, 0, 1), ("ab", 0, 0, 2)]),
        ({"subscribePattern": "b"}, [("ab", 0, 0, 2)]),
        ({"subscribePattern": "^b"}, []),
        ({"assign": "{}"}, []),
        ({"assign": '{"a":[2,1]}'}, [("a", 2, 0, 1)]),
        ({"subscribe": "cut"}, [("cut", 0, 3, 4)]),
        (
            {"subscribe": "a", "startingOffsets": '{"a":{"0":1,"1":-2,"2":1}}'},
            [("a", 0, 1, 3)],
        ),
        (
            {"subscribe": "a", "endingOffsets": '{"a":{"0":2,"1":-1,"2":-1}}'},
            [("a", 0, 0, 2), ("a", 2, 0, 1)],
        ),
        (
            {"subscribe": "timed", "startingTimestamp": "1500", "endingTimestamp": "3000"},
            [("timed", 0, 1, 2), ("timed", 1, 1, 2)],
        ),
        (
            {
                "subscribe": "timed",
                "startingTimestamp": "2001",
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [("timed", 0, 2, 5)],
        ),
        (
            {"subscribe": "timed", "endingOffsetsByTimestamp": '{"timed":{"0":2000,"1":9000}}'},
            [("timed", 0, 0, 1), ("timed", 1, 0, 2)],
        ),
        ({"subscribe": "ab", "minPartitions": "2"}, [("ab", 0, 0, 1), ("ab", 0, 1, 2)]),
        ({"subscribe": "ab", "maxRecordsPerPartition": "1"}, [("ab", 0, 0, 1), ("ab", 0, 1, 2)]),
    ],
)
def test_what_a_batch_reads(kafka, given, expected):
    assert plan(kafka, **given) == expected


@pytest.mark.parametrize(
    ("given", "pushed", "expected"),
    [
        ({}, PushedFilters(min_timestamp_ms=1_500), [("timed", 0, 1, 5), ("timed", 1, 1, 2)]),
        ({}, PushedFilters(min_timestamp_ms=2_001), [("timed", 0, 2, 5)]),
        ({}, PushedFilters(min_timestamp_ms=2_001, end_offset=2), []),
        ({}, PushedFilters(min_timestamp_ms=9_000), []),
        ({}, PushedFilters(min_offset=3), [("timed", 0, 3, 5)]),
        ({}, PushedFilters(min_offset=1, end_offset=2), [("timed", 0, 1, 2), ("timed", 1, 1, 2)]),
        (
            {"endingOffsets": '{"timed":{"0":9,"1":2}}'},
            PushedFilters(min_timestamp_ms=9_000),
            # Nobody knows what will come there.
            [("timed", 0, 5, 9)],
        ),
    ],
)
def test_predicates_narrow_a_batch(kafka, given, pushed, expected):
    assert plan(kafka, pushed, subscribe="timed", **given) == expected


def test_what_was_deleted_is_not_taken_for_old(kafka):
    starting = {"subscribe": "cut", "startingOffsets": '{"cut":{"0":1}}'}
    assert plan(kafka, PushedFilters(min_timestamp_ms=2**52), **starting) == [("cut", 0, 1, 4)]
    assert plan(kafka, PushedFilters(min_timestamp_ms=2**52), subscribe="cut") == []


def test_brokers_that_know_no_times_are_not_asked():
    with threaded_broker(as_of="0.10.0") as kafka:
        fill(kafka, "old", ["1", "2"])
        assert plan(kafka, PushedFilters(min_timestamp_ms=2**52), subscribe="old") == [
            ("old", 0, 0, 2)
        ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"startingOffsets": '{"a":{"0":1}}'}, "Named: a-0. Read: a-0, a-1, a-2"),
        ({"endingOffsets": '{"b":{"0":1}}'}, "endingOffsets must name all"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":1}}'}, "startingOffsetsByTimestamp must name"),
        (
            {
                "startingOffsets": '{"a":{"0":3,"1":0,"2":0}}',
                "endingOffsets": '{"a":{"0":1,"1":0,"2":0}}',
            },
            "starting offset 3 is after the ending offset 1 for a-0",
        ),
        ({"startingTimestamp": "99999999999999"}, "a-0 matches the timestamp 99999999999999"),
    ],
)
def test_what_cannot_be_read_is_said(kafka, given, text):
    with pytest.raises(InvalidOption, match=text):
        plan(kafka, subscribe="a", **given)


def test_a_topic_that_is_not_there_is_said(kafka):
    quick = {"fetchOffset.numRetries": "0", "kafka.default.api.timeout.ms": "2000"}
    with pytest.raises(UnknownTopic) as caught:
        plan(kafka, subscribe="nowhere", **quick)
    assert str(caught.value) == (
        "topic 'nowhere' does not exist: it was deleted or never created. Create it, or correct the"
        " option subscribe or assign"
    )
    assert "nowhere" not in kafka.call(lambda: kafka.broker.topics)


def test_a_partition_that_is_not_there_is_said_soon(kafka):
    began = time.monotonic()
    with pytest.raises(UnknownTopic, match="'a' has no partition 9: it has 3 partitions"):
        plan(kafka, assign='{"a":[0,9]}', **{"fetchOffset.numRetries": "0"})
    assert time.monotonic() - began < 30, "the whole of default_api_timeout_ms was waited for"


def planned_at(servers: str, **given: str) -> None:
    given = {"kafka.bootstrap.servers": servers, "subscribe": "t"} | given
    options = ReadOptions.parse(given, streaming=False)
    with borrow_client(Consumer, driver_options(options.client)) as consumer:
        blocking.call(OffsetReader(consumer, options).plan_batch)


@pytest.mark.parametrize(
    ("servers", "named"),
    [("127.77.0.1:1", "127.77.0.1:1"), ("127.77.0.1", "127.77.0.1:9092 (default port)")],
)
def test_a_closed_port_is_logged_at_once(caplog, servers, named):
    began = time.time()
    with (
        caplog.at_level(logging.WARNING, "aiokafkawire.spark"),
        pytest.raises(NoBrokerAvailable, match=r"no broker of kafka\.bootstrap\.servers"),
    ):
        planned_at(servers, **{"kafka.default.api.timeout.ms": "3000"})
    (record,) = [record for record in caplog.records if record.name == "aiokafkawire.spark"]
    assert record.getMessage() == (
        f"kafka.bootstrap.servers: no answer from {named} within 1 s; waiting up to 3 s in all"
        " (kafka.default.api.timeout.ms)"
    )
    assert record.created - began < 2.5


def test_the_driver_waits_less_than_a_minute_for_a_first_answer():
    assert driver_options({})["default_api_timeout_ms"] == 20_000
    assert driver_options({"default_api_timeout_ms": 60_000})["default_api_timeout_ms"] == 60_000


def test_the_end_is_that_of_the_isolation_level(kafka):
    fill(kafka, "isolated", [])
    transactions(kafka, "isolated", (["1"], True))
    append(kafka, "isolated", {0: ["2"]})
    committed = {"subscribe": "isolated", "kafka.isolation.level": "read_committed"}
    assert plan(kafka, **committed) == plan(kafka, subscribe="isolated")


def test_topics_of_kafkas_own_match_no_pattern(kafka):
    kafka.call(kafka.broker.create_topic, "__consumer_offsets", 1)
    assert plan(kafka, subscribePattern="__.*") == []
