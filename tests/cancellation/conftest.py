from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aiokafkawire.broker import Broker

NewTopic = Callable[..., Awaitable[str]]


@pytest.fixture(scope="module")
async def broker(anyio_backend: object) -> AsyncIterator[Broker]:
    """One broker for all cases of a module."""
    async with Broker(group_min_session_timeout_ms=100) as broker:
        yield broker


@pytest.fixture
def new_topic(broker: Broker) -> NewTopic:
    async def create(partitions: int = 1) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        await broker.create_topic(name, partitions=partitions)
        return name

    return create
