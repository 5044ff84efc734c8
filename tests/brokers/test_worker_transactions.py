"""The worker with `processing_guarantee="exactly_once_v2"` on real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
import pytest

from aiokafkawire import Consumer, Producer, TopicPartition, Worker
from aiokafkawire.errors import RequestTimedOut
from aiokafkawire.worker import RetryPolicy
from tests.brokers.fixtures import session_kafka
from tests.brokers.kafka import Kafka

WITHIN_S = 90.0
PARTITIONS = 2
NUMBERS = range(20)
BILLS = sorted((b"bill %d" % number for number in NUMBERS if number != 7), key=repr)


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Kafka:
    return session_kafka(request.config, 1)


@pytest.fixture
def group(kafka: Kafka) -> str:
    """A new group; its name begins those of its topics."""
    name = f"billing-{uuid.uuid4().hex[:12]}"
    for topic in ("orders", "bills", "dead"):
        kafka.create_topic(f"{name}.{topic}", partitions=PARTITIONS)
    return name


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        with anyio.fail_after(WITHIN_S):
            return await work()

    return anyio.run(bounded)


def make_worker(kafka: Kafka, group: str, **producer_options: Any) -> Worker:
    worker = Worker(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=100,
        producer_options=producer_options,
    )

    @worker.on(f"{group}.orders", order_by="key", retries=RetryPolicy(attempts=1))
    async def bill(record: Any) -> None:
        record.send(f"{group}.bills", b"bill " + record.value, key=record.key)
        if record.value == b"7":
            raise ValueError("broken")

    return worker


async def send_orders(kafka: Kafka, group: str) -> None:
    async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in NUMBERS:
            await producer.send(f"{group}.orders", b"%d" % number, key=b"k%d" % (number % 5))


async def values(
    kafka: Kafka, topic: str, level: Literal["read_committed", "read_uncommitted"]
) -> list[bytes | None]:
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found: list[bytes | None] = []
    async with Consumer(
        bootstrap_servers=kafka.bootstrap_servers, isolation_level=level
    ) as consumer:
        consumer.assign(tps)
        await consumer.seek_to_beginning()
        for tp, end in (await consumer.end_offsets(*tps)).items():
            while await consumer.position(tp) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [record.value for record in records]
    return sorted(found, key=repr)


async def check_output(kafka: Kafka, group: str) -> None:
    assert await values(kafka, f"{group}.bills", "read_committed") == BILLS
    assert await values(kafka, f"{group}.dead", "read_committed") == [b"7"]
    assert len(await values(kafka, f"{group}.bills", "read_uncommitted")) > len(BILLS)


def test_output_of_an_aborted_transaction_is_seen_once(
    kafka: Kafka, group: str, monkeypatch: pytest.MonkeyPatch
):
    send_offsets = Producer.send_offsets_to_transaction
    failures = 0

    async def fail_once(producer: Any, *arguments: Any) -> None:
        nonlocal failures
        if not failures:
            failures += 1
            await producer.flush()  # the output is in the log
            raise RequestTimedOut("the offsets were not sent")
        await send_offsets(producer, *arguments)

    monkeypatch.setattr(Producer, "send_offsets_to_transaction", fail_once)

    async def work() -> None:
        await send_orders(kafka, group)
        results = await make_worker(kafka, group).run_until_idle()
        assert len(results.processed) == len(BILLS)
        await check_output(kafka, group)

    run(work)
    assert failures == 1


def test_output_of_a_worker_that_is_fenced_before_its_commit_is_seen_once(
    kafka: Kafka, group: str, monkeypatch: pytest.MonkeyPatch
):
    send_offsets = Producer.send_offsets_to_transaction

    async def work() -> None:
        is_written = anyio.Event()

        async def hang(producer: Any, *arguments: Any) -> None:
            await send_offsets(producer, *arguments)
            await producer.flush()
            is_written.set()
            await anyio.sleep_forever()

        await send_orders(kafka, group)
        with monkeypatch.context() as patch:
            patch.setattr(Producer, "send_offsets_to_transaction", hang)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(make_worker(kafka, group, transactional_id=group).run)
                await is_written.wait()
                async with Producer(
                    bootstrap_servers=kafka.bootstrap_servers, transactional_id=group
                ):
                    tasks.cancel_scope.cancel()
        await make_worker(kafka, group, transactional_id=group).run_until_idle()
        await check_output(kafka, group)

    run(work)
