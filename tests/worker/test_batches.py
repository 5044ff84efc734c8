"""Batch handlers: sizes, failures, order."""

from __future__ import annotations

import json
import re
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.errors import DeserializationFailed
from aiokafkawire.producer import Producer
from aiokafkawire.worker import (
    BatchPolicy,
    Drop,
    FailedAt,
    Retry,
    RetryPolicy,
    Worker,
    WorkerResults,
)

WITHIN_S = 20.0
HOUR_MS = 3_600_000
TEN = BatchPolicy(max_records=10, max_wait_ms=HOUR_MS)


class BatchTest:
    """A worker with a batch handler, and the batches that it gets."""

    def __init__(self, broker: Broker) -> None:
        self.servers = broker.bootstrap_servers
        self.batches: list[list[Any]] = []
        self.failures: list[Exception | None] = []
        self.poison: Any = None

    async def send(self, *values: bytes) -> None:
        async with Producer(bootstrap_servers=self.servers) as producer:
            for value in values:
                await producer.send_and_wait("orders", value=value, partition=0)

    def handle(self, batch: Any) -> None:
        values = [record.value for record in batch]
        self.batches.append(values)
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        if self.poison in values:
            raise ValueError(self.poison)

    async def run(self, *, is_async: bool = True, **options: Any) -> WorkerResults:
        worker = Worker(bootstrap_servers=self.servers, group_id="billing")

        async def process(batch: Any) -> None:
            self.handle(batch)

        worker.on("orders", **({"batch": TEN} | options))(process if is_async else self.handle)
        with anyio.fail_after(WITHIN_S):
            return await worker.run_until_idle()


@pytest.fixture
async def test() -> Any:
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=1)
        yield BatchTest(broker)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


@pytest.mark.parametrize("is_async", [True, False])
async def test_batches_have_the_size_of_the_policy(test: BatchTest, is_async: bool):
    await test.send(*numbers(1, 25))
    results = await test.run(is_async=is_async)
    assert test.batches == [numbers(1, 10), numbers(11, 20), numbers(21, 25)]
    assert results.processed.values() == numbers(1, 25)


async def test_a_batch_that_is_not_full_is_processed_after_its_wait(test: BatchTest):
    worker = Worker(bootstrap_servers=test.servers, group_id="billing")
    got = anyio.Event()

    @worker.on("orders", batch=BatchPolicy(max_records=10, max_wait_ms=300))
    async def process(batch: Any) -> None:
        test.handle(batch)
        got.set()

    with anyio.fail_after(WITHIN_S):
        async with worker:
            await test.send(b"1")
            await test.send(b"2")
            await got.wait()
    assert test.batches == [[b"1", b"2"]]


async def test_a_batch_is_tried_again_as_a_whole(test: BatchTest):
    test.failures = [ValueError("1"), Retry(0.01)]
    await test.send(*numbers(1, 3))
    results = await test.run()
    assert test.batches == [numbers(1, 3)] * 3
    assert [result.attempts for result in results.processed] == [3, 3, 3]
    assert results.retried.values() == numbers(1, 3) * 2


async def test_records_of_an_exhausted_batch_are_tried_one_by_one(test: BatchTest):
    test.poison = b"2"
    await test.send(*numbers(1, 3))
    results = await test.run(retries=RetryPolicy(attempts=2))
    assert test.batches == [numbers(1, 3), numbers(1, 3), [b"1"], [b"2"], [b"2"], [b"3"]]
    assert results.processed.values() == [b"1", b"3"]
    assert results.dead.values() == [b"2"]
    assert results.dead[0].attempts == 4
    assert [result.attempts for result in results.processed] == [3, 3]


async def test_the_age_of_records_counts_from_the_failure_of_their_batch(test: BatchTest):
    worker = Worker(bootstrap_servers=test.servers, group_id="billing")
    policy = RetryPolicy(attempts=1, delays_ms=(HOUR_MS,), max_age_ms=100)

    @worker.on("orders", batch=TEN, retries=policy)
    async def fail(batch: Any) -> None:
        if len(batch) == 1:
            await anyio.sleep(0.2)
        raise ValueError

    await test.send(*numbers(1, 2))
    with anyio.fail_after(WITHIN_S):
        results = await worker.run_until_idle()
    assert results.delayed == []
    assert results.dead.values() == numbers(1, 2)


async def test_the_failed_record_of_a_batch_is_named(test: BatchTest):
    error = KeyError("customer")
    test.failures = [_failed_at(2, error), _failed_at(0, error), None]
    await test.send(*numbers(1, 5))
    results = await test.run(retries=RetryPolicy(attempts=2, delays_ms=(HOUR_MS,)))
    assert test.batches == [numbers(1, 5), numbers(3, 5), numbers(4, 5), [b"3"]]
    assert results.processed.values() == [*numbers(1, 2), *numbers(4, 5), b"3"]
    assert results.delayed.values() == [b"3"]
    assert results.delayed[0].error is error


def _failed_at(index: int, cause: Exception) -> FailedAt:
    failed = FailedAt(index)
    failed.__cause__ = cause
    return failed


async def test_an_index_outside_the_batch_fails_the_batch(test: BatchTest):
    test.failures = [FailedAt(3)]
    await test.send(*numbers(1, 3))
    results = await test.run()
    assert test.batches == [numbers(1, 3)] * 2
    assert "it has 3 records" in str(results.retried[0].error)


async def test_dropping_is_decided_for_single_records(test: BatchTest):
    test.failures = [Drop("closed"), None, Drop("old"), None]
    await test.send(*numbers(1, 3))
    results = await test.run()
    assert test.batches == [numbers(1, 3), [b"1"], [b"2"], [b"3"]]
    assert results.dropped.values() == [b"2"]
    assert results.processed.values() == [b"1", b"3"]


async def test_records_that_cannot_be_decoded_are_no_part_of_a_batch(test: BatchTest):
    await test.send(b"1", b"2", b"{", b"4", b"[")
    results = await test.run(value=json.loads)
    assert test.batches == [[1, 2], [4]]
    assert results.dead.values() == [b"{", b"["]
    assert all(isinstance(result.error, DeserializationFailed) for result in results.dead)
    assert results.processed.values() == [b"1", b"2", b"4"]


async def test_the_timeout_limits_the_batch(test: BatchTest):
    worker = Worker(bootstrap_servers=test.servers, group_id="billing")

    @worker.on("orders", batch=TEN, timeout_ms=100, retries=RetryPolicy(attempts=1))
    async def process(batch: Any) -> None:
        test.handle(batch)
        if len(batch) > 1:
            await anyio.sleep_forever()

    await test.send(*numbers(1, 3))
    with anyio.fail_after(WITHIN_S):
        results = await worker.run_until_idle()
    assert test.batches == [numbers(1, 3), [b"1"], [b"2"], [b"3"]]
    assert results.processed.values() == numbers(1, 3)


async def test_batches_without_order_run_at_the_same_time(test: BatchTest):
    worker = Worker(bootstrap_servers=test.servers, group_id="billing")
    both = anyio.Event()
    running = 0

    @worker.on("orders", order_by=None, batch=BatchPolicy(max_records=2, max_wait_ms=HOUR_MS))
    async def process(batch: Any) -> None:
        nonlocal running
        running += 1
        if running == 2:
            both.set()
        await both.wait()

    await test.send(*numbers(1, 4))
    with anyio.fail_after(WITHIN_S):
        results = await worker.run_until_idle()
    assert len(results.processed) == 4


async def test_a_stop_leaves_records_that_are_no_batch_yet(test: BatchTest):
    worker = Worker(bootstrap_servers=test.servers, group_id="billing")

    @worker.on("orders", batch=TEN)
    async def process(batch: Any) -> None:
        test.handle(batch)

    await test.send(*numbers(1, 3))
    with anyio.fail_after(WITHIN_S):
        async with worker:
            while worker.metrics()["buffered_records"] < 3:  # noqa: ASYNC110
                await anyio.sleep(0.01)
    assert test.batches == []
    results = await worker.copy().run_until_idle()
    assert results.processed.values() == numbers(1, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"order_by": "key"}, ValueError, "order_by is 'partition' or None"),
        ({"batch": BatchPolicy(max_records=1_001)}, ValueError, "must not exceed"),
    ],
)
def test_batches_that_cannot_be_made_are_refused(arguments: Any, error: Any, text: str):
    worker = Worker(bootstrap_servers="localhost:1", group_id="billing")
    with pytest.raises(error, match=text):
        worker.on("orders", **({"batch": TEN} | arguments))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"max_records": "5"}, "max_records must be a whole number, not '5': write BatchPolicy("),
        ({"max_wait_ms": 0.5}, "max_wait_ms must be a whole number, not 0.5: write BatchPolicy("),
    ],
)
def test_a_batch_policy_names_the_wrong_argument(arguments: dict[str, Any], text: str):
    with pytest.raises(TypeError, match=re.escape(text)):
        BatchPolicy(**arguments)


def test_limits_of_batches_are_checked():
    with pytest.raises(ValueError, match="at least 1"):
        BatchPolicy(max_records=0)
    with pytest.raises(ValueError, match="at least 0"):
        FailedAt(-1)
    with pytest.raises(
        TypeError, match=r"index must be a whole number, not '1': write FailedAt\(0\)"
    ):
        FailedAt("1")  # type: ignore[arg-type]
