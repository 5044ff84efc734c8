from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from aiokafkawire import Admin, Broker, Consumer, Producer, TopicPartition
from aiokafkawire.cli.group_reports import (
    GroupReport,
    MemberRow,
    OffsetRow,
    describe_groups,
    group_text,
    group_to_dict,
)
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


async def test_a_group_of_the_consumer_protocol_is_described_with_epochs_and_targets() -> None:
    async with shop() as (broker, admin):
        options: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": "billing",
            "auto_offset_reset": "earliest",
        }
        async with Consumer("orders", group_protocol="consumer", **options) as consumer:
            await consumer.getone()
            (group,), errors = await describe_groups(admin, ["billing"])
            assert errors == []
            assert (group.group_type, group.protocol) == ("Consumer", "uniform")
            assert group.group_epoch == group.target_assignment_epoch == 2
            (member,) = group.members
            assert (member.member_epoch, member.protocol) == (2, "consumer")
            assert member.partitions == member.target_partitions == (FIRST, SECOND)


def test_the_target_of_a_member_stands_beside_its_assignment() -> None:
    """A member of the classic protocol still owns what one of the consumer protocol is to get."""
    old = MemberRow("old", None, "desk", "/127.0.0.1", (FIRST, SECOND), 4, (FIRST,), "classic")
    new = MemberRow("new", None, "desk", "/127.0.0.1", (), 5, (SECOND,), "consumer")
    group = GroupReport(
        *("billing", "Consumer", "Reconciling", "consumer", "uniform", 3, (old, new)),
        group_epoch=6,
        target_assignment_epoch=5,
    )
    assert group_text(group) == (
        "billing: Consumer group, Reconciling, uniform, coordinator 3, epoch 6, target epoch 5,"
        " 2 members, lag unknown\n\n"
        "  member  id   instance  client  host        partitions     epoch  target      protocol\n"
        "       1  old  -         desk    /127.0.0.1  orders [0, 1]      4  orders [0]  classic\n"
        "       2  new  -         desk    /127.0.0.1  no partitions      5  orders [1]  consumer\n"
    )
    shown = group_to_dict(group)
    assert (shown["group_epoch"], shown["target_assignment_epoch"]) == (6, 5)
    assert [
        (each["member_epoch"], each["protocol"], each["target_partitions"])
        for each in shown["members"]
    ] == [
        (4, "classic", [{"topic": "orders", "partition": 0}]),
        (5, "consumer", [{"topic": "orders", "partition": 1}]),
    ]


def test_a_classic_group_has_no_epochs() -> None:
    member = MemberRow("only", None, "desk", "/127.0.0.1", (FIRST,))
    group = GroupReport("billing", "Classic", "Stable", "consumer", "range", 3, (member,))
    assert "epoch" not in group_text(group)
    assert "target" not in group_text(group)
    assert group_to_dict(group)["group_epoch"] is None
    assert group_to_dict(group)["members"][0]["target_partitions"] is None


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


@pytest.mark.slow
async def test_a_dry_run_reports_the_members_that_would_prevent_a_deletion() -> None:
    async with shop() as (broker, admin), reader(broker) as consumer:
        await consumer.getone()
        await consumer.commit({FIRST: 1})
        for words, reason in [
            (("offsets", "delete", "billing", "orders", "--dry-run"), b"that read topic 'orders'"),
            (("offsets", "delete", "billing", "orders", "--yes"), b"GROUP_SUBSCRIBED_TO_TOPIC"),
            (("groups", "delete", "billing", "--dry-run"), b"has 1 member"),
        ]:
            given = (*words, "-b", broker.bootstrap_servers)
            done = await anyio.to_thread.run_sync(partial(aiokafkawire, *given))
            assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
            assert reason in done.stderr
        assert (await admin.list_consumer_group_offsets(["billing"]))["billing"].keys() == {FIRST}


async def test_a_group_that_does_not_exist_is_an_error_and_others_are_described() -> None:
    async with shop() as (_, admin):
        await admin.alter_consumer_group_offsets("b", {SECOND: 0})
        groups, errors = await describe_groups(admin, ["nobody", "b", "b"])
        assert [group.group_id for group in groups] == ["b"]
        assert groups[0].offsets == (OffsetRow(SECOND, 0, 0, 0),)
        (error,) = errors
        assert isinstance(error, BrokerError)
        assert (error.name, error.group) == ("GROUP_ID_NOT_FOUND", "nobody")
