"""Producers and group members keep working through an upgrade, node by node."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import ApiKey, Broker

from .load import IMPATIENT, PARTITIONS, SETUP, TOPIC, Load, at_work

pytestmark = pytest.mark.slow

WITHIN_S = 60.0
NODES = 3


@asynccontextmanager
async def under_load(release: str, **more: Any) -> AsyncIterator[tuple[Broker, Load]]:
    """Run a cluster of a release, with clients at work."""
    options = IMPATIENT | (SETUP if release.startswith("0.9") else {})
    async with Broker(
        nodes=NODES,
        as_of=release,
        default_replication_factor=NODES,
        group_min_session_timeout_ms=500,
    ) as broker:
        await broker.create_topic(TOPIC, partitions=PARTITIONS)
        with anyio.fail_after(WITHIN_S):
            async with at_work(broker.bootstrap_servers, options, **more) as load:
                await load.more()
                yield broker, load


async def upgrade(broker: Broker, load: Load, *releases: str) -> None:
    """Restart every node as each of the releases, one after the other."""
    for release in releases:
        for node in range(1, NODES + 1):
            await broker.restart(node, as_of=release)
            await load.more()


def versions(broker: Broker, api: ApiKey) -> list[int]:
    """Return the versions of an API's requests, in the order of their first use."""
    return list(dict.fromkeys(seen.version for seen in broker.requests.of(api)))


async def test_from_0_11_on_nothing_is_lost_and_nothing_comes_twice() -> None:
    async with under_load("0.11", enable_idempotence=True) as (broker, load):
        await upgrade(broker, load, "2.8", "4.3")
        stored = await load.finish()
        assert sorted(stored) == load.delivered
        assert stored == sorted(stored, key=lambda value: (int(value) % PARTITIONS, value))
        produced = versions(broker, ApiKey.PRODUCE)
        assert produced == sorted(produced)
        assert {3, 9} < set(produced)


async def test_upgrade_from_releases_without_groups() -> None:
    async with under_load("0.8.1", grouped=False, acks=1) as (broker, load):
        await upgrade(broker, load, "0.8.2", "0.10")
        stored = await load.finish()
        assert set(stored) == set(load.delivered)
        assert versions(broker, ApiKey.FETCH) == [0, 3]


@pytest.mark.slow
async def test_from_0_9_on_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aiokafkawire.producer"):
        async with under_load("0.9") as (broker, load):
            await upgrade(broker, load, "0.10", "2.8", "4.3")
            stored = await load.finish()
            assert set(stored) == set(load.delivered)
            assert {1, 2, 9} < set(versions(broker, ApiKey.PRODUCE))
    (line,) = [message for message in caplog.messages if "idempotence" in message]
    assert "idempotence is disabled" in line


async def test_a_member_gets_on_from_one_kind_of_offsets_to_the_next() -> None:
    """Topic ids, leader epochs and validated positions appear during its life."""
    async with under_load("2.1") as (broker, load):
        await upgrade(broker, load, "2.4", "3.9")
        stored = await load.finish()
        assert sorted(stored) == load.delivered
        for api in (ApiKey.FETCH, ApiKey.OFFSET_COMMIT):
            assert len(versions(broker, api)) >= 2, api
