"""The broker of taskiq, with taskiq's own receiver, which runs on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from taskiq import TaskiqEvents, TaskiqState
from taskiq.receiver import Receiver

from aiokafkawire.broker import Broker
from aiokafkawire.errors import InvalidOption, NoBrokerAvailable
from aiokafkawire.taskiq import TaskiqBroker

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)

WITHIN_S = 30.0


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with Broker() as broker:
        await broker.create_topic("tasks", partitions=1)
        yield broker.bootstrap_servers


class Tasks:
    """A broker with a task that may wait, as an application declares them."""

    def __init__(self, servers: str, **options: Any) -> None:
        self.done: list[int] = []
        self.begun: list[int] = []
        self.go_on = asyncio.Event()
        self.changed = asyncio.Event()
        self.broker = TaskiqBroker(
            "tasks",
            bootstrap_servers=servers,
            group_id="workers",
            commit_interval_ms=60_000,
            **options,
        )

        @self.broker.task(task_name="work")
        async def work(number: int, waits: bool) -> None:
            self.begun.append(number)
            self.changed.set()
            if waits:
                await self.go_on.wait()
            self.done.append(number)
            self.changed.set()

        self.work = work

    @asynccontextmanager
    async def receiving(self, **options: Any) -> AsyncIterator[None]:
        """Execute tasks as `taskiq worker` does; at the end, wait for those that run."""
        self.broker.is_worker_process = True
        finish = asyncio.Event()
        receiver = Receiver(self.broker, **{"max_async_tasks": 10, **options})
        running = asyncio.create_task(receiver.listen(finish))
        try:
            yield
        finally:
            finish.set()
            await running
            await self.broker.shutdown()

    async def until(self, *, begun: int = 0, done: int = 0) -> None:
        async with asyncio.timeout(WITHIN_S):
            while len(self.begun) < begun or len(self.done) < done:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def sending(servers: str) -> AsyncIterator[Tasks]:
    tasks = Tasks(servers)
    await tasks.broker.startup()
    yield tasks
    await tasks.broker.shutdown()


async def test_each_task_is_executed_once(servers: str) -> None:
    async with sending(servers) as sender:
        for number in range(20):
            await sender.work.kiq(number, waits=False)
    first, second = Tasks(servers), Tasks(servers)
    async with first.receiving():
        await first.until(done=20)
    assert first.begun == [*range(20)]
    async with sending(servers) as sender:
        await sender.work.kiq(20, waits=False)
    async with second.receiving():
        await second.until(done=1)
    assert second.begun == [20]


async def test_tasks_of_a_partition_run_at_the_same_time(servers: str) -> None:
    async with sending(servers) as sender:
        await sender.work.kiq(0, waits=True)
        await sender.work.kiq(1, waits=False)
    tasks = Tasks(servers)
    async with tasks.receiving():
        await tasks.until(done=1)
        assert tasks.done == [1]
        tasks.go_on.set()
        await tasks.until(done=2)


async def test_a_task_that_was_not_acknowledged_is_executed_again(servers: str) -> None:
    """The receiver is cancelled, as if its process had been killed."""
    async with sending(servers) as sender:
        for number in range(3):
            await sender.work.kiq(number, waits=number == 1)
    first, second = Tasks(servers), Tasks(servers)
    running = asyncio.create_task(
        Receiver(first.broker, max_async_tasks=10).listen(asyncio.Event())
    )
    await first.until(begun=3, done=2)
    running.cancel()
    await asyncio.wait([running])
    await first.broker.shutdown()
    second.go_on.set()
    async with second.receiving():
        await second.until(done=2)
    # The records behind the one that is not acknowledged come again, too.
    assert second.begun == [1, 2]


async def test_tasks_that_were_received_and_not_begun_are_left_to_others(servers: str) -> None:
    async with sending(servers) as sender:
        for number in range(5):
            await sender.work.kiq(number, waits=number == 0)
    first, second = Tasks(servers), Tasks(servers)
    async with first.receiving(max_async_tasks=1, max_prefetch=2):
        await first.until(begun=1)
        first.go_on.set()
        await first.until(done=1)
    second.go_on.set()
    async with second.receiving():
        await second.until(done=5 - len(first.done))
    assert sorted(first.done + second.done) == [*range(5)]


async def test_concurrency_limits_the_tasks_without_acknowledgement(servers: str) -> None:
    async with sending(servers) as sender:
        for number in range(4):
            await sender.work.kiq(number, waits=True)
    tasks = Tasks(servers, concurrency=2)
    async with tasks.receiving():
        await tasks.until(begun=2)
        await asyncio.sleep(0.1)
        assert tasks.begun == [0, 1]
        tasks.go_on.set()
        await tasks.until(done=4)


async def test_wrong_options_are_errors_of_the_constructor() -> None:
    with pytest.raises(InvalidOption, match="concurrency"):
        TaskiqBroker("tasks", bootstrap_servers="localhost:1", group_id="workers", concurrency=0)


async def test_startup_without_kafka_fails() -> None:
    broker = TaskiqBroker(
        "tasks", bootstrap_servers="127.0.0.1:1", group_id="workers", default_api_timeout_ms=200
    )
    with pytest.raises(NoBrokerAvailable):
        await broker.startup()
    await broker.shutdown()


async def test_listening_ends_with_the_error_of_the_worker(servers: str) -> None:
    tasks = Tasks(
        servers, consumer_options={"group_protocol": "consumer", "group_remote_assignor": "absent"}
    )
    await tasks.broker.startup()
    with pytest.raises(Exception, match="absent"):
        await anext(tasks.broker.listen())
    await tasks.broker.shutdown()


async def test_shutdown_while_the_worker_begins(servers: str) -> None:
    tasks = Tasks(servers)
    await tasks.broker.startup()
    first = asyncio.ensure_future(anext(tasks.broker.listen()))
    await asyncio.sleep(0)
    async with asyncio.timeout(WITHIN_S):
        await tasks.broker.shutdown()
        with pytest.raises(StopAsyncIteration):
            await first


async def test_a_failing_handler_of_the_shutdown_does_not_leave_the_worker_running(
    servers: str,
) -> None:
    tasks = Tasks(servers)
    tasks.broker.is_worker_process = True

    @tasks.broker.on_event(TaskiqEvents.WORKER_SHUTDOWN)
    async def fail(state: TaskiqState) -> None:
        raise LookupError("absent")

    await tasks.broker.startup()
    first = asyncio.ensure_future(anext(tasks.broker.listen()))
    await asyncio.sleep(0.1)
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(LookupError):
            await tasks.broker.shutdown()
        with pytest.raises(StopAsyncIteration):
            await first
