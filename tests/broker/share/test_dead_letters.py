"""Dead-letter topics of share groups (KIP-1191), from Kafka 4.4 on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokafkawire import Consumer, Record, TopicPartition
from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType
from aiokafkawire.broker import Broker
from aiokafkawire.errors import KafkaError
from tests.broker.raw_client import connected
from tests.broker.share.client import ShareMember

ACCEPT, RELEASE, REJECT = 1, 2, 3
GROUP = ConfigResource(ConfigResourceType.GROUP, "g")
QUEUE = "dlq.g"
NAME = "errors.deadletterqueue.topic.name"
ENABLE = "errors.deadletterqueue.group.enable"


@asynccontextmanager
async def member(
    broker: Broker, topic: str = QUEUE, *, enabled: bool = True, **configs: str
) -> AsyncIterator[ShareMember]:
    """Join a group with a dead-letter topic, with five records at its start."""
    await broker.create_topic("t")
    if topic:
        await broker.create_topic(topic, partitions=2)
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        values = {NAME: topic or QUEUE, "share.auto.offset.reset": "earliest", **configs}
        await admin.incremental_alter_configs({GROUP: values})
        if enabled and topic:
            queue = ConfigResource(ConfigResourceType.TOPIC, topic)
            await admin.incremental_alter_configs({queue: {ENABLE: "true"}})
    async with connected(broker) as client:
        one = ShareMember(client)
        await one.join()
        await one.produce(5)
        yield one


async def dead_letters(broker: Broker, topic: str = QUEUE) -> list[Record]:
    partitions = [TopicPartition(topic, number) for number in range(2)]
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(*partitions)
        stored = sum((await consumer.end_offsets(*partitions)).values())
        found: list[Record] = []
        while len(found) < stored:
            for batch in (await consumer.getmany(timeout_ms=1_000)).values():
                found += batch
        return found


async def test_a_rejected_record_is_named_in_the_dead_letter_topic() -> None:
    async with Broker(as_of="4.4") as broker, member(broker) as one:
        assert await one.acquired() == [(0, 4, 1)]
        await one.acknowledge((0, 1, ACCEPT), (2, 3, REJECT), (4, 4, ACCEPT))
        first, second = await dead_letters(broker)
    assert (first.partition, first.key, first.value) == (0, None, None)
    assert dict(first.headers) == {
        "__dlq.errors.topic": b"t",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"2",
        "__dlq.errors.group": b"g",
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Offset rejected by client.",
    }
    assert dict(second.headers)["__dlq.errors.offset"] == b"3"


async def test_a_record_at_the_delivery_limit_is_copied_if_the_group_says_so() -> None:
    configs = {
        "share.delivery.count.limit": "2",
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    async with Broker(as_of="4.4") as broker, member(broker, **configs) as one:
        assert await one.acquired() == [(0, 4, 1)]
        await one.acknowledge((0, 3, ACCEPT), (4, 4, RELEASE))
        assert await dead_letters(broker) == []
        assert await one.acquired() == [(4, 4, 2)]
        await one.acknowledge((4, 4, RELEASE))
        (letter,) = await dead_letters(broker)
    assert (letter.key, letter.value) == (b"k4", b"v")
    headers = dict(letter.headers)
    assert headers["__dlq.errors.delivery.count"] == b"2"
    assert headers["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."


@pytest.mark.parametrize(
    ("topic", "enabled"),
    [("letters", True), (QUEUE, False)],
    ids=["another prefix", "a topic that is not enabled"],
)
async def test_records_are_archived_without_a_dead_letter(topic: str, enabled: bool) -> None:
    async with Broker(as_of="4.4") as broker, member(broker, topic, enabled=enabled) as one:
        assert await one.acquired() == [(0, 4, 1)]
        assert (await one.acknowledge((0, 4, REJECT))).error_code == 0
        assert await one.acquired() == []
        assert await dead_letters(broker, topic) == []


async def test_records_are_archived_if_the_dead_letter_topic_does_not_exist() -> None:
    async with Broker(as_of="4.4", auto_create_topics=False) as broker, member(broker, "") as one:
        assert await one.acquired() == [(0, 4, 1)]
        assert (await one.acknowledge((0, 4, REJECT))).error_code == 0
        assert await one.acquired() == []


@pytest.mark.parametrize("as_of", ["4.3", "4.4"])
async def test_the_configs_are_described_from_the_release_on(as_of: str) -> None:
    async with (
        Broker(as_of=as_of) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        found = await admin.describe_configs([GROUP])
    assert (NAME in found[GROUP]) is (as_of == "4.4")


async def test_an_older_release_does_not_know_the_configs() -> None:
    async with Broker(as_of="4.3") as broker:
        await broker.create_topic("t")
        topic = ConfigResource(ConfigResourceType.TOPIC, "t")
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for resource, name in ((GROUP, NAME), (topic, ENABLE)):
                with pytest.raises(KafkaError, match=r"Unknown .* config name"):
                    await admin.incremental_alter_configs({resource: {name: "true"}})


async def test_an_earlier_level_of_the_feature_writes_no_dead_letters() -> None:
    async with Broker(as_of="4.4") as broker, member(broker) as one:
        levels = broker._running.cluster.metadata.features
        levels._levels["share.version"] = 1
        assert await one.acquired() == [(0, 4, 1)]
        assert (await one.acknowledge((0, 4, REJECT))).error_code == 0
        assert await dead_letters(broker) == []
