from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from aiokafkawire import Admin, Broker, Consumer, Producer, TopicPartition
from aiokafkawire.cli.group_reports import OffsetRow, describe_groups
from aiokafkawire.errors import BrokerError

from .shell import aiokafkawire

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@asynccontextmanager
async def shop() -> AsyncIterator[tuple[Broker, Admin]]:
    """Two nodes, a topic of two partitions, three records in the first."""
    async with Broker(2) as broker:
        await broker.create_topic("orders", partitions=2)
        servers = broker.bootstrap_servers
        async with Producer(bootstrap_servers=servers) as producer:
            for _ in range(3):
                await producer.send("orders", b"x", partition=0)
        async with Admin(bootstrap_servers=servers) as admin:
            yield broker, admin


def reader(broker: Broker) -> Consumer:
    return Consumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="billing",
        group_instance_id="desk-1",
        client_id="desk",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


async def test_a_group_is_described_with_its_members_and_lag() -> None:
    async with shop() as (broker, admin), reader(broker) as consumer:
        await consumer.getone()
        await consumer.commit({FIRST: 1})
        (group,), errors = await describe_groups(admin, ["billing"])
        assert errors == []
        assert (group.group_type, group.state, group.protocol) == ("Classic", "Stable", "range")
        assert (group.lag, group.coordinator) == (2, broker.coordinator("billing"))
        (member,) = group.members
        assert (member.client_id, member.group_instance_id) == ("desk", "desk-1")
        assert member.partitions == (FIRST, SECOND)
        assert group.offsets == (
            OffsetRow(FIRST, 1, 3, 2, member.member_id),
            OffsetRow(SECOND, None, 0, None, member.member_id),
        )


@pytest.mark.slow
async def test_a_member_that_does_not_come_back_is_removed() -> None:
    async with shop() as (broker, admin):
        async with reader(broker) as consumer:
            await consumer.getone()

        async def remove(*arguments: str) -> tuple[int, bytes, bytes]:
            words = ("groups", "remove-members", "-b", broker.bootstrap_servers, "billing")
            done = await anyio.to_thread.run_sync(partial(aiokafkawire, *words, *arguments))
            return done.returncode, done.stdout, done.stderr

        # A static member stays until its session ends.
        code, out, err = await remove("--instance", "desk-1", "--instance", "desk-2", "--dry-run")
        assert (code, out.splitlines()[1].split()[:2]) == (1, [b"desk-1", b"desk"])
        assert b"group 'billing' has no static member 'desk-2'" in err
        code, out, err = await remove("--instance", "desk-1", "--yes", "--json")
        assert (code, out, err) == (0, b'{"member":"desk-1","dry_run":false}\n', b"")
        assert (await describe_groups(admin, ["billing"]))[0][0].members == ()


async def test_a_group_that_does_not_exist_is_an_error_and_others_are_described() -> None:
    async with shop() as (_, admin):
        await admin.alter_consumer_group_offsets("b", {SECOND: 0})
        groups, errors = await describe_groups(admin, ["nobody", "b", "b"])
        assert [group.group_id for group in groups] == ["b"]
        assert groups[0].offsets == (OffsetRow(SECOND, 0, 0, 0),)
        (error,) = errors
        assert isinstance(error, BrokerError)
        assert (error.name, error.group) == ("GROUP_ID_NOT_FOUND", "nobody")
