"""One broker for all rows of an API; each row has its own topic, group and client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafkawire.broker import Broker

from .observer import Observer


@pytest.fixture(scope="module")
async def broker(anyio_backend: object) -> AsyncIterator[Broker]:
    async with Broker(
        nodes=2, default_replication_factor=2, group_min_session_timeout_ms=100
    ) as broker:
        yield broker


@pytest.fixture
async def observer(broker: Broker) -> AsyncIterator[Observer]:
    """Observer of a test, with a topic of one partition that contains `VALUES`."""
    observer = Observer(broker)
    await observer.prepare()
    yield observer
    broker.clear_faults()
