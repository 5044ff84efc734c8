"""`Worker.run_until_idle`: results of records, skipped delays, virtual time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import ClientClosed
from aiokafkawire.producer import Producer
from aiokafkawire.testing.simulation import World, with_runtime
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker import DeadLetter, Drop, Retry, RetryPolicy, Worker, WorkerResults
from tests.worker.helpers import ignore, until

WITHIN_S = 20.0
BROKER_HOST = "10.0.0.1"
MINUTE_MS = 60_000


@pytest.fixture
async def broker() -> Any:
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=2)
        yield broker


async def send(broker: Broker, *values: bytes) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            await producer.send_and_wait("orders", value=value, key=b"k", partition=0)


def make_worker(servers: str = "localhost:1", **options: Any) -> Worker:
    return Worker(bootstrap_servers=servers, group_id="billing", **options)


def register(worker: Worker, failures: dict[bytes, list[Exception]], **options: Any) -> None:
    """Register a handler that raises the failures of a value, one in each attempt."""

    @worker.on("orders", **options)
    async def process(record: Any) -> None:
        if failures.get(record.value):
            raise failures[record.value].pop(0)


async def run(worker: Worker, **arguments: Any) -> WorkerResults:
    with anyio.fail_after(WITHIN_S):
        return await worker.run_until_idle(**arguments)


async def test_results_say_what_happened_to_each_record(broker: Broker):
    worker = make_worker(broker.bootstrap_servers)
    error = ValueError("poison")
    failures: dict[bytes, list[Exception]] = {
        b"once": [Retry()],
        b"delayed": [Retry(), Retry()],
        b"poison": [error] * 4,
        b"dropped": [Drop("old")],
    }
    policy = RetryPolicy(attempts=2, delays_ms=(MINUTE_MS, 60 * MINUTE_MS))
    register(worker, failures, retries=policy)
    await send(broker, b"once", b"delayed", b"poison", b"fine", b"dropped")
    results = await run(worker)
    assert results.processed.values() == [b"once", b"fine", b"delayed"]
    assert [result.attempts for result in results.processed] == [2, 1, 3]
    assert results.retried.values() == [b"once", b"delayed", b"poison"]
    assert results.delayed.values() == [b"delayed", b"poison", b"poison"]
    assert results.dropped.values() == [b"dropped"]
    assert results.dropped[0].reason == "old"
    (dead,) = results.dead
    assert (dead.record.topic, dead.record.key) == ("billing.retry.1h", b"k")
    assert dead.origin[:3] == ("orders", 0, 2)
    assert (dead.attempts, dead.error, dead.reason) == (4, error, "all attempts failed")


async def test_everything_is_committed(broker: Broker):
    worker = make_worker(broker.bootstrap_servers)
    worker.on("orders")(ignore)
    await send(broker, b"1", b"2")
    results = await run(worker)
    assert results.processed.keys() == [b"k", b"k"]
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing") as consumer:
        (offset,) = (await consumer.committed(TopicPartition("orders", 0))).values()
    assert offset is not None
    assert offset.offset == 2


async def test_a_worker_runs_once(broker: Broker):
    worker = make_worker(broker.bootstrap_servers)
    register(worker, {b"2": [DeadLetter("no customer")]})
    assert await run(worker) == WorkerResults()
    with pytest.raises(ClientClosed, match="closed"):
        await run(worker)
    await send(broker, b"1", b"2")
    results = await run(worker.copy())
    assert results.processed.values() == [b"1"]
    assert results.dead.values() == [b"2"]


async def test_a_copy_runs_with_other_options(broker: Broker):
    worker = make_worker(max_buffered_records=7)
    worker.on("orders")(ignore)
    await send(broker, b"1")
    for group in ("first", "second"):
        copy = worker.copy(bootstrap_servers=broker.bootstrap_servers, group_id=group)
        assert copy.config.max_buffered_records == 7
        assert (await run(copy)).processed.values() == [b"1"]


async def test_a_handler_that_hangs_is_named(broker: Broker):
    worker = make_worker(broker.bootstrap_servers, drain_timeout_ms=250_000)

    @worker.on("orders")
    async def process(record: Any) -> None:
        await anyio.sleep_forever()

    await send(broker, b"1", b"2")
    with pytest.raises(TimeoutError, match="orders-0 has 2 unfinished records, 1 running"):
        await run(worker, timeout_ms=300)  # which does not wait for the drain timeout


async def test_the_failure_of_a_worker_is_raised(broker: Broker):
    worker = make_worker(broker.bootstrap_servers, on_exhausted="stop")
    register(worker, {b"1": [ZeroDivisionError("1")]}, retries=RetryPolicy(attempts=1))
    await send(broker, b"1")
    with pytest.raises(ZeroDivisionError):
        await run(worker)


async def test_records_of_aborted_transactions_are_passed(broker: Broker):
    servers = broker.bootstrap_servers
    worker = make_worker(servers, consumer_options={"isolation_level": "read_committed"})
    worker.on("orders")(ignore)
    async with Producer(bootstrap_servers=servers, transactional_id="t") as producer:
        with suppress(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait("orders", value=b"aborted", partition=0)
                raise ZeroDivisionError
    assert await run(worker) == WorkerResults()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("is_async", [True, False])
def test_delays_pass_in_virtual_time(backend: Any, is_async: bool):
    world = World(1, backend=backend)
    times: list[float] = []

    async def main() -> WorkerResults:
        runtime = world.runtime
        async with Broker(host=BROKER_HOST, runtime=runtime(BROKER_HOST)) as broker:
            servers = broker.bootstrap_servers
            worker = with_runtime(make_worker(servers), runtime("10.0.0.3"))

            async def fail(record: Any) -> None:
                times.append(world.now())
                raise ValueError

            def fail_in_thread(record: Any) -> None:
                times.append(world.now())
                raise ValueError

            handler = fail if is_async else fail_in_thread
            policy = RetryPolicy(attempts=1, delays_ms=(MINUTE_MS, 10 * MINUTE_MS))
            worker.on("orders", retries=policy)(handler)
            sender = with_runtime(Producer(bootstrap_servers=servers), runtime("10.0.0.2"))
            async with sender:
                await sender.send_and_wait("orders", value=b"poison")
            return await worker.run_until_idle(skip_delays=False)

    results = world.run(main)
    assert results.dead.values() == [b"poison"]
    assert times[1] - times[0] == pytest.approx(60, abs=2)
    assert times[2] - times[1] == pytest.approx(600, abs=2)
    assert world.left_behind() == []


async def test_a_retry_that_another_program_of_the_group_reads_becomes_a_dead_letter(
    broker: Broker,
):
    """The topics of delays belong to the group: a program without the handler gets records too."""
    policy = RetryPolicy(attempts=1, delays_ms=(60 * MINUTE_MS,))
    first = make_worker(broker.bootstrap_servers)
    register(first, {b"late": [ValueError()]}, retries=policy)
    await send(broker, b"late")
    async with first:
        await until(lambda: first.metrics()["records_delayed_total"] == 1)
    second = make_worker(broker.bootstrap_servers)
    second.on("payments", retries=policy)(ignore)
    results = await run(second)
    assert results.processed == []
    assert results.dead.values() == [b"late"]
    assert results.dead[0].reason.startswith("no handler")
