"""Groups that the coordinator balances (KIP-848)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import anyio
import pytest

from aiokafkawire.admin import Admin, GroupType
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import GroupFailed, InvalidOption, UnsupportedVersion
from aiokafkawire.share import ShareConsumer
from aiokafkawire.types import TopicPartition
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs, without
from tests.behaviour.support import (
    POLL_MS,
    WITHIN_S,
    committed,
    fill,
    numbered,
    partitions_of,
    poll_until,
    spread,
    spread_values,
    take,
)

pytestmark = pytest.mark.slow

PARTITIONS = 6
MEMBER: dict[str, Any] = {
    "group_protocol": "consumer",
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 100,
}


async def read_until(
    consumer: Consumer, seen: Counter[bytes], wanted: Collection[bytes], stopped: anyio.Event
) -> None:
    """Read until all members together have seen the wanted values."""
    while not stopped.is_set():
        for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
            seen.update(record.value for record in records)
        if seen.keys() >= set(wanted):
            stopped.set()


@needs("consumer protocol")
async def test_members_share_the_partitions_and_read_each_record_once(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
) -> None:
    topic = await new_topic(partitions=PARTITIONS)
    options = MEMBER | {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    seen: Counter[bytes] = Counter()
    stopped = anyio.Event()
    async with Consumer(topic, **options) as first, Consumer(topic, **options) as second:
        with anyio.fail_after(2 * WITHIN_S):
            while len(first.assignment()) != 3 or len(second.assignment()) != 3:
                for member in (first, second):
                    for records in (await member.getmany(timeout_ms=POLL_MS)).values():
                        seen.update(record.value for record in records)
            assert first.assignment().isdisjoint(second.assignment())
            await spread(bootstrap_servers, topic, 20, PARTITIONS)
            async with anyio.create_task_group() as tasks:
                for member in (first, second):
                    tasks.start_soon(
                        read_until, member, seen, spread_values(20, PARTITIONS), stopped
                    )
    assert set(seen.values()) == {1}


@needs("consumer protocol")
async def test_a_member_that_leaves_hands_its_partitions_and_positions_over(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
) -> None:
    topic = await new_topic(partitions=2)
    options = MEMBER | {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    for partition in range(2):
        await fill(bootstrap_servers, topic, numbered(10), partition)
    async with Consumer(topic, **options) as first:
        assert len(await take(first, 20)) == 20
    async with Consumer(bootstrap_servers=bootstrap_servers, group_id=group_id) as reader:
        assert [await committed(reader, tp) for tp in partitions_of(topic, 2)] == [10, 10]
    await fill(bootstrap_servers, topic, [b"next"])
    async with Consumer(topic, **options) as second:
        assert [record.value for record in await take(second, 1)] == [b"next"]
        assert second.assignment() == set(partitions_of(topic, 2))


@needs("consumer protocol")
async def test_the_listener_learns_of_partitions_that_move(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
) -> None:
    topic = await new_topic(partitions=2)
    options = MEMBER | {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    calls: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            calls.append(("assigned", len(assigned)))

        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            calls.append(("revoked", len(revoked)))

    async with Consumer(**options) as first:
        first.subscribe([topic], listener=Listener())
        await poll_until(first, lambda: len(first.assignment()) == 2)
        async with Consumer(topic, **options) as second, anyio.create_task_group() as tasks:
            tasks.start_soon(poll_until, second, lambda: len(second.assignment()) == 1)
            await poll_until(first, lambda: len(first.assignment()) == 1)
        await poll_until(first, lambda: len(first.assignment()) == 2)
    moved = [call for call in calls if call[1]]
    assert moved == [
        ("assigned", 2), ("revoked", 1), ("assigned", 1), ("revoked", 2)
    ]  # fmt: skip


@needs("consumer protocol")
async def test_a_static_member_returns_to_its_partitions(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
) -> None:
    topic = await new_topic(partitions=4)
    options = MEMBER | {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    async with Consumer(topic, group_instance_id="a", **options) as other:
        member = Consumer(topic, group_instance_id="b", **options)
        async with member, anyio.create_task_group() as tasks:
            tasks.start_soon(poll_until, member, lambda: len(member.assignment()) == 2)
            await poll_until(other, lambda: len(other.assignment()) == 2)
        before = other.assignment()
        async with Consumer(topic, group_instance_id="b", **options) as again:
            await poll_until(again, lambda: len(again.assignment()) == 2)
            assert again.assignment().isdisjoint(before)
        assert other.assignment() == before


@needs("consumer protocol")
async def test_auto_uses_the_consumer_protocol(
    bootstrap_servers: str, topic: str, group_id: str
) -> None:
    options = MEMBER | {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    await fill(bootstrap_servers, topic, numbered(3))
    async with Consumer(topic, **options | {"group_protocol": "auto"}) as consumer:
        assert len(await take(consumer, 3)) == 3
        async with Admin(bootstrap_servers=bootstrap_servers) as admin:
            groups = await admin.list_groups()
        assert {group.group_id: group.type for group in groups}[group_id] is GroupType.CONSUMER


@needs("groups")
@without("consumer protocol", as_of="3.9")
async def test_auto_falls_back_to_the_classic_protocol(
    bootstrap_servers: str, topic: str, group_id: str
) -> None:
    options = {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    await fill(bootstrap_servers, topic, numbered(3))
    async with Consumer(
        topic, group_protocol="auto", auto_offset_reset="earliest", **options
    ) as consumer:
        assert len(await take(consumer, 3)) == 3


@needs("groups")
@without("consumer protocol", as_of="3.9")
async def test_a_cluster_without_the_consumer_protocol_is_named(
    bootstrap_servers: str, topic: str, group_id: str
) -> None:
    options = MEMBER | {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    async with Consumer(topic, **options) as consumer:
        with anyio.fail_after(WITHIN_S), pytest.raises(UnsupportedVersion, match=r"Kafka 4\.0"):
            await consumer.getone()


@needs("consumer protocol")
async def test_an_assignor_that_the_coordinator_lacks_is_raised_at_once(
    bootstrap_servers: str, topic: str, group_id: str
) -> None:
    options = MEMBER | {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    async with Consumer(topic, group_remote_assignor="fair", **options) as consumer:
        with (
            anyio.fail_after(WITHIN_S),
            pytest.raises(GroupFailed, match=r"UNSUPPORTED_ASSIGNOR.*group_remote_assignor"),
        ):
            await consumer.getone()


@needs("share groups")
async def test_a_group_of_another_type_is_raised_at_once(
    bootstrap_servers: str, topic: str, group_id: str
) -> None:
    options = {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    with anyio.fail_after(WITHIN_S):
        async with ShareConsumer(topic, **options) as other:
            while not other.assignment():  # the group has a type once it has a member
                await other.getmany(timeout_ms=100)
            async with Consumer(topic, **options | MEMBER) as ours:
                with pytest.raises(GroupFailed, match=r"another type.*use another group_id"):
                    await ours.getone()


@pytest.mark.parametrize(
    "option",
    [
        {"session_timeout_ms": 10_000},
        {"heartbeat_interval_ms": 1_000},
        {"partition_assignment_strategy": ("range",)},
        {"offsets_storage": "zookeeper"},
    ],
    ids=lambda option: next(iter(option)),
)
async def test_options_of_the_classic_protocol_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="group_protocol"):
        Consumer(
            "topic",
            bootstrap_servers="localhost:1",
            group_id="g",
            group_protocol="consumer",
            **option,
        )


@pytest.mark.parametrize(
    "option",
    [
        {"group_protocol": "consumer"},
        {"group_protocol": "auto"},
        {"group_remote_assignor": "uniform"},
        {"group_instance_id": "a"},
    ],
    ids=str,
)
async def test_options_of_a_group_are_refused_without_one(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=f"{next(iter(option))} needs a group_id"):
        Consumer("topic", bootstrap_servers="localhost:1", **option)
