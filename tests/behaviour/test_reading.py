"""Polling: getone, getmany, async for, batches; limits and pauses."""

from __future__ import annotations

from itertools import count

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.records import Records
from aiokafkawire.types import TopicPartition
from tests.behaviour.conftest import NewTopic
from tests.behaviour.support import (
    WITHIN_S,
    fill,
    numbered,
    partitions_of,
    reading,
    spread,
    spread_values,
    take,
)
from tests.elapsed import ends_within


async def test_async_for_gives_records_in_order(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(50))
    seen = []
    async with reading(bootstrap_servers, topic) as consumer:
        with anyio.fail_after(WITHIN_S):
            async for record in consumer:
                seen.append((record.topic, record.partition, record.offset, record.value))
                if len(seen) == 50:
                    break
    assert seen == [(topic, 0, offset, value) for offset, value in enumerate(numbered(50))]


async def test_async_for_waits_for_records_that_come_later(bootstrap_servers: str, topic: str):
    values = []
    async with reading(bootstrap_servers, topic) as consumer:

        async def read() -> None:
            async for record in consumer:
                values.append(record.value)
                if len(values) == 3:
                    return

        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as group:
                group.start_soon(read)
                for value in numbered(3):
                    await fill(bootstrap_servers, topic, [value])
    assert values == numbered(3)


async def test_getone_gives_one_record_after_the_other(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(3))
    async with reading(bootstrap_servers, topic) as consumer:
        with anyio.fail_after(WITHIN_S):
            records = [await consumer.getone() for _ in range(3)]
    assert [record.value for record in records] == numbered(3)


@pytest.mark.slow
async def test_getone_with_a_timeout_gives_none_when_nothing_comes(
    bootstrap_servers: str, topic: str
):
    async with reading(bootstrap_servers, topic) as consumer:
        began = anyio.current_time()
        with ends_within(3):
            assert await consumer.getone(timeout_ms=200) is None
        assert anyio.current_time() - began >= 0.15
        await fill(bootstrap_servers, topic, [b"value"])
        record = await consumer.getone(timeout_ms=20_000)
        assert record is not None
        assert record.value == b"value"


async def test_a_cancelled_getone_loses_nothing(bootstrap_servers: str, topic: str):
    async with reading(bootstrap_servers, topic) as consumer:
        for _ in range(3):
            with anyio.move_on_after(0.03) as scope:
                await consumer.getone()
            assert scope.cancelled_caught
        await fill(bootstrap_servers, topic, numbered(40))
        values: list[bytes | None] = []
        with anyio.fail_after(WITHIN_S):
            for attempt in count():
                if len(values) == 40:
                    break
                async with anyio.create_task_group() as group:
                    if attempt % 2:
                        group.start_soon(_cancel, group.cancel_scope)
                    values.append((await consumer.getone()).value)
                    group.cancel_scope.cancel()
    assert values == numbered(40)


async def _cancel(scope: anyio.CancelScope) -> None:
    scope.cancel()


async def test_getmany_gives_records_by_partition(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(partitions=3)
    await spread(bootstrap_servers, topic, 10, 3)
    values: dict[TopicPartition, list[bytes | None]] = {}
    async with reading(bootstrap_servers, topic, 3) as consumer:
        with anyio.fail_after(WITHIN_S):
            while sum(map(len, values.values())) < 30:
                for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                    assert isinstance(records, Records)
                    assert records.topic_partition == partition
                    assert len(records) > 0
                    values.setdefault(partition, []).extend(records.values())
    assert values == {
        partition: [b"%d/%d" % (partition.partition, n) for n in range(10)]
        for partition in partitions_of(topic, 3)
    }


async def test_getmany_of_given_partitions_leaves_the_others(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 4, 2)
    zero, one = partitions_of(topic, 2)
    async with reading(bootstrap_servers, topic, 2) as consumer:
        values: list[bytes | None] = []
        with anyio.fail_after(WITHIN_S):
            while len(values) < 4:
                found = await consumer.getmany(one, timeout_ms=200)
                assert set(found) <= {one}
                values += [value for records in found.values() for value in records.values()]
        assert await consumer.position(one) == 4
        assert await consumer.position(zero) == 0
        assert [record.value for record in await take(consumer, 4)] == [
            b"0/0",
            b"0/1",
            b"0/2",
            b"0/3",
        ]


async def test_max_poll_records_bounds_what_getmany_gives(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 25, 2)
    sizes = []
    values = set()
    async with reading(bootstrap_servers, topic, 2, max_poll_records=7) as consumer:
        with anyio.fail_after(WITHIN_S):
            while sum(sizes) < 50:
                found = await consumer.getmany(timeout_ms=200)
                sizes.append(sum(map(len, found.values())))
                values |= {value for records in found.values() for value in records.values()}
    assert max(sizes) == 7
    assert values == spread_values(25, 2)


async def test_max_records_of_one_call_goes_before_the_option(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(20))
    async with reading(bootstrap_servers, topic) as consumer:
        [records] = (await consumer.getmany(timeout_ms=20_000, max_records=3)).values()
        assert records.values() == numbered(3)
        assert [record.value for record in await take(consumer, 17)] == numbered(17, start=3)


@pytest.mark.slow
async def test_getmany_on_an_empty_topic_gives_nothing_after_its_timeout(
    bootstrap_servers: str, topic: str
):
    async with reading(bootstrap_servers, topic) as consumer:
        began = anyio.current_time()
        with ends_within(3):
            assert await consumer.getmany(timeout_ms=300) == {}
        assert anyio.current_time() - began >= 0.25


async def test_getmany_with_timeout_0_does_not_wait(bootstrap_servers: str, topic: str):
    async with reading(bootstrap_servers, topic, fetch_max_wait_ms=5_000) as consumer:
        assert await consumer.getmany(timeout_ms=0) == {}
        with ends_within(1):
            for _ in range(50):
                assert await consumer.getmany(timeout_ms=0) == {}


async def test_batches_give_one_partitions_records_at_a_time(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=3)
    await spread(bootstrap_servers, topic, 20, 3)
    values = []
    async with reading(bootstrap_servers, topic, 3) as consumer:
        with anyio.fail_after(WITHIN_S):
            async for batch in consumer.batches():
                assert isinstance(batch, Records)
                assert len(batch) > 0
                assert {record.partition for record in batch} == {batch.partition}
                values += batch.values()
                if len(values) == 60:
                    break
    assert set(values) == spread_values(20, 3)


@pytest.mark.slow
async def test_a_paused_partition_gives_nothing_until_it_is_resumed(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 5, 2)
    zero, _ = partitions_of(topic, 2)
    async with reading(bootstrap_servers, topic, 2) as consumer:
        consumer.pause(zero)
        assert consumer.paused() == {zero}
        assert {record.partition for record in await take(consumer, 5)} == {1}
        assert await consumer.getmany(timeout_ms=300) == {}
        consumer.resume(zero)
        assert consumer.paused() == set()
        assert [record.value for record in await take(consumer, 5)] == [
            b"0/%d" % number for number in range(5)
        ]


@pytest.mark.slow
async def test_pausing_holds_back_what_was_fetched_already(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(100))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, max_poll_records=10) as consumer:
        assert [record.value for record in await take(consumer, 10)] == numbered(10)
        consumer.pause(partition)
        assert await consumer.getmany(timeout_ms=200) == {}
        assert await consumer.position(partition) == 10
        consumer.resume(partition)
        assert [record.value for record in await take(consumer, 90)] == numbered(90, start=10)


async def test_a_record_larger_than_the_fetch_limits_is_read(bootstrap_servers: str, topic: str):
    large = [b"%d" % number * 300_000 for number in range(3)]
    await fill(bootstrap_servers, topic, large)
    async with reading(
        bootstrap_servers, topic, max_partition_fetch_bytes=1_000, fetch_max_bytes=2_000
    ) as consumer:
        assert [record.value for record in await take(consumer, 3)] == large


async def test_small_fetches_bring_everything_once(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(partitions=4)
    await spread(bootstrap_servers, topic, 100, 4)
    async with reading(
        bootstrap_servers, topic, 4, fetch_max_bytes=600, max_partition_fetch_bytes=200
    ) as consumer:
        records = await take(consumer, 400)
    assert sorted(record.value for record in records) == sorted(spread_values(100, 4))


async def test_reading_goes_on_while_a_producer_writes(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(partitions=3)
    values = numbered(2_000)

    async def write() -> None:
        async with Producer(bootstrap_servers=bootstrap_servers, batch_size_bytes=500) as producer:
            for number, value in enumerate(values):
                await producer.send(topic, value, partition=number % 3)

    async with reading(bootstrap_servers, topic, 3) as consumer, anyio.create_task_group() as group:
        group.start_soon(write)
        records = await take(consumer, len(values))
    assert sorted(record.value for record in records) == values
    for parity in range(3):
        of_partition = [r.value for r in records if r.partition == parity]
        assert of_partition == values[parity::3]


async def test_two_consumers_without_a_group_read_everything_each(
    bootstrap_servers: str, topic: str
):
    await fill(bootstrap_servers, topic, numbered(10))
    async with (
        reading(bootstrap_servers, topic) as one,
        reading(bootstrap_servers, topic) as other,
    ):
        for consumer in (one, other):
            assert [record.value for record in await take(consumer, 10)] == numbered(10)


async def test_topics_without_a_group_are_read_whole(bootstrap_servers: str, new_topic: NewTopic):
    topics = [await new_topic(partitions=2), await new_topic(partitions=3)]
    await spread(bootstrap_servers, topics[0], 5, 2)
    await spread(bootstrap_servers, topics[1], 5, 3)
    async with Consumer(
        *topics, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        records = await take(consumer, 25)
        wanted = {*partitions_of(topics[0], 2), *partitions_of(topics[1], 3)}
        assert set(consumer.assignment()) == wanted
    assert len(records) == 25
    assert {record.topic_partition for record in records} == wanted


async def test_an_unsubscribed_consumer_reads_nothing_and_may_go_on_elsewhere(
    bootstrap_servers: str, new_topic: NewTopic
):
    first, second = await new_topic(), await new_topic()
    await fill(bootstrap_servers, first, numbered(3))
    await fill(bootstrap_servers, second, [b"second"])
    async with Consumer(
        first, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        assert [record.value for record in await take(consumer, 3)] == numbered(3)
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        consumer.assign([(second, 0)])
        assert [record.value for record in await take(consumer, 1)] == [b"second"]


@pytest.mark.slow
async def test_an_unknown_topic_without_auto_creation_raises(bootstrap_servers: str, group_id: str):
    topic = f"never-made-{group_id}"
    async with Consumer(
        bootstrap_servers=bootstrap_servers,
        allow_auto_create_topics=False,
        default_api_timeout_ms=1_500,
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with anyio.fail_after(20), pytest.raises(Exception, match=topic):
            await consumer.position(TopicPartition(topic, 0))
