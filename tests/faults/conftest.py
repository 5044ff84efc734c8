"""The public interface on bad days: the embedded broker with faults, and scripted peers."""

from __future__ import annotations

import asyncio
import gc
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio.lowlevel
import pytest
import sniffio

from aiokafkawire.broker import Broker

HERE = Path(__file__).resolve().parent
DESCRIPTORS = Path("/proc/self/fd")
MAX_CHECKPOINTS = 100
"""asyncio closes a socket some turns of its loop after it was told to."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Most of these tests wait for deadlines: too long to be run all the time."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("slow")


@pytest.fixture(autouse=True)
async def _nothing_stays_behind(anyio_backend: object) -> AsyncIterator[None]:
    """After each test the tasks and sockets are those of before."""
    tasks, sockets = _tasks(), _sockets()
    yield
    for _ in range(MAX_CHECKPOINTS):
        if _tasks() <= tasks and _sockets() <= sockets:
            break
        await anyio.lowlevel.checkpoint()
    assert _tasks() <= tasks, f"tasks that stayed behind: {_names()}"
    assert _sockets() <= sockets, "sockets stayed open"
    gc.collect()  # a coroutine never awaited, or a socket never closed, warns when it goes


def _tasks() -> int:
    if sniffio.current_async_library() == "trio":
        import trio

        return trio.lowlevel.current_statistics().tasks_living
    return len(asyncio.all_tasks())


def _names() -> list[str]:
    if sniffio.current_async_library() == "trio":
        import trio

        root = trio.lowlevel.current_root_task()
        nurseries = root.child_nurseries if root else []
        return [task.name for nursery in nurseries for task in nursery.child_tasks]
    return [task.get_name() for task in asyncio.all_tasks()]


def _sockets() -> int:
    if not DESCRIPTORS.exists():
        return 0
    count = 0
    for descriptor in os.listdir(DESCRIPTORS):
        try:
            count += os.readlink(DESCRIPTORS / descriptor).startswith("socket:")
        except FileNotFoundError:  # the one that listed the directory
            continue
    return count


@pytest.fixture
async def broker(anyio_backend: object) -> AsyncIterator[Broker]:
    """Three nodes; each partition has a replica on every one of them."""
    async with Broker(
        nodes=3, default_replication_factor=3, group_min_session_timeout_ms=500
    ) as broker:
        yield broker


@pytest.fixture
def bootstrap_servers(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def new_topic(broker: Broker) -> Callable[..., Awaitable[str]]:
    async def create(partitions: int = 1) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        await broker.create_topic(name, partitions=partitions)
        return name

    return create


@pytest.fixture
async def topic(new_topic: Callable[..., Awaitable[str]]) -> str:
    """A topic of one partition."""
    return await new_topic()


@pytest.fixture
def group_id() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"
