"""Fixtures: the embedded broker with faults, and scripted peers."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aiokafkawire.broker import Broker
from tests.leaks import nothing_left


@pytest.fixture(autouse=True)
async def _nothing_stays_behind(anyio_backend: object) -> AsyncIterator[None]:
    """Fail if a test leaves anything behind."""
    async with nothing_left():
        yield


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
    """A topic with one partition."""
    return await new_topic()


@pytest.fixture
def group_id() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"
