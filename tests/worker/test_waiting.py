"""The run of an item that waits is noted before other tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.partition_work import Budget, PartitionWork, WorkItem
from aiokafkawire.worker.waiting import note_wait
from tests.worker.helpers import handler, record


def make_item() -> WorkItem:
    return WorkItem([record(0)], PartitionWork(TopicPartition("t", 0), Budget(100)), handler())


async def run(item: WorkItem, process: Callable[[], Awaitable[None]]) -> None:
    async def processed() -> None:
        await process()

    await note_wait(processed(), item, lambda: 7.0)


async def test_a_run_without_wait_needs_no_checks() -> None:
    async def nothing() -> None:
        pass

    item = make_item()
    await run(item, nothing)
    assert (item.needs_checks, item.started) == (False, 0.0)


async def test_a_wait_is_noted_before_other_tasks_run() -> None:
    item, seen = make_item(), []

    async def look() -> None:
        seen.append((item.needs_checks, item.started))

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        assert not item.needs_checks
        await run(item, anyio.lowlevel.checkpoint)
    assert seen == [(True, 7.0)]


async def test_exceptions_and_cancellations_pass() -> None:
    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        await run(make_item(), fail)
    with anyio.move_on_after(0.01) as scope:
        await run(make_item(), anyio.sleep_forever)
    assert scope.cancelled_caught


def test_a_closed_run_closes_its_handler() -> None:
    ended = []

    async def wait() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    task = run(make_item(), wait)
    task.send(None)
    task.close()
    assert ended == [True]
