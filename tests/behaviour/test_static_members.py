"""Static members with a `group_instance_id` (KIP-345), which may be away for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import CommitFailed, FencedInstanceId, GroupFailed
from aiokafkawire.types import TopicPartition
from tests.behaviour.client_options import both_protocols
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs
from tests.behaviour.support import (
    MEMBER,
    WITHIN_S,
    committed,
    partitions_of,
    poll_until,
    settle,
    spread,
    take,
)
from tests.behaviour.test_cooperative import COOPERATIVE, EAGER, ListenerLog

pytestmark = [pytest.mark.slow, needs("static members")]

LONG: dict[str, Any] = {"session_timeout_ms": 30_000}


@asynccontextmanager
async def static(
    bootstrap_servers: str, group_id: str, topic: str, name: str, **options: Any
) -> AsyncIterator[tuple[Consumer, ListenerLog]]:
    notes = ListenerLog()
    async with Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        group_instance_id=name,
        **(MEMBER | LONG | options),
    ) as consumer:
        consumer.subscribe([topic], listener=notes)
        yield consumer, notes


@pytest.mark.parametrize("options", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
async def test_a_restart_brings_the_same_partitions_and_the_others_hear_nothing(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str, options: dict[str, Any]
):
    topic = await new_topic(partitions=4)
    await spread(bootstrap_servers, topic, 5, 4)
    async with static(bootstrap_servers, group_id, topic, "a", **options) as (one, ones):
        async with static(bootstrap_servers, group_id, topic, "b", **options) as (two, _):
            await settle(one, two, partitions=4)
            before, mine = two.assignment(), one.assignment()
            await two.commit(dict.fromkeys(before, 3))
        calls_before = list(ones.calls)
        async with static(bootstrap_servers, group_id, topic, "b", **options) as (two, twos):
            records = await take(two, 4)
            assert two.assignment() == before
            assert twos.calls == [("assigned", before)]
            assert {record.offset for record in records} == {3, 4}
            await one.getmany(timeout_ms=50)
        assert one.assignment() == mine
        assert ones.calls == calls_before


@both_protocols
async def test_a_member_that_leaves_keeps_its_place_until_its_session_ends(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=2)
    brief = {"session_timeout_ms": 3_000}
    async with static(bootstrap_servers, group_id, topic, "a") as (one, _):
        async with static(bootstrap_servers, group_id, topic, "b", **brief) as (two, _):
            await settle(one, two, partitions=2)
        await one.getmany(timeout_ms=150)
        assert len(one.assignment()) == 1
        await poll_until(one, lambda: len(one.assignment()) == 2)


async def test_the_first_of_two_static_members_with_one_id_is_fenced_and_commits_nothing(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=1)
    await spread(bootstrap_servers, topic, 5, 1)
    partition = TopicPartition(topic, 0)
    async with static(bootstrap_servers, group_id, topic, "a") as (one, ones):
        await take(one, 5)
        async with static(bootstrap_servers, group_id, topic, "a") as (two, _):
            await take(two, 5)
            with (
                anyio.fail_after(WITHIN_S),
                pytest.raises(FencedInstanceId, match=group_id) as raised,
            ):
                await one.getone()
            assert isinstance(raised.value, GroupFailed)
            assert "'a'" in str(raised.value)
            with pytest.raises(CommitFailed):
                await one.commit({partition: 5})
            assert one.assignment() == frozenset()
            assert await committed(two, partition) is None
            await two.commit()
            with pytest.raises(FencedInstanceId):
                await one.getone()
        assert ones.calls == [
            ("assigned", frozenset({partition})),
            ("lost", frozenset({partition})),
        ]


async def test_the_first_hears_at_its_commit_too_that_it_is_fenced(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=1)
    await spread(bootstrap_servers, topic, 5, 1)
    slow = {"heartbeat_interval_ms": 20_000}
    async with static(bootstrap_servers, group_id, topic, "a", **slow) as (one, _):
        await take(one, 5)
        async with static(bootstrap_servers, group_id, topic, "a") as (two, _):
            await take(two, 5)
            with pytest.raises(CommitFailed, match="FENCED_INSTANCE_ID"):
                await one.commit()
            assert await committed(two, TopicPartition(topic, 0)) is None


@both_protocols
async def test_a_member_that_comes_back_for_other_topics_gets_those(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    first, second = await new_topic(partitions=2), await new_topic(partitions=2)
    async with static(bootstrap_servers, group_id, first, "a") as (one, _):
        await settle(one, partitions=2)
    async with static(bootstrap_servers, group_id, second, "a") as (one, _):
        await settle(one, partitions=2)
        assert sorted(one.assignment()) == partitions_of(second, 2)
