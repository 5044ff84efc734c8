"""Pauses, lost partitions and stops between the records of an item."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker import BatchPolicy, FailedAt, RetryPolicy, Worker, session
from tests.worker.helpers import until

ONCE = RetryPolicy(attempts=1)
HOUR_MS = 3_600_000
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
async def servers() -> Any:
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=2)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(40):
                await producer.send_and_wait("orders", b"%d" % number, partition=number % 2)
        yield broker.bootstrap_servers


@pytest.mark.parametrize("batch", [None, BatchPolicy(max_records=10)])
@pytest.mark.parametrize("in_thread", [False, True])
async def test_no_record_starts_during_a_pause(servers: Any, batch: Any, in_thread: bool):
    worker = Worker(
        bootstrap_servers=servers,
        group_id="g",
        pause_after_failures=3,
        pause_ms=HOUR_MS,
        threads=1,
        concurrency=1 if not in_thread else 100,
    )
    starts = 0

    def fail(_: Any) -> None:
        nonlocal starts
        starts += 1
        raise ConnectionError

    async def fail_async(_: Any) -> None:
        fail(_)

    order_by: Any = None if in_thread else "partition"
    worker.on("orders", order_by=order_by, retries=ONCE, batch=batch)(
        fail if in_thread else fail_async
    )
    with anyio.fail_after(20):
        async with worker:
            await until(lambda: worker.metrics()["handlers_paused"] > 0)
            await anyio.sleep(0.3)
    assert starts == 3


async def test_other_partitions_go_on_after_the_first_success(servers: Any):
    worker = Worker(bootstrap_servers=servers, group_id="g", pause_after_failures=2, pause_ms=50)
    attempts, seen = 0, []

    @worker.on("orders", retries=RetryPolicy(attempts=9, backoff_ms=0))
    async def process(record: Any) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= 2:
            raise ConnectionError
        seen.append(record.partition)
        await anyio.sleep(0.02)

    with anyio.fail_after(20):
        await worker.run_until_idle()
    assert {*seen[:4]} == {0, 1}


@pytest.mark.parametrize("batch", [None, BatchPolicy(max_records=10)])
async def test_failures_of_lost_partitions_are_ignored(servers: Any, batch: Any):
    worker = Worker(bootstrap_servers=servers, group_id="g", drain_timeout_ms=50)
    go, calls = anyio.Event(), 0

    @worker.on("orders", retries=ONCE, batch=batch)
    async def process(_: Any) -> None:
        nonlocal calls
        calls += 1
        await go.wait()
        raise ConnectionError

    with anyio.fail_after(20):
        async with worker:
            await until(lambda: calls == 2)
            session = worker._lifecycle.require_session()
            await session.on_partitions_revoked(session.clients.consumer.assignment())
            go.set()
            await anyio.sleep(0.2)
            assert (calls, worker.metrics()["records_dead_total"]) == (2, 0)


async def test_records_that_waited_for_a_lost_one_run_together(
    servers: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(session, "POLL_TIMEOUT_MS", HOUR_MS)  # a poll would wake executors, too
    worker = Worker(bootstrap_servers=servers, group_id="g")
    release, run_together = anyio.Event(), anyio.Event()
    running = 0

    @worker.on("orders", order_by=None)
    async def process(record: Any) -> None:
        nonlocal running
        if record.value == b"0" and not release.is_set():
            await release.wait()
        elif release.is_set():
            running += 1
            if running == 2:
                run_together.set()
            await run_together.wait()

    with anyio.fail_after(20):
        async with worker:
            await until(lambda: worker.metrics()["records_processed_total"] == 39)
            parts = worker._lifecycle.require_session()
            parts.scheduler.replace(parts.scheduler.partition(ORDERS))
            parts.clients.consumer.seek(ORDERS, 0)
            await until(lambda: worker.metrics()["buffered_records"] == 20)
            release.set()
            await run_together.wait()


async def test_a_batch_is_not_split_while_the_worker_stops(servers: Any):
    worker = Worker(bootstrap_servers=servers, group_id="g", concurrency=1)
    sizes: list[int] = []

    @worker.on("orders", retries=ONCE, batch=BatchPolicy(max_records=5))
    async def process(batch: Any) -> None:
        sizes.append(len(batch))
        worker.request_stop()
        await anyio.sleep(0.2)
        raise ConnectionError

    with anyio.fail_after(20):
        await worker.run()
    assert sizes == [5]


async def test_a_handler_in_a_thread_stops_the_worker(servers: Any):
    worker = Worker(bootstrap_servers=servers, group_id="g")

    @worker.on("orders")
    def process(_: Any) -> None:
        worker.request_stop()

    with anyio.fail_after(20):
        await worker.run()


async def test_idle_with_more_delayed_records_than_the_buffer_takes(servers: Any):
    worker = Worker(
        bootstrap_servers=servers,
        group_id="g",
        max_buffered_records=5,
        consumer_options={"max_poll_records": 3},
    )

    @worker.on("orders", retries=RetryPolicy(attempts=1, delays_ms=(HOUR_MS,)))
    async def process(record: Any) -> None:
        if record.attempt == 1:
            raise ConnectionError

    assert len((await worker.run_until_idle(timeout_ms=10_000)).processed) == 40


async def test_batches_do_not_wait_while_their_partition_is_paused(servers: Any):
    worker = Worker(
        bootstrap_servers=servers,
        group_id="g",
        max_buffered_bytes=10,
        consumer_options={"max_poll_records": 3},
    )
    count, done = 0, anyio.Event()

    @worker.on("orders", batch=BatchPolicy(max_records=20, max_wait_ms=HOUR_MS))
    async def process(batch: Any) -> None:
        nonlocal count
        count += len(batch)
        if count >= 36:
            done.set()

    with anyio.fail_after(20):
        async with worker:
            await done.wait()


async def test_the_removed_handler_is_the_origin_of_its_dead_letters(servers: Any):
    first = Worker(bootstrap_servers=servers, group_id="g")

    @first.on("orders", retries=RetryPolicy(attempts=1, delays_ms=(HOUR_MS,)))
    async def fail(_: Any) -> None:
        first.request_stop()
        raise ConnectionError

    await first.run()
    second = Worker(bootstrap_servers=servers, group_id="g")
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("refunds", b"1")

    @second.on("refunds")
    async def process(_: Any) -> None: ...

    dead = (await second.run_until_idle()).dead
    assert {(each.origin.topic, each.attempts) for each in dead} == {("orders", 2)}


def test_an_index_is_a_whole_number():
    wrong: Any = 1.0
    with pytest.raises(TypeError):
        FailedAt(wrong)


async def test_health_tolerates_an_exception_without_text(servers: Any):
    class Bad(Exception):
        def __repr__(self) -> str:
            raise RuntimeError

    worker = Worker(
        bootstrap_servers=servers, group_id="g", pause_after_failures=1, pause_ms=HOUR_MS
    )

    @worker.on("orders")
    async def process(_: Any) -> None:
        raise Bad

    with anyio.fail_after(20):
        async with worker:
            await until(lambda: worker.metrics()["handlers_paused"] > 0)
            assert worker.health().is_alive
