"""Calls of `send_and_wait`, and the outcome of their batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from aiokafkawire.broker import Answer, Broker, Delay
from aiokafkawire.errors import DeliveriesFailed, KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.producer.batch_future import BatchFailed, BatchFuture, BatchSplit
from aiokafkawire.producer.delivery import Delivery, add_waiter, remove_waiter
from aiokafkawire.producer.partition_queue import PartitionQueue
from aiokafkawire.producer.unreported_failures import UnreportedFailures
from aiokafkawire.producer.yield_budget import YieldBudget
from aiokafkawire.runtime import NEVER
from aiokafkawire.runtime.supervisor import running_on_trio
from aiokafkawire.types import RecordMetadata
from aiokafkawire.wire import ApiKey, ErrorCode

New = Callable[..., Producer]
COUNT = 3


def queue_of(producer: Producer) -> PartitionQueue:
    return producer._lifecycle.session.sender.accumulator.topics["t"].by_partition[0]


class Calls:
    """`COUNT` calls whose records are in one open batch, and how each ended."""

    def __init__(
        self,
        producer: Producer,
        group: anyio.abc.TaskGroup,
        headers: list[tuple[str, bytes]] | None,
    ) -> None:
        self.headers = headers
        self.producer = producer
        self.ended: dict[int, RecordMetadata | KafkaError | None] = {}
        self.scopes = [anyio.CancelScope() for _ in range(COUNT)]
        self.group = group

    @property
    def queue(self) -> PartitionQueue:
        return queue_of(self.producer)

    async def begin(self) -> None:
        await self.producer.partitions_for("t")
        for number in range(COUNT):
            self.group.start_soon(self._call, number)
        while self.queue.builder is None or self.queue.builder.count < COUNT:
            await anyio.lowlevel.checkpoint()

    async def _call(self, number: int) -> None:
        self.ended[number] = None
        with self.scopes[number]:
            try:
                self.ended[number] = await self.producer.send_and_wait(
                    "t", b"%d" % number, partition=0, headers=self.headers
                )
            except KafkaError as error:
                self.ended[number] = error


@asynccontextmanager
async def waiting(
    new_producer: New, headers: list[tuple[str, bytes]] | None = None, **options: object
) -> AsyncIterator[Calls]:
    async with new_producer(linger_ms=15_000, **options) as producer:
        async with anyio.create_task_group() as group:
            calls = Calls(producer, group, headers)
            await calls.begin()
            yield calls
        assert len(calls.ended) == COUNT


@pytest.mark.parametrize(("options", "offsets"), [({}, [0, 1, 2]), ({"acks": 0}, [-1, -1, -1])])
async def test_each_call_returns_the_offset_of_its_record(
    broker: Broker, new_producer: New, options: dict[str, object], offsets: list[int]
):
    if options:
        options = {"enable_idempotence": False, **options}
    async with waiting(new_producer, **options) as calls:
        await calls.producer.flush()
    found = [calls.ended[number] for number in range(COUNT)]
    assert all(type(metadata) is RecordMetadata for metadata in found)
    assert sorted(metadata.offset for metadata in found) == offsets
    assert all(metadata[:2] == ("t", 0) and metadata.timestamp_ms > 0 for metadata in found)


async def test_only_the_calls_raise_the_error(new_producer: New):
    async with waiting(new_producer) as calls:
        calls.queue.abort(KafkaError("no luck"))
        await calls.producer.flush()
    errors = list(calls.ended.values())
    assert all(isinstance(error, KafkaError) and error.reason == "no luck" for error in errors)
    assert len({id(error) for error in errors}) == COUNT


async def test_the_failure_of_a_cancelled_call_is_counted(new_producer: New):
    async with waiting(new_producer) as calls:
        calls.scopes[1].cancel()
        while len(calls.ended) < COUNT or calls.scopes[1].cancelled_caught is False:
            await anyio.lowlevel.checkpoint()
        calls.queue.abort(KafkaError("no luck"))
        with pytest.raises(DeliveriesFailed) as caught:
            await calls.producer.flush()
    assert caught.value.reason == (
        "1 record was not delivered, and no call has raised the error (not awaited, or the wait was"
        " cancelled): 1 of t-0; the first error: no luck (topic t, partition 0)"
    )
    assert [type(ended) for ended in calls.ended.values()].count(KafkaError) == COUNT - 1


async def test_a_failure_during_the_cancellation_is_counted(new_producer: New):
    async with waiting(new_producer) as calls:
        for scope in calls.scopes:
            scope.cancel()
        calls.queue.abort(KafkaError("no luck"))
        while not all(scope.cancelled_caught for scope in calls.scopes):
            await anyio.lowlevel.checkpoint()
        with pytest.raises(DeliveriesFailed, match="3 records were not delivered"):
            await calls.producer.flush()
    assert set(calls.ended.values()) == {None}


def test_a_cancellation_after_the_wakeup_counts_the_failure() -> None:
    async def main() -> None:
        async with (
            Broker() as broker,
            Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=15_000) as producer,
        ):
            await producer.partitions_for("t")
            task = asyncio.create_task(producer.send_and_wait("t", b"v", partition=0))
            await asyncio.sleep(0)
            queue_of(producer).abort(KafkaError("no luck"))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(DeliveriesFailed, match="1 record was not delivered"):
                await producer.flush()

    asyncio.run(main())


async def test_a_call_follows_the_part_of_a_split_batch(broker: Broker, new_producer: New):
    rule = broker.on(ApiKey.PRODUCE, Answer(ErrorCode.MESSAGE_TOO_LARGE), times=1)
    async with waiting(new_producer) as calls:
        await calls.producer.flush()
    assert rule.hits == 1
    assert sorted(metadata.offset for metadata in calls.ended.values()) == [0, 1, 2]


async def test_only_the_calls_raise_the_failure_of_a_part(broker: Broker, new_producer: New):
    broker.on(ApiKey.PRODUCE, Delay(60), times=1)
    flushed: list[bool] = []

    async def flush(producer: Producer) -> None:
        await producer.flush()
        flushed.append(True)

    async with waiting(new_producer) as calls:
        calls.group.start_soon(flush, calls.producer)
        await broker.wait_for_request(ApiKey.PRODUCE)
        (batch,) = calls.queue.in_flight
        calls.queue._split(batch, 0.0)
        assert type(batch.future.value) is BatchSplit
        calls.queue.abort(KafkaError("no luck"))
    assert [type(ended) for ended in calls.ended.values()] == [KafkaError] * COUNT
    assert flushed == [True]


@pytest.mark.parametrize("headers", [None, [("by the", b"long way")]])
async def test_failures_of_calls_cancelled_after_a_split_are_counted(
    broker: Broker, new_producer: New, headers: list[tuple[str, bytes]] | None
):
    broker.on(ApiKey.PRODUCE, Delay(60), times=1)
    async with waiting(new_producer, headers=headers) as calls:
        calls.producer._lifecycle.session.sender.accumulator.begin_flush()
        await broker.wait_for_request(ApiKey.PRODUCE)
        (batch,) = calls.queue.in_flight
        calls.queue._split(batch, NEVER)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        for scope in calls.scopes[1:]:
            scope.cancel()
        while not all(scope.cancelled_caught for scope in calls.scopes[1:]):
            await anyio.lowlevel.checkpoint()
        calls.queue.abort(KafkaError("no luck"))
        with pytest.raises(DeliveriesFailed, match="2 records were not delivered"):
            await calls.producer.flush()
    assert type(calls.ended[0]) is KafkaError


async def test_a_call_cancelled_during_the_split_is_counted():
    failures = UnreportedFailures()
    batch, *parts = (BatchFuture("t", 0, failures, YieldBudget()) for _ in range(3))
    for future, count in zip((batch, *parts), (3, 2, 1), strict=True):
        future.count = count
    if running_on_trio():
        return
    delivery = Delivery(batch, 2, 0)
    waited = add_waiter(delivery)
    assert waited is not None
    batch.complete(BatchSplit((0, 2), tuple(parts)))
    assert waited.result() is None
    remove_waiter(delivery, waited)
    for part in parts:
        part.complete(BatchFailed(KafkaError("no luck"), {}))
    assert failures.count == batch.count


async def test_repeatedly_cancelled_calls_leave_no_waiters(new_producer: New):
    async with new_producer(linger_ms=15_000) as producer:
        await producer.partitions_for("t")
        for _ in range(10):
            with anyio.move_on_after(0.001):
                await producer.send_and_wait("t", b"v", partition=0)
        future = queue_of(producer).open.future
        assert not future.waiters
        assert not future._futures
        await producer.flush()
