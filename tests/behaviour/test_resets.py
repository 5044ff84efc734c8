"""Start positions, resets, and metrics of a consumer."""

from __future__ import annotations

import time

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import InvalidOption
from aiokafkawire.producer import Producer
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from tests.behaviour.client_options import both_protocols
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs
from tests.behaviour.support import (
    WITHIN_S,
    fill,
    numbered,
    partitions_of,
    poll_until,
    reading,
    spread,
    take,
)

MINUTE_MS = 60_000


async def write_at(bootstrap_servers: str, topic: str, ages_ms: list[int]) -> None:
    """Write one record of each age, in a batch of its own."""
    now_ms = time.time_ns() // 1_000_000
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=0) as producer:
        for age_ms in ages_ms:
            await producer.send_and_wait(
                topic, b"%d" % age_ms, partition=0, timestamp_ms=now_ms - age_ms
            )


@needs("search by time")
async def test_a_reset_by_duration_begins_so_long_ago(bootstrap_servers: str, topic: str):
    await write_at(bootstrap_servers, topic, [90 * MINUTE_MS, 61 * MINUTE_MS, 30 * MINUTE_MS, 1])
    async with reading(bootstrap_servers, topic, auto_offset_reset="by_duration:PT1H") as consumer:
        assert await consumer.position(TopicPartition(topic, 0)) == 2
        assert [record.offset for record in await take(consumer, 2)] == [2, 3]


@needs("search by time")
async def test_a_reset_by_duration_without_a_record_that_young_begins_at_the_end(
    bootstrap_servers: str, topic: str
):
    await write_at(bootstrap_servers, topic, [90 * MINUTE_MS, 61 * MINUTE_MS])
    async with reading(bootstrap_servers, topic, auto_offset_reset="by_duration:PT1H") as consumer:
        assert await consumer.position(TopicPartition(topic, 0)) == 2


async def test_a_duration_is_checked_when_the_consumer_is_made(bootstrap_servers: str):
    with pytest.raises(InvalidOption, match="by_duration:PnDTnHnMnS"):
        Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="by_duration:1h")


@pytest.mark.slow
async def test_an_offset_out_of_range_may_fall_to_the_end(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(3))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, auto_offset_reset="latest") as consumer:
        consumer.seek(partition, 1_000)
        found = await consumer.getmany(timeout_ms=200)
        assert found == {}
        await poll_until(consumer, lambda: consumer.lag(partition) == 0)
        assert await consumer.position(partition) == 3
        await fill(bootstrap_servers, topic, [b"new"])
        assert [record.value for record in await take(consumer, 1)] == [b"new"]


@needs("search by time")
async def test_an_offset_out_of_range_may_fall_to_a_duration(bootstrap_servers: str, topic: str):
    await write_at(bootstrap_servers, topic, [90 * MINUTE_MS, 30 * MINUTE_MS])
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, auto_offset_reset="by_duration:PT1H") as consumer:
        consumer.seek(partition, 1_000)
        assert [record.offset for record in await take(consumer, 1)] == [1]


async def test_a_seek_while_a_fetch_waits_at_the_broker(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(5))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, fetch_max_wait_ms=300) as consumer:
        await take(consumer, 5)
        assert await consumer.getmany(timeout_ms=50) == {}  # the next fetch is in flight
        consumer.seek(partition, 2)
        await fill(bootstrap_servers, topic, [b"late"])  # completes the fetch from before the seek
        records = await take(consumer, 4)
        assert [record.offset for record in records] == [2, 3, 4, 5]
        assert await consumer.position(partition) == 6


@needs("leader epochs")
async def test_a_seek_with_the_epoch_that_was_read_goes_there(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(5))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, auto_offset_reset="none") as consumer:
        consumer.seek(partition, 0)
        records = await take(consumer, 5)
        assert {record.leader_epoch for record in records} == {records[0].leader_epoch}
        assert records[0].leader_epoch >= 0
        consumer.seek(partition, OffsetAndMetadata(3, leader_epoch=records[2].leader_epoch))
        assert [record.offset for record in await take(consumer, 2)] == [3, 4]


@needs("committed epochs")
@both_protocols
async def test_a_commit_keeps_the_epoch_and_reading_resumes_there(
    bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(6))
    [partition] = partitions_of(topic, 1)
    options = {"group_id": group_id, "enable_auto_commit": False}
    async with reading(bootstrap_servers, topic, max_poll_records=4, **options) as consumer:
        records = await take(consumer, 4)
        await consumer.commit()
        kept = (await consumer.committed(partition))[partition]
        assert kept == OffsetAndMetadata(4, leader_epoch=records[-1].leader_epoch)
    async with reading(bootstrap_servers, topic, auto_offset_reset="none", **options) as consumer:
        assert [record.offset for record in await take(consumer, 2)] == [4, 5]


async def test_a_paused_partition_can_be_sought(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(10))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, max_poll_records=3) as consumer:
        await take(consumer, 3)
        consumer.pause(partition)
        consumer.seek(partition, 7)
        assert await consumer.getmany(timeout_ms=150) == {}
        assert await consumer.position(partition) == 7
        consumer.resume(partition)
        assert [record.offset for record in await take(consumer, 3)] == [7, 8, 9]


async def test_pausing_and_resuming_again_and_again_loses_nothing(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 60, 2)
    zero, one = partitions_of(topic, 2)
    offsets: dict[TopicPartition, list[int]] = {zero: [], one: []}
    async with reading(bootstrap_servers, topic, 2, max_partition_fetch_bytes=300) as consumer:
        with anyio.fail_after(WITHIN_S):
            for turn in range(1_000):
                if sum(map(len, offsets.values())) == 120:
                    break
                (consumer.pause if turn % 3 else consumer.resume)(zero)
                (consumer.resume if turn % 2 else consumer.pause)(one)
                found = await consumer.getmany(timeout_ms=20, max_records=7)
                assert not consumer.paused() & set(found)
                for partition, records in found.items():
                    offsets[partition] += records.offsets()
    assert offsets == {zero: list(range(60)), one: list(range(60))}


@needs("transactions")
@pytest.mark.parametrize(
    "level", [pytest.param("read_uncommitted", marks=needs("stable offset")), "read_committed"]
)
async def test_both_isolation_levels_read_what_is_not_transactional(
    bootstrap_servers: str, topic: str, level: str
):
    await fill(bootstrap_servers, topic, numbered(5))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic, isolation_level=level) as consumer:
        assert [record.value for record in await take(consumer, 5)] == numbered(5)
        assert await consumer.end_offsets(partition) == {partition: 5}
        await poll_until(consumer, lambda: consumer.last_stable_offset(partition) == 5)
        assert consumer.highwater(partition) == 5
        assert consumer.lag(partition) == 0


async def test_lag_and_ends_are_known_after_the_first_fetch(bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, numbered(10))
    [partition] = partitions_of(topic, 1)
    async with reading(bootstrap_servers, topic) as consumer:
        assert consumer.lag(partition) is None
        consumer.seek(partition, 4)
        assert consumer.lag(partition) is None
        assert consumer.highwater(partition) is None
        assert consumer.last_stable_offset(partition) is None
        with anyio.fail_after(WITHIN_S):
            await consumer.getone()
        assert consumer.lag(partition) == 5
        consumer.seek(partition, 8)
        assert consumer.lag(partition) == 2


@needs("groups")
@both_protocols
async def test_consumer_metrics(bootstrap_servers: str, topic: str, group_id: str):
    await fill(bootstrap_servers, topic, numbered(20))
    async with Consumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        assert consumer.metrics()["records_consumed_total"] == 0
        with anyio.fail_after(WITHIN_S):
            for _ in range(3):
                await consumer.getone()
        numbers = consumer.metrics()
        assert numbers["records_consumed_total"] == 3
        assert numbers["records_lag_max"] == 17
        assert numbers["buffered_records"] == 17
        assert numbers["assigned_partitions"] == 1
        assert numbers["fetches_total"] >= 1
        assert numbers["bytes_fetched_total"] > 100
        # The clock of uvloop counts whole milliseconds.
        assert 0 <= numbers["fetch_latency_ms_avg"] <= numbers["fetch_latency_ms_max"]
        assert (numbers["commits_total"], numbers["commit_failures_total"]) == (0, 0)
        assert numbers["rebalances_total"] == 1
        assert numbers["connections_open"] >= 1
        await consumer.commit()
        await take(consumer, 17)
        numbers = consumer.metrics()
        assert numbers["commits_total"] == 1
        assert numbers["records_consumed_total"] == 20
        assert (numbers["records_lag_max"], numbers["buffered_records"]) == (0, 0)
