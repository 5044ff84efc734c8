from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from aiokafkawire import Consumer, blocking
from aiokafkawire.errors import InvalidOption, KafkaError, UnknownTopic
from aiokafkawire.spark.offset_progress import INITIAL, OffsetProgress
from aiokafkawire.spark.options import ReadOptions
from aiokafkawire.types import TopicPartition
from tests.broker.threaded_broker import ThreadedBroker
from tests.spark.kafka import append, fill

Begin = Callable[..., OffsetProgress]


@pytest.fixture
def begin(kafka: ThreadedBroker) -> Any:
    begun = []

    def begin(**given: str) -> OffsetProgress:
        options = {"kafka.bootstrap.servers": kafka.servers, "startingOffsets": "earliest"} | given
        begun.append(OffsetProgress(ReadOptions.parse(options, streaming=True)))
        return begun[-1]

    yield begin
    for progress in begun:
        blocking.call(progress._consumer.stop)


def after(progress: OffsetProgress, start: Any, max_rows: int | None = None) -> Any:
    return progress.latest_offset(start, max_rows, ignore_limits=False)


def read(progress: OffsetProgress, start: Any, end: Any) -> list[tuple[str, int, int, int]]:
    return [
        (*part.topic_partition, part.start, part.end) for part in progress.plan_ranges(start, end)
    ]


def test_a_stream_goes_on_from_end_to_end(kafka, begin):
    fill(kafka, "on", ["1", "2"], ["3"])
    progress = begin(subscribe="on")
    start = progress.initial_offset()
    assert start == {"on": {"0": 0, "1": 0}}
    first = after(progress, start)
    assert first == {INITIAL: start, "on": {"0": 2, "1": 1}}
    assert read(progress, start, first) == [("on", 0, 0, 2), ("on", 1, 0, 1)]
    append(kafka, "on", {1: ["4"]})
    second = after(progress, first)
    assert second == {"on": {"0": 2, "1": 2}}
    assert read(progress, first, second) == [("on", 1, 1, 2)]
    assert after(progress, second) is second
    assert read(progress, second, second) == []


def test_where_the_first_batch_began_is_kept_with_its_end(kafka, begin):
    fill(kafka, "latest", ["1", "2"])
    first_run = begin(subscribe="latest", startingOffsets="latest")
    start = first_run.initial_offset()
    append(kafka, "latest", {0: ["3"]})
    end = after(first_run, start)
    # A restart before the batch was done: the log has grown, and Spark asks again.
    second_run = begin(subscribe="latest", startingOffsets="latest")
    again = second_run.initial_offset()
    assert (start, again) == ({"latest": {"0": 2}}, {"latest": {"0": 3}})
    assert read(second_run, again, end) == [("latest", 0, 2, 3)]


def test_a_first_batch_without_anything_keeps_it_too(kafka, begin):
    fill(kafka, "nothing", ["1", "2"])
    first_run = begin(subscribe="nothing", startingOffsets="latest")
    start = first_run.initial_offset()
    end = after(first_run, start)
    append(kafka, "nothing", {0: ["3"]})
    second_run = begin(subscribe="nothing", startingOffsets="latest")
    assert read(second_run, second_run.initial_offset(), end) == []
    assert after(second_run, end) == {"nothing": {"0": 3}}


def test_explicit_offsets_need_not_be_kept(kafka, begin):
    fill(kafka, "explicit", ["1", "2"])
    progress = begin(subscribe="explicit", startingOffsets='{"explicit":{"0":1}}')
    assert after(progress, progress.initial_offset()) == {"explicit": {"0": 2}}


def test_batches_are_limited_in_proportion(kafka, begin):
    fill(kafka, "limited", ["x"] * 30, ["x"] * 10)
    progress = begin(subscribe="limited")
    first = after(progress, progress.initial_offset(), max_rows=8)
    assert first["limited"] == {"0": 6, "1": 2}
    assert progress.latest_offset(first, 8, ignore_limits=True) == {"limited": {"0": 30, "1": 10}}


def test_a_batch_waits_for_rows(kafka, begin):
    fill(kafka, "few", ["1"])
    progress = begin(subscribe="few", minOffsetsPerTrigger="3", maxTriggerDelay="1h")
    first = after(progress, progress.initial_offset())
    append(kafka, "few", {0: ["2", "3"]})
    assert after(progress, first) is first
    append(kafka, "few", {0: ["4"]})
    assert after(progress, first) == {"few": {"0": 4}}


def test_a_fixed_end_stays(kafka, begin):
    fill(kafka, "fixed", ["1", "2", "3"])
    progress = begin(subscribe="fixed", minOffsetsPerTrigger="100")
    progress.prepare_for_available_now()
    append(kafka, "fixed", {0: ["4"]})
    first = after(progress, progress.initial_offset(), max_rows=2)
    second = after(progress, first, max_rows=2)
    assert (first["fixed"], second["fixed"]) == ({"0": 2}, {"0": 3})
    assert after(progress, second, max_rows=2) is second


def test_a_new_partition_is_read_from_its_beginning(kafka, begin):
    fill(kafka, "grown", ["1"])
    progress = begin(**{"subscribe": "grown", "kafka.metadata.max.age.ms": "50"})
    first = after(progress, progress.initial_offset())
    kafka.call(kafka.broker.add_partitions, "grown", 2)
    append(kafka, "grown", {1: ["2", "3"]})
    end = time.monotonic() + 20
    while (second := after(progress, first)) == first:
        assert time.monotonic() < end
        append(kafka, "grown", {0: ["x"]})
    assert "1" in second["grown"]
    assert ("grown", 1, 0, 2) in read(progress, first, second)


@pytest.mark.parametrize(
    ("start", "end", "text", "skipped"),
    [
        (
            {"lost": {"0": 5}},
            {"lost": {"0": 2}},
            "changed from 5 to 2",
            "the 1 offsets of the log before 2",
        ),
        (
            {"lost": {"0": 1, "9": 4}},
            {"lost": {"0": 2}},
            "the partition no longer exists",
            "all offsets from 4 on",
        ),
        ({}, {"lost": {"0": 2}}, "starts at offset 1 instead of 0", "the 1 offsets before it"),
    ],
)
def test_losses_are_reported(kafka, begin, caplog, start, end, text, skipped):  # noqa: PLR0917
    if "lost" not in kafka.call(lambda: kafka.broker.topics):
        fill(kafka, "lost", ["1", "2"])
        kafka.call(kafka.broker.delete_records, "lost", 0, 1)
    with pytest.raises(KafkaError, match=text):
        begin(subscribe="lost").plan_ranges(start, end)
    with caplog.at_level(logging.WARNING, "aiokafkawire.spark"):
        begin(subscribe="lost", failOnDataLoss="false").plan_ranges(start, end)
    assert text in caplog.text
    assert f"skipping {skipped}" in caplog.text


def test_the_log_says_what_a_topic_that_was_made_again_loses(kafka, begin, caplog):
    fill(kafka, "remade", ["1"] * 20, ["1"] * 3)
    progress = begin(subscribe="remade")
    start = progress.latest_offset(progress.initial_offset(), None, ignore_limits=True)["remade"]
    kafka.call(kafka.broker.delete_topic, "remade")
    fill(kafka, "remade", ["2"] * 10, ["2"] * 5)
    end = {"remade": {"0": 10, "1": 5}}
    lost = "the log end offset changed from 20 to 10: the topic was deleted and recreated"
    skipped = "the 10 offsets of the log before 10"
    with pytest.raises(KafkaError, match=lost) as caught:
        begin(subscribe="remade").plan_ranges({"remade": start}, end)
    assert f"With failOnDataLoss=false the query continues and skips {skipped}" in str(caught.value)
    with caplog.at_level(logging.WARNING, "aiokafkawire.spark"):
        progress = begin(subscribe="remade", failOnDataLoss="false")
        assert read(progress, {"remade": start}, end) == [("remade", 1, 3, 5)]
    assert f"remade-0: records may be lost: {lost}" in caplog.text
    assert f"skipping {skipped}" in caplog.text
    assert "remade-1" not in caplog.text


def _until_it_fails(progress: OffsetProgress, end: Any) -> None:
    while True:
        end = after(progress, end)


@pytest.mark.parametrize("how", [{"subscribe": "dropped"}, {"assign": '{"dropped":[0]}'}])
def test_a_topic_that_is_deleted_ends_an_idle_stream_soon(kafka, begin, how):
    fill(kafka, "dropped", ["1"])
    progress = begin(**how, **{"fetchOffset.numRetries": "1"})
    end = after(progress, progress.initial_offset())
    assert after(progress, end) is end
    kafka.call(kafka.broker.delete_topic, "dropped")
    began = time.monotonic()
    with pytest.raises(UnknownTopic) as caught:
        _until_it_fails(progress, end)
    assert time.monotonic() - began < 25, "only the look after 30 s has seen it"
    assert "topic 'dropped' was deleted while a stream reads it" in str(caught.value)
    assert 'reached offsets {"0": 1}' in str(caught.value)
    assert "auto" not in str(caught.value)


def committed(kafka: ThreadedBroker, group: str, topic: str) -> int | None:
    async def ask() -> int | None:
        async with Consumer(bootstrap_servers=kafka.servers, group_id=group) as consumer:
            tp = TopicPartition(topic, 0)
            found = (await consumer.committed(tp))[tp]
            return None if found is None else found.offset

    return blocking.call(ask)


def test_the_group_hears_of_what_is_done(kafka, begin):
    fill(kafka, "grouped", ["1", "2"])
    progress = begin(**{"subscribe": "grouped", "kafka.group.id": "readers"})
    first = after(progress, progress.initial_offset())
    assert committed(kafka, "readers", "grouped") == 0
    assert after(progress, first) is first
    assert committed(kafka, "readers", "grouped") == 2
    append(kafka, "grouped", {0: ["3"]})
    progress.commit(after(progress, first))
    assert committed(kafka, "readers", "grouped") == 3


def test_an_idle_stream_leaves_the_broker_alone_and_wakes_at_once(kafka, begin):
    fill(kafka, "idle", ["1"], [])
    progress = begin(subscribe="idle")
    first = after(progress, progress.initial_offset())
    assert after(progress, first) is first
    before = blocking.call(_requests, progress)
    began = time.monotonic()
    for _ in range(3):
        assert after(progress, first) is first
    waited = time.monotonic() - began
    assert waited > 2
    assert blocking.call(_requests, progress) - before <= 2
    append(kafka, "idle", {1: ["2"]})
    assert after(progress, first) == {"idle": {"0": 1, "1": 1}}


async def _requests(progress: OffsetProgress) -> float:
    return progress._consumer.metrics()["requests_total"]


def test_offsets_of_another_query_are_named_as_such(kafka, begin):
    fill(kafka, "mine", ["1"])
    progress = begin(subscribe="mine")
    for foreign in (3, {"offset": 3}, {"logOffset": 1, "partitions": {"0": "a"}}):
        with pytest.raises(InvalidOption, match="checkpoint belong to another query"):
            after(progress, foreign)
        with pytest.raises(InvalidOption, match="checkpoint belong to another query"):
            read(progress, foreign, foreign)


def test_a_checkpoint_of_another_topic_is_named_as_such(kafka, begin):
    fill(kafka, "hers", ["1"])
    fill(kafka, "his", ["1"])
    hers, progress = begin(subscribe="hers").initial_offset(), begin(subscribe="his")
    with pytest.raises(KafkaError, match="checkpoint belong to another query"):
        read(progress, hers, after(progress, hers))
