"""Position of a consumer in a partition, and seeks."""

from __future__ import annotations

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError, NoOffsetForPartition, UnknownTopic
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs
from tests.behaviour.support import (
    WITHIN_S,
    fill,
    numbered,
    partitions_of,
    reading,
    spread,
    take,
)


async def test_the_position_is_after_what_was_given(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(10))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic) as consumer:
        assert await consumer.position(partition) == 0
        with anyio.fail_after(WITHIN_S):
            await consumer.getone()
        assert await consumer.position(partition) == 1
        await take(consumer, 9)
        assert await consumer.position(partition) == 10


async def test_seek_goes_forth_and_back(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(20))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic) as consumer:
        for offset in (15, 3, 15, 0):
            consumer.seek(partition, offset)
            assert await consumer.position(partition) == offset
            with anyio.fail_after(WITHIN_S):
                assert (await consumer.getone()).offset == offset


async def test_seek_drops_what_was_fetched_before(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(100))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, max_poll_records=5) as consumer:
        await take(consumer, 5)
        consumer.seek(partition, 50)
        assert [r.offset for r in await take(consumer, 5)] == [50, 51, 52, 53, 54]


async def test_seek_to_beginning_reads_all_again(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(5))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic) as consumer:
        await take(consumer, 5)
        await consumer.seek_to_beginning(partition)
        assert await consumer.position(partition) == 0
        assert [record.value for record in await take(consumer, 5)] == numbered(5)


async def test_seek_to_end_leaves_only_what_comes_later(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(5))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic) as consumer:
        await consumer.seek_to_end()
        assert await consumer.position(partition) == 5
        await fill(bootstrap_servers, topic, [b"later"])
        assert [record.value for record in await take(consumer, 1)] == [b"later"]


async def test_reset_earliest_begins_at_the_start(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(3))
    async with reading(bootstrap_servers, topic, auto_offset_reset="earliest") as consumer:
        assert [record.value for record in await take(consumer, 3)] == numbered(3)


async def test_reset_latest_begins_at_the_end(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(3))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, auto_offset_reset="latest") as consumer:
        assert await consumer.position(partition) == 3
        await fill(bootstrap_servers, topic, [b"new"])
        assert [record.value for record in await take(consumer, 1)] == [b"new"]


async def test_reset_none_asks_for_a_seek(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(3))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetForPartition) as caught, anyio.fail_after(WITHIN_S):
            await consumer.getone()
        assert partition in caught.value.partitions
        consumer.seek(partition, 1)
        with anyio.fail_after(WITHIN_S):
            assert (await consumer.getone()).offset == 1


async def test_an_offset_out_of_range_falls_to_the_policy(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(3))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, auto_offset_reset="earliest") as consumer:
        consumer.seek(partition, 1_000)
        assert [record.value for record in await take(consumer, 3)] == numbered(3)


async def test_an_offset_out_of_range_is_an_error_without_a_policy(
    bootstrap_servers: str, topic: str
):
    await fill(bootstrap_servers, topic, numbered(3))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, auto_offset_reset="none") as consumer:
        consumer.seek(partition, 1_000)
        with pytest.raises(NoOffsetForPartition, match=topic) as caught, anyio.fail_after(WITHIN_S):
            await consumer.getone()
        assert partition in caught.value.partitions


async def test_beginning_and_end_offsets(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(partitions=3)
    await fill(bootstrap_servers, topic, numbered(4), partition=0)
    await fill(bootstrap_servers, topic, numbered(7), partition=2)
    zero, one, two = partitions_of(topic, 3)
    async with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        assert await consumer.beginning_offsets(zero, one, two) == {zero: 0, one: 0, two: 0}
        assert await consumer.end_offsets(zero, one, two) == {zero: 4, one: 0, two: 7}


@needs("search by time")
async def test_offsets_for_times(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(partitions=2)
    zero, one = partitions_of(topic, 2)
    base = 1_700_000_000_000
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=0) as producer:
        for number in range(5):
            await producer.send_and_wait(
                topic, b"v", partition=0, timestamp_ms=base + 1_000 * number
            )
    async with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        found = await consumer.offsets_for_times({zero: base + 1_500, one: base})
        assert found[zero] is not None
        assert (found[zero].offset, found[zero].timestamp_ms) == (2, base + 2_000)
        assert found[one] is None
        assert (await consumer.offsets_for_times({zero: base + 60_000}))[zero] is None
        exact = (await consumer.offsets_for_times({zero: base}))[zero]
        assert exact is not None
        assert exact.offset == 0


async def test_lag_is_what_is_left_to_read(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(10))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, max_poll_records=4) as consumer:
        await take(consumer, 4)
        assert consumer.lag(partition) == 6
        await take(consumer, 6)
        assert consumer.lag(partition) == 0


@pytest.mark.slow
async def test_partitions_for_a_topic(bootstrap_servers: str, new_topic: NewTopic, group_id: str):
    topic = await new_topic(partitions=5)
    async with Consumer(
        bootstrap_servers=bootstrap_servers,
        allow_auto_create_topics=False,
        default_api_timeout_ms=1_500,
    ) as consumer:
        assert list(await consumer.partitions_for(topic)) == [0, 1, 2, 3, 4]
        with pytest.raises(UnknownTopic):
            await consumer.partitions_for(f"never-made-{group_id}")


async def test_what_is_not_assigned_has_no_position(bootstrap_servers: str, topic: str):
    async with reading(bootstrap_servers, topic) as consumer:
        elsewhere = TopicPartition(topic, 7)
        with pytest.raises(KafkaError, match=f"not assigned.*{topic}.*partition 7"):
            consumer.seek(elsewhere, 0)
        with pytest.raises(KafkaError, match=f"not assigned.*{topic}.*partition 7"):
            await consumer.position(elsewhere)
        with pytest.raises(KafkaError, match=f"not assigned.*{topic}.*partition 7"):
            consumer.pause(elsewhere)


async def test_assign_replaces_what_was_assigned(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 3, 2)
    zero, one = partitions_of(topic, 2)
    async with reading(bootstrap_servers, topic) as consumer:
        assert set(consumer.assignment()) == {zero}
        await take(consumer, 3)
        consumer.assign([one])
        assert set(consumer.assignment()) == {one}
        assert {record.partition for record in await take(consumer, 3)} == {1}
