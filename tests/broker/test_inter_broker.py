"""A replicating cluster accepts its controller's requests from a test, as real Kafka does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.wire import ErrorCode
from tests.brokers.inter_broker import (
    ON_ONE_PAIR,
    Pair,
    controlled_shutdown_moves_the_lead,
    update_metadata_replaces_who_lives,
)

pytestmark = pytest.mark.slow

Check = Callable[..., Awaitable[None]]


async def hold(check: Check, *arguments: int) -> None:
    async with Broker(nodes=2, as_of="0.10", replicate=True) as broker:
        await check(await Pair.of(broker.nodes), *arguments)


@pytest.mark.parametrize("check", ON_ONE_PAIR, ids=lambda check: check.__name__)
async def test_checks_on_a_new_topic(check: Check) -> None:
    await hold(check)


@pytest.mark.parametrize("version", [0, 1])
async def test_update_metadata(version: int) -> None:
    await hold(update_metadata_replaces_who_lives, version)


async def test_controlled_shutdown() -> None:
    await hold(controlled_shutdown_moves_the_lead)


async def test_what_was_given_up_since_2_0_is_led_elsewhere() -> None:
    """Real 2.8.2 says so of each: it knows the partition from its metadata."""
    async with Broker(nodes=2, as_of="2.8", replicate=True) as broker:
        pair = await Pair.of(broker.nodes)
        topic = await pair.topic(1)
        assert (await pair.ask(1, pair.stop_replica(topic), 0)).error_code == ErrorCode.NONE
        elsewhere = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await pair.produce(1, topic) == elsewhere
        for replica_id in (-1, -2):
            assert (await pair.fetch(1, topic, replica_id)).error_code == elsewhere
            assert (await pair.end_offset(1, topic, replica_id))[0] == elsewhere
