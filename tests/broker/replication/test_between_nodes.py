"""The embedded broker answers a stranger who speaks as its controller as real 0.10.2.2 does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aiokafkawire.broker import Broker
from tests.brokers import inter_broker
from tests.brokers.inter_broker import ON_ONE_PAIR, Pair


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with Broker(nodes=2, as_of="0.10", replicate=True, replica_fetch_wait_max_ms=50) as pair:
        yield await Pair.of(pair.nodes)


@pytest.mark.parametrize("check", ON_ONE_PAIR, ids=lambda check: check.__name__)
async def test_on_a_topic_of_its_own(pair: Pair, check: Callable[[Pair], Awaitable[None]]) -> None:
    await check(pair)


@pytest.mark.parametrize("version", [0, 1])
async def test_update_metadata(pair: Pair, version: int) -> None:
    await inter_broker.update_metadata_replaces_who_lives(pair, version)


async def test_controlled_shutdown(pair: Pair) -> None:
    await inter_broker.controlled_shutdown_moves_the_lead(pair)
