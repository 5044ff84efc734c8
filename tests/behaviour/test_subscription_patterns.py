"""Patterns of topic names that the coordinator matches (KIP-848, RE2/J)."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest

from aiokafkawire.consumer import Consumer, SubscriptionPattern
from aiokafkawire.errors import GroupFailed, IllegalState
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs
from tests.behaviour.support import WITHIN_S, fill, numbered, poll_until, take

pytestmark = pytest.mark.slow

MEMBER: dict[str, Any] = {
    "group_protocol": "consumer",
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 100,
}


@needs("consumer protocol")
async def test_the_coordinator_matches_whole_names(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
) -> None:
    one, two = await new_topic(), await new_topic()
    await new_topic()
    for topic in (one, two):
        await fill(bootstrap_servers, topic, numbered(3))
    async with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
    ) as consumer:
        # The beginning of the third name matches, but not the whole.
        consumer.subscribe(SubscriptionPattern(f"{one}|{two}|topic-"))
        assert {record.topic for record in await take(consumer, 6)} == {one, two}
        assert consumer.subscription() == {one, two}


@needs("consumer protocol")
async def test_topics_and_patterns_replace_each_other(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
) -> None:
    one, two = await new_topic(), await new_topic()

    def reads(topic: str) -> bool:
        return {tp.topic for tp in consumer.assignment()} == {topic}

    async with Consumer(
        one, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
    ) as consumer:
        await poll_until(consumer, lambda: reads(one))
        consumer.subscribe(SubscriptionPattern(two))
        await poll_until(consumer, lambda: reads(two))
        consumer.subscribe([one])
        await poll_until(consumer, lambda: reads(one))
        for topic in (one, two):
            await fill(bootstrap_servers, topic, numbered(2))
        assert {record.topic for record in await take(consumer, 2)} == {one}
        consumer.unsubscribe()
        consumer.subscribe(SubscriptionPattern(one))
        await poll_until(consumer, lambda: reads(one))


@needs("consumer protocol")
async def test_a_pattern_that_is_invalid_for_the_coordinator_is_raised_at_once(
    bootstrap_servers: str, topic: str, group_id: str
) -> None:
    options = {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    async with Consumer(**options, **MEMBER) as consumer:
        consumer.subscribe(SubscriptionPattern("a(b"))
        with anyio.fail_after(WITHIN_S), pytest.raises(GroupFailed, match=r"missing closing \)"):
            await consumer.getone()
        consumer.subscribe(SubscriptionPattern(re.escape(topic)))
        await poll_until(consumer, lambda: bool(consumer.assignment()))


@pytest.mark.parametrize("options", [{}, {"group_id": "g"}], ids=["no group", "classic"])
async def test_a_pattern_for_the_coordinator_needs_the_consumer_protocol(
    options: dict[str, Any],
) -> None:
    consumer = Consumer(bootstrap_servers="localhost:1", **options)
    with pytest.raises(IllegalState, match=r"group_protocol='consumer'.*pattern="):
        consumer.subscribe(SubscriptionPattern("a.*"))


def test_a_pattern_for_the_coordinator_is_a_text() -> None:
    with pytest.raises(TypeError, match="takes a string"):
        SubscriptionPattern(re.compile("a"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="empty"):
        SubscriptionPattern("")
