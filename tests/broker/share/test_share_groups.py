"""Share groups of the embedded broker: what the recorded conversations leave out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType
from aiokafkawire.broker import Acl, Broker
from aiokafkawire.wire import ErrorCode
from tests.broker.raw_client import connected
from tests.broker.share.client import ShareMember

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@asynccontextmanager
async def member(broker: Broker, name: str = "m") -> AsyncIterator[ShareMember]:
    async with connected(broker) as client:
        yield ShareMember(client, member=name)


async def set_config(broker: Broker, name: str, value: str) -> None:
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        group = ConfigResource(ConfigResourceType.GROUP, "g")
        await admin.incremental_alter_configs({group: {name: value}})


async def start_at_earliest(broker: Broker) -> None:
    await set_config(broker, "share.auto.offset.reset", "earliest")


async def test_state_survives_a_restart(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as broker, member(broker) as one:
        await broker.create_topic("t")
        await start_at_earliest(broker)
        await one.join()
        await one.produce(10)
        assert await one.acquired() == [(0, 9, 1)]
        await one.acknowledge((0, 3, ACCEPT), (5, 5, RELEASE), (7, 7, REJECT))
    async with Broker(data_dir=tmp_path) as broker, member(broker) as two:
        response = await two.join()
        assert response.assignment.topic_partitions[0].partitions == [0]
        # The connection closed before the broker did, so that the rest was released.
        assert await two.acquired() == [(4, 6, 2), (8, 9, 2)]


async def test_share_groups_need_the_feature() -> None:
    async with Broker(as_of="4.1") as broker, member(broker) as one:
        await broker.create_topic("t")
        response = await one.heartbeat(0, ["t"])
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await one.fetch(version=1)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_records_of_a_lock_that_expired_wake_a_fetch() -> None:
    async with (
        Broker(group_share_record_lock_duration_ms=200) as broker,
        member(broker) as one,
        member(broker, "n") as two,
    ):
        await broker.create_topic("t")
        await start_at_earliest(broker)
        await one.join()
        await two.join()
        await one.produce(3)
        assert await one.acquired() == [(0, 2, 1)]
        with anyio.fail_after(5):
            assert await two.acquired(max_wait_ms=10_000) == [(0, 2, 2)]
        assert (await one.acknowledge((0, 0, ACCEPT))).error_code == ErrorCode.INVALID_RECORD_STATE


async def test_released_records_wake_a_fetch() -> None:
    async with Broker() as broker, member(broker) as one, member(broker, "n") as two:
        await broker.create_topic("t")
        await start_at_earliest(broker)
        await one.join()
        await two.join()
        await one.produce(3)
        assert await one.acquired() == [(0, 2, 1)]
        found: list[Any] = []

        async def fetch() -> None:
            found.extend(await two.acquired(max_wait_ms=10_000))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fetch)
                await anyio.sleep(0.1)
                await one.acknowledge((1, 1, RELEASE))
        assert found == [(1, 1, 2)]


async def test_a_closed_connection_releases_locks() -> None:
    async with Broker() as broker, member(broker, "n") as two:
        await broker.create_topic("t")
        await start_at_earliest(broker)
        await two.join()
        assert await two.acquired() == []
        async with member(broker) as one:
            await one.join()
            await one.produce(3)
            assert await one.acquired() == [(0, 2, 1)]
        with anyio.fail_after(5):
            assert await two.acquired(max_wait_ms=10_000) == [(0, 2, 2)]


@pytest.mark.parametrize("ends", ["by time", "with the connection"])
async def test_locks_at_an_earlier_leader_change_nothing(ends: str) -> None:
    """The earlier leader has the records in memory, as it acquired them for its member."""
    lock_ms = 200 if ends == "by time" else 30_000
    async with Broker(
        nodes=2, default_replication_factor=2, group_share_record_lock_duration_ms=lock_ms
    ) as broker:
        await broker.create_topic("t")
        await start_at_earliest(broker)
        leader = broker._partition("t", 0).leader
        other = 3 - leader
        broker.move_coordinator("g", leader)
        async with connected(broker, leader) as client, connected(broker, other) as late:
            one, two = ShareMember(client), ShareMember(late, member="n")
            await one.join()
            await one.produce(3)
            assert await one.acquired() == [(0, 2, 1)]
            broker.move_leader("t", 0, other)
            two.topic_id = one.topic_id
            assert await two.acquired() == [(0, 2, 1)]
            assert (await two.acknowledge((1, 2, ACCEPT))).error_code == ErrorCode.NONE
            if ends == "by time":
                await anyio.sleep(0.4)
                assert (await two.acquired(max_wait_ms=1_000)) == [(0, 0, 2)]
            else:
                await client.transport.aclose()
                await anyio.sleep(0.1)
            broker.move_leader("t", 0, leader)
            async with connected(broker, leader) as again:
                three = ShareMember(again, member="o")
                three.topic_id = one.topic_id
                assert [(first, last) for first, last, _ in await three.acquired()] == [(0, 0)]


async def test_by_duration_starts_at_a_time() -> None:
    async with Broker() as broker, member(broker) as one:
        await broker.create_topic("t")
        await set_config(broker, "share.auto.offset.reset", "by_duration:PT1H")
        await one.join()
        # The records are older than one hour.
        await one.produce(3)
        assert await one.acquired() == []


async def test_a_member_without_permission_is_refused() -> None:
    acls = [Acl("User:ANONYMOUS", "All", topic="t"), Acl("User:ANONYMOUS", "All", cluster=True)]
    async with Broker(acls=acls) as broker, member(broker) as one:
        await broker.create_topic("t")
        response = await one.heartbeat(0, ["t"])
        assert response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (await one.fetch()).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_deleted_topics_leave_no_state() -> None:
    async with Broker() as broker, member(broker) as one:
        await broker.create_topic("t")
        await one.join()
        persister = broker._running.share_partitions.persister
        assert len(list(persister)) == 1
        await broker.delete_topic("t")
        assert not list(persister)


@pytest.mark.parametrize("epoch", [3, -1])
async def test_a_session_that_does_not_exist(epoch: int) -> None:
    async with Broker() as broker, member(broker) as one:
        response = await one.fetch(epoch=epoch)
        assert response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
