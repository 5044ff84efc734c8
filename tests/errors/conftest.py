"""One broker for all rows of an API: each has a topic, a group and a client of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafkawire.broker import Broker

from .seeing import Seen


@pytest.fixture(scope="module")
async def broker(anyio_backend: object) -> AsyncIterator[Broker]:
    async with Broker(
        nodes=2, default_replication_factor=2, group_min_session_timeout_ms=100
    ) as broker:
        yield broker


@pytest.fixture
async def seen(broker: Broker) -> AsyncIterator[Seen]:
    """What a test looks at, with a topic of one partition that holds `VALUES`."""
    seen = Seen(broker)
    await seen.prepare()
    yield seen
    broker.clear_faults()
