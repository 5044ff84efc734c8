"""Clients of brokers that lack a feature: reduced service, or an error that names the feature."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import (
    ClientClosed,
    GroupFailed,
    TransactionFailed,
    UnknownTopic,
    UnsupportedVersion,
)
from aiokafkawire.producer import Producer
from aiokafkawire.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs, without
from tests.behaviour.support import (
    MEMBER,
    WITHIN_S,
    committed,
    fill,
    numbered,
    partitions_of,
    poll_until,
    reading,
    stored,
    take,
)

pytestmark = pytest.mark.slow

MANUAL: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
ZOOKEEPER: dict[str, Any] = MANUAL | {"offsets_storage": "zookeeper"}


async def test_the_release_of_an_old_broker_is_detected(bootstrap_servers: str, topic: str):
    options = {"bootstrap_servers": bootstrap_servers, "api_version": "auto"}
    async with Producer(**options) as producer, Consumer(**options, **MANUAL) as consumer:
        with anyio.fail_after(WITHIN_S):
            assert (await producer.send_and_wait(topic, b"value")).offset == 0
        consumer.assign(TopicPartition(topic, 0))
        assert [record.value for record in await take(consumer, 1)] == [b"value"]


@without("headers", as_of="0.10.2")
async def test_headers_are_refused_and_other_records_are_sent(bootstrap_servers: str, topic: str):
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        with pytest.raises(UnsupportedVersion, match="headers") as caught:
            await producer.send_and_wait(topic, b"with", headers=[("name", b"value")])
        assert (caught.value.topic, caught.value.partition) == (topic, 0)
        assert (await producer.send_and_wait(topic, b"without")).offset == 0


@without("timestamps", as_of="0.8.2")
async def test_a_given_time_is_refused_and_other_records_have_none(
    bootstrap_servers: str, topic: str
):
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        with pytest.raises(UnsupportedVersion, match="timestamps") as caught:
            await producer.send_and_wait(topic, b"then", timestamp_ms=1_000_000_000_123)
        assert (caught.value.topic, caught.value.partition) == (topic, 0)
        await producer.send_and_wait(topic, b"some time")
    [record] = await stored(bootstrap_servers, topic)
    assert (record.value, record.timestamp_ms) == (b"some time", -1)


@without("Zstandard", as_of="2.0")
async def test_zstandard_is_refused(bootstrap_servers: str, topic: str):
    async with Producer(bootstrap_servers=bootstrap_servers, compression_type="zstd") as producer:
        with pytest.raises(UnsupportedVersion, match="zstd"):
            await producer.send_and_wait(topic, b"value")


@without("idempotence", as_of="0.10.2")
async def test_idempotence_is_left_out_with_one_line_in_the_log(
    bootstrap_servers: str, topic: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "aiokafkawire.producer"):
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            for value in numbered(3):
                await producer.send_and_wait(topic, value)
    [line] = caplog.messages
    assert "idempotence is disabled" in line


@without("idempotence", as_of="0.10.2")
async def test_idempotence_that_was_asked_for_is_refused(bootstrap_servers: str, topic: str):
    with pytest.raises(UnsupportedVersion, match="InitProducerId"):
        async with Producer(
            bootstrap_servers=bootstrap_servers, enable_idempotence=True
        ) as producer:
            await producer.send_and_wait(topic, b"value")


@without("search by time", as_of="0.10.0")
async def test_offsets_of_times_are_refused(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, [b"value"])
    async with reading(bootstrap_servers, topic) as consumer:
        with pytest.raises(UnsupportedVersion, match="ListOffsets"):
            await consumer.offsets_for_times({TopicPartition(topic, 0): 1_000})
        assert [record.value for record in await take(consumer, 1)] == [b"value"]


@without("search by time", as_of="0.10.0")
async def test_a_position_of_some_time_ago_is_refused(bootstrap_servers: str, topic: str):
    async with reading(bootstrap_servers, topic, auto_offset_reset="by_duration:PT1H") as consumer:
        with anyio.fail_after(WITHIN_S), pytest.raises(UnsupportedVersion, match="ListOffsets"):
            await consumer.getone()


@without("headers", as_of="0.10.2")
async def test_a_topic_is_not_asked_for_by_name_where_that_would_make_it(
    bootstrap_servers: str, topic: str, group_id: str
):
    missing = f"never-made-{group_id}"
    async with Producer(
        bootstrap_servers=bootstrap_servers, allow_auto_create_topics=False
    ) as producer:
        with anyio.fail_after(WITHIN_S), pytest.raises(UnknownTopic, match=missing):
            await producer.send(missing, b"value")
        await producer.send_and_wait(topic, b"value")
    async with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        assert topic in await consumer.topics()
        assert missing not in await consumer.topics()


@without("groups", as_of="0.8.2")
async def test_a_consumer_with_a_group_is_closed_at_any_moment(
    bootstrap_servers: str, topic: str, group_id: str
):
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"x")
    for milliseconds in range(30):
        consumer = Consumer(topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER)
        async with consumer:
            await anyio.sleep(milliseconds / 1000)
        with pytest.raises(ClientClosed):
            await consumer.getone()


@without("groups", as_of="0.8.2")
async def test_a_subscription_with_a_group_is_refused(
    bootstrap_servers: str, topic: str, group_id: str
):
    async with Consumer(
        topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **MANUAL
    ) as consumer:
        with anyio.fail_after(WITHIN_S), pytest.raises(UnsupportedVersion, match=r"Kafka 0\.8"):
            await consumer.getone()


@needs("groups")
@without("static members", as_of="2.2")
async def test_a_name_for_a_member_is_refused(bootstrap_servers: str, topic: str, group_id: str):
    options = MEMBER | {"group_id": group_id, "group_instance_id": "a"}
    async with Consumer(topic, bootstrap_servers=bootstrap_servers, **options) as consumer:
        with anyio.fail_after(WITHIN_S), pytest.raises(UnsupportedVersion, match="JoinGroup"):
            await consumer.getone()


@needs("groups")
@without("long sessions", as_of="0.9")
async def test_a_session_that_is_too_long_is_shortened_unless_it_was_asked_for(
    bootstrap_servers: str, topic: str, group_id: str, caplog: pytest.LogCaptureFixture
):
    options = {"bootstrap_servers": bootstrap_servers, "group_id": group_id, "api_version": "0.9"}
    with caplog.at_level(logging.INFO, "aiokafkawire.group"):
        async with Consumer(topic, **options, **MANUAL) as consumer:
            await poll_until(consumer, lambda: bool(consumer.assignment()))
    [line] = [line for line in caplog.messages if "session" in line]
    assert "retrying with 30000 ms" in line
    async with Consumer(topic, **options, **MANUAL, session_timeout_ms=45_000) as consumer:
        with anyio.fail_after(WITHIN_S), pytest.raises(GroupFailed, match="SESSION_TIMEOUT"):
            await consumer.getone()


@without("offsets", as_of="0.8.0")
@pytest.mark.parametrize("storage", ["kafka", "zookeeper"])
async def test_a_commit_is_refused_where_offsets_are_not_kept(
    bootstrap_servers: str, topic: str, group_id: str, storage: str
):
    partition = TopicPartition(topic, 0)
    options = MANUAL | {"group_id": group_id, "offsets_storage": storage}
    async with Consumer(bootstrap_servers=bootstrap_servers, **options) as consumer:
        consumer.assign(partition)
        with anyio.fail_after(WITHIN_S), pytest.raises(UnsupportedVersion) as caught:
            await consumer.commit({partition: 1})
        assert "Kafka 0.8.0" in str(caught.value)
        assert caught.value.broker == f"1 at {bootstrap_servers}"


@needs("offsets in ZooKeeper", as_of="2.8")
async def test_offsets_may_be_kept_in_zookeeper(bootstrap_servers: str, topic: str, group_id: str):
    await fill(bootstrap_servers, topic, numbered(6))
    [partition] = partitions_of(topic, 1)
    options = {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    async with Consumer(**options, **ZOOKEEPER) as consumer:
        consumer.assign(partition)
        assert await committed(consumer, partition) is None
        assert len(await take(consumer, 6)) == 6
        await consumer.commit({partition: OffsetAndMetadata(4, "ZooKeeper has no place for notes")})
    async with Consumer(**options, **ZOOKEEPER) as consumer:
        consumer.assign(partition)
        assert (await consumer.committed(partition))[partition] == OffsetAndMetadata(4)
        assert [record.value for record in await take(consumer, 2)] == numbered(2, start=4)


@needs("offsets in Kafka", "offsets in ZooKeeper", as_of="2.8")
async def test_offsets_in_zookeeper_and_in_kafka_are_kept_apart(
    bootstrap_servers: str, topic: str, group_id: str
):
    [partition] = partitions_of(topic, 1)
    options = {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    async with Consumer(**options, **ZOOKEEPER) as old, Consumer(**options, **MANUAL) as new:
        for consumer, offset in ((old, 3), (new, 7)):
            consumer.assign(partition)
            await consumer.commit({partition: offset})
        assert await committed(old, partition) == 3
        assert await committed(new, partition) == 7


@needs("groups", "offsets in ZooKeeper", as_of="2.8")
async def test_a_member_may_keep_its_offsets_in_zookeeper(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=1)
    await fill(bootstrap_servers, topic, numbered(6))
    options = MEMBER | {"group_id": group_id, "offsets_storage": "zookeeper"}
    servers = {"bootstrap_servers": bootstrap_servers}
    async with Consumer(topic, **servers, **options, max_poll_records=4) as consumer:
        await take(consumer, 4)
        await consumer.commit()
    async with Consumer(topic, **servers, **options) as consumer:
        assert [record.value for record in await take(consumer, 2)] == numbered(2, start=4)


@without("transactions", as_of="0.10.2")
async def test_transactions_are_refused(bootstrap_servers: str, topic: str):
    with anyio.fail_after(WITHIN_S):
        with pytest.raises(UnsupportedVersion, match=r"0\.11"):
            async with (
                Producer(
                    bootstrap_servers=bootstrap_servers, transactional_id="orders"
                ) as producer,
                producer.transaction(),
            ):
                await producer.send_and_wait(topic, b"value")
    await fill(bootstrap_servers, topic, numbered(3))
    assert [record.value for record in await stored(bootstrap_servers, topic)] == numbered(3)


@without("transactions", as_of="0.10.2")
async def test_all_records_are_committed_ones_where_there_are_no_transactions(
    bootstrap_servers: str, topic: str
):
    await fill(bootstrap_servers, topic, numbered(5))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, isolation_level="read_committed") as consumer:
        assert [record.value for record in await take(consumer, 5)] == numbered(5)
        assert await consumer.end_offsets(partition) == {partition: 5}
        assert consumer.lag(partition) == 0
        assert consumer.last_stable_offset(partition) is None


@needs("transactions")
@without("fencing by group", as_of="1.1")
async def test_offsets_in_a_transaction_go_without_the_check_of_a_member_only_if_asked_to(
    bootstrap_servers: str, topic: str, group_id: str
):
    [partition] = partitions_of(topic, 1)
    await fill(bootstrap_servers, topic, numbered(3))
    async with (
        Consumer(
            topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
        ) as consumer,
        Producer(bootstrap_servers=bootstrap_servers, transactional_id=group_id) as producer,
    ):
        await take(consumer, 3)

        async def send_checked() -> None:
            async with producer.transaction():
                await producer.send_offsets_to_transaction(consumer)

        with pytest.raises(TransactionFailed, match=r"before Kafka 2\.5") as raised:
            await send_checked()
        assert isinstance(raised.value.__cause__, UnsupportedVersion)
        async with producer.transaction():
            await producer.send_offsets_to_transaction(
                consumer.positions(), GroupMetadata(group_id)
            )
        with anyio.fail_after(WITHIN_S):
            while await committed(consumer, partition) != 3:
                await consumer.getmany(timeout_ms=20)
