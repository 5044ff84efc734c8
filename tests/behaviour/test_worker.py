"""Workers: order, retries, dead letters, rebalances and stops."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker import (
    BatchPolicy,
    DeadLetter,
    Drop,
    FailedAt,
    HandlerTimedOut,
    Retry,
    RetryPolicy,
    Worker,
)
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs
from tests.behaviour.support import (
    WITHIN_S,
    eventually,
    fill,
    numbered,
    partitions_of,
    spread,
    spread_values,
    stored,
)

pytestmark = pytest.mark.slow

ONE_ATTEMPT = RetryPolicy(attempts=1)


def to_int(data: bytes) -> int:
    return int(data)


def make_worker(bootstrap_servers: str, group_id: str, **options: Any) -> Worker:
    return Worker(
        **{
            "bootstrap_servers": bootstrap_servers,
            "group_id": group_id,
            "commit_interval_ms": 100,
            "drain_timeout_ms": 5_000,
            "consumer_options": {"heartbeat_interval_ms": 100},
        }
        | options
    )


async def wait_for(holds: Callable[[], bool]) -> None:
    async def check() -> bool:
        return holds()

    await eventually(check)


async def committed_offsets(
    bootstrap_servers: str, group_id: str, topic: str, partitions: int = 1
) -> dict[int, int | None]:
    async with Consumer(bootstrap_servers=bootstrap_servers, group_id=group_id) as consumer:
        found = await consumer.committed(*partitions_of(topic, partitions))
    return {tp.partition: None if at is None else at.offset for tp, at in found.items()}


@needs("headers")
@pytest.mark.parametrize("order_by", ["partition", "key", None])
async def test_each_record_is_processed_and_committed(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str, order_by: Any
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 50, 2)
    worker = make_worker(bootstrap_servers, group_id)
    processed: list[bytes] = []

    @worker.on(topic, order_by=order_by)
    async def process(record: Any) -> None:
        processed.append(record.value)

    async with worker:
        await wait_for(lambda: len(processed) == 100)
        assert worker.health().is_alive
    assert sorted(processed) == sorted(spread_values(50, 2))
    assert await committed_offsets(bootstrap_servers, group_id, topic, 2) == {0: 50, 1: 50}


@needs("headers")
async def test_a_failing_key_waits_alone(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=1)
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(30):
            await producer.send(topic, value=b"%d" % number, key=b"%d" % (number % 3))
    worker = make_worker(bootstrap_servers, group_id)
    by_key: dict[bytes, list[int]] = defaultdict(list)
    attempts: list[int] = []

    @worker.on(topic, order_by="key", value=to_int, retries=RetryPolicy(attempts=5))
    async def process(record: Any) -> None:
        if record.value == 1:
            attempts.append(record.attempt)
            if record.attempt < 3:
                raise Retry(0.3)
            assert len(by_key[b"0"]) == len(by_key[b"2"]) == 10
        by_key[record.key].append(record.value)

    async with worker:
        await wait_for(lambda: sum(map(len, by_key.values())) == 30)
    assert attempts == [1, 2, 3]
    assert by_key == {b"%d" % key: list(range(key, 30, 3)) for key in range(3)}


@needs("headers")
async def test_records_that_fail_become_dead_letters(
    bootstrap_servers: str, topic: str, new_topic: NewTopic, group_id: str
):
    dead = await new_topic(partitions=1)
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for value in (b"0", b"poison", b"2", b"3", b"4", b"5"):
            await producer.send(topic, value, key=b"k", headers=[("trace", b"x")], partition=0)
    worker = make_worker(bootstrap_servers, group_id, dead_letter_topic=dead)
    processed: list[int] = []

    @worker.on(topic, value=to_int, retries=RetryPolicy(attempts=2, backoff_ms=1))
    async def process(record: Any) -> None:
        if record.value == 2:
            raise ConnectionError("no customer")
        if record.value == 3:
            raise DeadLetter("cancelled")
        if record.value == 4:
            raise Drop("test order")
        processed.append(record.value)

    async with worker:
        await wait_for(lambda: processed == [0, 5])
        metrics = worker.metrics()
    assert metrics["records_dead_total"] == 3
    assert metrics["records_dropped_total"] == 1
    letters = await stored(bootstrap_servers, dead)
    assert [(letter.key, letter.value) for letter in letters] == [
        (b"k", b"poison"),
        (b"k", b"2"),
        (b"k", b"3"),
    ]
    headers = [dict(letter.headers) for letter in letters]
    assert [h["__dlq.errors.offset"] for h in headers] == [b"1", b"2", b"3"]
    assert [h["__dlq.errors.delivery.count"] for h in headers] == [b"1", b"2", b"1"]
    assert all(h["trace"] == b"x" for h in headers)
    assert headers[1]["__dlq.errors.message"] == b"all attempts failed: no customer"
    assert await committed_offsets(bootstrap_servers, group_id, topic) == {0: 6}


@needs("headers")
async def test_a_batch_is_split_to_find_the_records_that_fail(
    bootstrap_servers: str, topic: str, new_topic: NewTopic, group_id: str
):
    dead = await new_topic(partitions=1)
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(7):
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
    worker = make_worker(bootstrap_servers, group_id, dead_letter_topic=dead)
    batches: list[list[int]] = []

    @worker.on(
        topic,
        value=to_int,
        batch=BatchPolicy(max_records=4, max_wait_ms=500),
        retries=RetryPolicy(attempts=2, backoff_ms=1),
    )
    async def process(batch: Any) -> None:
        batches.append([record.value for record in batch])
        if 2 in batches[-1]:
            raise ValueError
        if len(batches[-1]) == 3:
            raise FailedAt(1) from Drop("old")

    results = await worker.run_until_idle()
    assert batches == [[0, 1, 2, 3], [0, 1, 2, 3], [0], [1], [2], [2], [3], [4, 5, 6], [6]]
    assert results.processed.values() == [b"0", b"1", b"3", b"4", b"6"]
    assert results.dead.values() == [b"2"]
    assert results.dropped.values() == [b"5"]
    assert (await committed_offsets(bootstrap_servers, group_id, topic))[0] == 7


@needs("headers")
async def test_handlers_pause_while_all_fail(bootstrap_servers: str, topic: str, group_id: str):
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(5):
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
    worker = make_worker(bootstrap_servers, group_id, pause_after_failures=2, pause_ms=200)
    attempts = 0

    @worker.on(topic, retries=RetryPolicy(attempts=9, backoff_ms=0))
    async def process(record: Any) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            assert worker.health().is_ready == (attempts < 3)
            raise ConnectionError

    results = await worker.run_until_idle()
    assert [result.attempts for result in results.processed] == [4, 1, 1, 1, 1]


@needs("headers")
async def test_delayed_retries_keep_the_origin_and_the_attempts(
    bootstrap_servers: str, topic: str, new_topic: NewTopic, group_id: str
):
    dead = await new_topic(partitions=1)
    await fill(bootstrap_servers, topic, [b"0", b"1", b"2"])
    worker = make_worker(bootstrap_servers, group_id, dead_letter_topic=dead)
    policy = RetryPolicy(attempts=1, delays_ms=(200, 400))
    attempts: list[tuple[bytes, int]] = []

    @worker.on(topic, retries=policy)
    async def process(record: Any) -> None:
        attempts.append((record.value, record.attempt))
        if record.value == b"0" or (record.value == b"1" and record.attempt == 1):
            raise ConnectionError

    async with worker:
        await wait_for(lambda: worker.metrics()["records_dead_total"] == 1)
    assert sorted(attempts) == [(b"0", 1), (b"0", 2), (b"0", 3), (b"1", 1), (b"1", 2), (b"2", 1)]
    [letter] = await stored(bootstrap_servers, dead)
    headers = dict(letter.headers)
    assert headers["__dlq.errors.topic"] == topic.encode()
    assert headers["__dlq.errors.offset"] == b"0"
    assert headers["__dlq.errors.delivery.count"] == b"3"


@needs("headers")
async def test_a_worker_without_dead_letters_stops_with_the_exception(
    bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(5))
    worker = make_worker(bootstrap_servers, group_id, on_exhausted="stop")
    broken = ConnectionError("no database")

    @worker.on(topic, retries=ONE_ATTEMPT)
    async def process(record: Any) -> None:
        if record.offset == 2:
            raise broken

    with anyio.fail_after(WITHIN_S), pytest.raises(ConnectionError) as caught:
        await worker.run()
    assert caught.value is broken
    assert await committed_offsets(bootstrap_servers, group_id, topic) == {0: 2}


@needs("headers")
async def test_functions_run_in_threads(bootstrap_servers: str, topic: str, group_id: str):
    await fill(bootstrap_servers, topic, numbered(3))
    worker = make_worker(bootstrap_servers, group_id)
    threads: list[int] = []

    @worker.on(topic)
    def process(record: Any) -> None:
        threads.append(threading.get_ident())

    async with worker:
        await wait_for(lambda: len(threads) == 3)
    assert threading.get_ident() not in threads


@needs("headers")
async def test_an_attempt_has_a_time_limit(bootstrap_servers: str, topic: str, group_id: str):
    await fill(bootstrap_servers, topic, numbered(1))
    worker = make_worker(bootstrap_servers, group_id, on_exhausted="stop")

    @worker.on(topic, retries=ONE_ATTEMPT, timeout_ms=100)
    async def process(record: Any) -> None:
        await anyio.sleep_forever()

    with (
        anyio.fail_after(WITHIN_S),
        pytest.raises(HandlerTimedOut, match=r"process took .* 0\.1 s"),
    ):
        await worker.run()


@needs("headers")
async def test_a_stop_finishes_running_handlers(bootstrap_servers: str, topic: str, group_id: str):
    await fill(bootstrap_servers, topic, numbered(5))
    worker = make_worker(bootstrap_servers, group_id)
    started, finished = anyio.Event(), []

    @worker.on(topic, order_by=None)
    async def process(record: Any) -> None:
        started.set()
        await anyio.sleep(0.5)
        finished.append(record.offset)

    async with worker:
        await started.wait()
    assert sorted(finished) == list(range(5))
    assert await committed_offsets(bootstrap_servers, group_id, topic) == {0: 5}


@needs("headers")
async def test_a_handler_that_hangs_is_cancelled_after_the_drain_timeout(
    bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(3))
    worker = make_worker(bootstrap_servers, group_id, drain_timeout_ms=200)
    cancelled, hangs = [], anyio.Event()

    @worker.on(topic)
    async def process(record: Any) -> None:
        if record.offset == 1:
            hangs.set()
            try:
                await anyio.sleep_forever()
            finally:
                cancelled.append(record.offset)

    async with worker:
        await hangs.wait()
    assert cancelled == [1]
    assert await committed_offsets(bootstrap_servers, group_id, topic) == {0: 1}


@needs("headers")
async def test_a_second_worker_takes_over_without_loss_or_duplicates(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=4)
    await spread(bootstrap_servers, topic, 40, 4)
    processed: list[tuple[str, bytes]] = []
    running: dict[TopicPartition, str] = {}

    def create(name: str) -> Worker:
        worker = make_worker(bootstrap_servers, group_id)

        @worker.on(topic)
        async def process(record: Any) -> None:
            tp = record.topic_partition
            assert tp not in running
            running[tp] = name
            await anyio.sleep(0.05)
            del running[tp]
            processed.append((name, record.value))

        return worker

    first, second = create("first"), create("second")
    async with first:
        await wait_for(lambda: len(processed) >= 10)
        async with second:
            await wait_for(lambda: len(processed) >= 160)
    values = [value for _, value in processed]
    assert sorted(values) == sorted(spread_values(40, 4))
    assert {name for name, _ in processed} == {"first", "second"}
    assert await committed_offsets(bootstrap_servers, group_id, topic, 4) == dict.fromkeys(
        range(4), 40
    )
