"""Sending: return values, stored records, acknowledgements."""

from __future__ import annotations

import time

import anyio
import pytest

from aiokafkawire.errors import BufferFull, RecordTooLarge, RequestTimedOut, UnknownTopic
from aiokafkawire.producer import Producer
from aiokafkawire.types import RecordMetadata, TimestampType
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs
from tests.behaviour.support import WITHIN_S, numbered, reading, stored, take
from tests.elapsed import ends_within

FOREVER_MS = 60_000
"""A linger longer than any test."""


@needs("timestamps")
async def test_send_and_wait_returns_partition_and_offset(bootstrap_servers: str, topic: str):
    before_ms = time.time_ns() // 1_000_000
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        first = await producer.send_and_wait(topic, b"one", key=b"k")
        second = await producer.send_and_wait(topic, b"two", key=b"k")
    assert isinstance(first, RecordMetadata)
    assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
    assert second.offset == 1
    assert before_ms <= first.timestamp_ms <= time.time_ns() // 1_000_000
    records = await stored(bootstrap_servers, topic)
    assert [(r.offset, r.key, r.value) for r in records] == [(0, b"k", b"one"), (1, b"k", b"two")]
    assert records[0].timestamp_ms == first.timestamp_ms


async def test_send_returns_before_the_delivery_which_may_be_awaited_often(
    bootstrap_servers: str, topic: str
):
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        delivery = await producer.send(topic, b"value")
        assert not delivery.done
        await producer.flush()
        assert delivery.done
        assert (await delivery) == (await delivery)
        assert (await delivery).offset == 0


async def test_the_deliveries_of_a_batch_have_offsets_of_their_own(
    bootstrap_servers: str, topic: str
):
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=20) as producer:
        deliveries = [await producer.send(topic, value) for value in numbered(50)]
        receipts = [await delivery for delivery in deliveries]
    assert [receipt.offset for receipt in receipts] == list(range(50))


async def test_send_nowait_needs_no_await_once_the_topic_is_known(
    bootstrap_servers: str, topic: str
):
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"first")
        deliveries = [producer.send_nowait(topic, value) for value in numbered(10)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 11))
    assert len(await stored(bootstrap_servers, topic)) == 11


async def test_send_many_sends_columns(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(partitions=3)
    values = numbered(1_000)
    keys = [value[-1:] for value in values]
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.send_many(topic, values, keys=keys)
        await producer.flush()
        records = await stored(bootstrap_servers, topic, 3)
    assert sorted(record.value for record in records) == values
    assert all(record.key == record.value[-1:] for record in records)
    for key in set(keys):
        of_key = [record for record in records if record.key == key]
        assert len({record.partition for record in of_key}) == 1
        assert [record.value for record in of_key] == sorted(record.value for record in of_key)


async def test_send_many_without_keys_keeps_every_value(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=2)
    async with Producer(bootstrap_servers=bootstrap_servers, batch_size_bytes=500) as producer:
        await producer.send_many(topic, numbered(300))
    records = await stored(bootstrap_servers, topic, 2)
    assert sorted(record.value for record in records) == numbered(300)
    assert {record.key for record in records} == {None}


async def test_flush_does_not_wait_for_linger(bootstrap_servers: str, topic: str):
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        deliveries = [await producer.send(topic, value) for value in numbered(5)]
        with anyio.fail_after(WITHIN_S):
            await producer.flush()
        assert all(delivery.done for delivery in deliveries)
        assert len(await stored(bootstrap_servers, topic)) == 5


async def test_a_record_lingers_until_its_batch_is_full(bootstrap_servers: str, topic: str):
    async with Producer(
        bootstrap_servers=bootstrap_servers, linger_ms=FOREVER_MS, batch_size_bytes=1_000
    ) as producer:
        first = await producer.send(topic, b"a" * 600)
        assert await stored(bootstrap_servers, topic) == []
        assert not first.done
        second = await producer.send(topic, b"b" * 600)
        with anyio.fail_after(WITHIN_S):
            assert (await first).offset == 0
        assert not second.done


async def test_linger_ends_by_itself(bootstrap_servers: str, topic: str):
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=100) as producer:
        began = anyio.current_time()
        with ends_within(WITHIN_S):
            delivery = await producer.send(topic, b"alone")
            await delivery
        assert anyio.current_time() - began >= 0.08


async def test_acks_0_returns_no_offset_but_stores_the_record(bootstrap_servers: str, topic: str):
    async with Producer(bootstrap_servers=bootstrap_servers, acks=0) as producer:
        receipt = await producer.send_and_wait(topic, b"fire and forget")
        assert (receipt.partition, receipt.offset) == (0, -1)
        with anyio.fail_after(WITHIN_S):
            while not (records := await stored(bootstrap_servers, topic)):
                pass
    assert [record.value for record in records] == [b"fire and forget"]


@pytest.mark.parametrize("acks", [1, "all", -1])
async def test_acknowledged_records_have_an_offset(
    bootstrap_servers: str, topic: str, acks: int | str
):
    async with Producer(bootstrap_servers=bootstrap_servers, acks=acks) as producer:
        assert (await producer.send_and_wait(topic, b"value")).offset == 0
    # With acks=1 it may be visible only once the followers have it.
    async with reading(bootstrap_servers, topic) as consumer:
        assert [record.value for record in await take(consumer, 1)] == [b"value"]


@pytest.mark.parametrize("idempotent", [pytest.param(True, marks=needs("idempotence")), False])
async def test_idempotent_or_not_all_is_stored_once(
    bootstrap_servers: str, new_topic: NewTopic, idempotent: bool
):
    topic = await new_topic(partitions=3)
    async with Producer(
        bootstrap_servers=bootstrap_servers, enable_idempotence=idempotent, batch_size_bytes=200
    ) as producer:
        for number, value in enumerate(numbered(200)):
            await producer.send(topic, value, partition=number % 3)
    records = await stored(bootstrap_servers, topic, 3)
    assert sorted(record.value for record in records) == numbered(200)


@pytest.mark.parametrize(
    "codec",
    [
        "none",
        "gzip",
        "snappy",
        pytest.param("lz4", marks=needs("LZ4")),
        pytest.param("zstd", marks=needs("Zstandard")),
    ],
)
async def test_every_codec_brings_back_what_was_sent(
    bootstrap_servers: str, topic: str, codec: str
):
    values = [b"line %d of the same text over and over; " % n * 20 for n in range(50)]
    async with Producer(bootstrap_servers=bootstrap_servers, compression_type=codec) as producer:
        for value in values:
            await producer.send(topic, value, key=b"key")
    records = await stored(bootstrap_servers, topic)
    assert [record.value for record in records] == values
    assert {record.key for record in records} == {b"key"}


@needs("headers")
async def test_headers_keep_order_repetition_and_null(bootstrap_servers: str, topic: str):
    headers = [("trace", b"1"), ("näme", b""), ("trace", b"2"), ("gone", None)]
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"with", headers=headers)
        await producer.send_and_wait(topic, b"without")
    records = await stored(bootstrap_servers, topic)
    assert list(records[0].headers) == headers
    assert list(records[1].headers) == []


@needs("timestamps")
async def test_a_given_timestamp_is_kept(bootstrap_servers: str, topic: str):
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        receipt = await producer.send_and_wait(topic, b"old", timestamp_ms=1_000_000_000_123)
    assert receipt.timestamp_ms == 1_000_000_000_123
    [record] = await stored(bootstrap_servers, topic)
    assert record.timestamp_ms == 1_000_000_000_123
    assert record.timestamp_type == TimestampType.CREATE_TIME


@needs("headers")
async def test_send_many_takes_a_time_and_headers_for_each_record(
    bootstrap_servers: str, topic: str
):
    times = [1_000_000_000_000 + 1_000 * number for number in (5, 1, 9)]
    headers = [[("n", b"%d" % number)] for number in range(3)]
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        deliveries = await producer.send_many(
            topic, numbered(3), timestamps_ms=times, headers=headers
        )
        assert [(await delivery).timestamp_ms for delivery in deliveries] == times
    records = await stored(bootstrap_servers, topic)
    assert [record.timestamp_ms for record in records] == times
    assert [list(record.headers) for record in records] == headers


@needs("timestamps")
async def test_a_topic_with_log_append_time_sets_the_brokers_time(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        receipt = await producer.send_and_wait(topic, b"v", timestamp_ms=1_000_000_000_123)
    [record] = await stored(bootstrap_servers, topic)
    assert record.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert record.timestamp_ms == receipt.timestamp_ms > 1_600_000_000_000


async def test_null_and_empty_values_differ(bootstrap_servers: str, topic: str):
    sent = [(None, None), (b"k", None), (None, b""), (b"", b"v"), (b"", b"")]
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for key, value in sent:
            await producer.send_and_wait(topic, value, key=key)
    records = await stored(bootstrap_servers, topic)
    assert [(record.key, record.value) for record in records] == sent


@pytest.mark.slow
async def test_order_holds_per_partition_with_many_requests_in_flight(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(partitions=2)
    async with Producer(
        bootstrap_servers=bootstrap_servers, batch_size_bytes=100, linger_ms=0
    ) as producer:
        for number, value in enumerate(numbered(1_000)):
            await producer.send(topic, value, partition=number % 2)
    records = await stored(bootstrap_servers, topic, 2)
    for parity in (0, 1):
        of_partition = [record.value for record in records if record.partition == parity]
        assert of_partition == numbered(1_000)[parity::2]


async def test_tasks_that_send_at_the_same_time_lose_nothing(bootstrap_servers: str, topic: str):
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:

        async def send_some(worker: int) -> None:
            for number in range(20):
                await producer.send_and_wait(topic, b"%d-%02d" % (worker, number))

        async with anyio.create_task_group() as group:
            for worker in range(8):
                group.start_soon(send_some, worker)
    values = [record.value for record in await stored(bootstrap_servers, topic)]
    assert sorted(values) == [b"%d-%02d" % (w, n) for w in range(8) for n in range(20)]
    for worker in range(8):
        own = [value for value in values if value.startswith(b"%d-" % worker)]
        assert own == sorted(own)


async def test_a_record_over_the_limit_is_refused_at_the_call(bootstrap_servers: str, topic: str):
    async with Producer(
        bootstrap_servers=bootstrap_servers, max_request_size_bytes=10_000
    ) as producer:
        with pytest.raises(RecordTooLarge, match="max_request_size_bytes") as caught:
            await producer.send(topic, b"x" * 20_000)
        assert caught.value.topic == topic
        assert caught.value.size_bytes is not None
        assert caught.value.size_bytes > 20_000
        await producer.send_and_wait(topic, b"x" * 9_000)
    assert [len(record.value) for record in await stored(bootstrap_servers, topic)] == [9_000]


@needs("topic settings")
async def test_a_record_over_the_brokers_limit_fails_its_delivery(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(configs={"max.message.bytes": "1000"})
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        with pytest.raises(RecordTooLarge) as caught:
            await producer.send_and_wait(topic, b"x" * 2_000)
        assert caught.value.topic == topic
        assert (await producer.send_and_wait(topic, b"fits")).offset == 0


@needs("topic settings")
async def test_a_batch_over_the_brokers_limit_is_split(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(configs={"max.message.bytes": "1000"})
    values = [b"%03d" % n + b"x" * 97 for n in range(60)]
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        deliveries = [await producer.send(topic, value) for value in values]
        await producer.flush()
        assert [(await delivery).offset for delivery in deliveries] == list(range(60))
    assert [record.value for record in await stored(bootstrap_servers, topic)] == values


async def test_wrong_types_are_refused_at_the_call(bootstrap_servers: str, topic: str):
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for wrong in (
            {"value": "text"},
            {"value": 7},
            {"value": b"v", "key": "text"},
            {"value": b"v", "key": 1.5},
            {"value": b"v", "headers": [("name", "text")]},
            {"value": b"v", "headers": [(b"name", b"bytes")]},
            {"value": b"v", "partition": "0"},
            {"value": b"v", "timestamp_ms": "now"},
        ):
            with pytest.raises(TypeError):
                await producer.send(topic, **wrong)
            with pytest.raises(TypeError):
                producer.send_nowait(topic, **wrong)
        with pytest.raises(TypeError):
            await producer.send(b"topic", b"v")
        with pytest.raises(TypeError):
            await producer.send_many(topic, [b"fine", "text"])
        assert (await producer.send_and_wait(topic, b"v")).offset in {0, 1}


async def test_an_unknown_topic_is_made_on_demand(bootstrap_servers: str, group_id: str):
    topic = f"made-for-{group_id}"
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        assert (await producer.send_and_wait(topic, b"first")).offset == 0
    assert [r.value for r in await stored(bootstrap_servers, topic, 2)] == [b"first"]


@pytest.mark.slow
async def test_an_unknown_topic_fails_by_max_block_with_creation_off(
    bootstrap_servers: str, group_id: str
):
    topic = f"never-made-{group_id}"
    async with Producer(
        bootstrap_servers=bootstrap_servers, allow_auto_create_topics=False, max_block_ms=300
    ) as producer:
        with ends_within(2), pytest.raises(UnknownTopic, match=topic):
            await producer.send(topic, b"value")


async def test_a_topic_name_that_kafka_forbids_is_refused(bootstrap_servers: str):
    async with Producer(bootstrap_servers=bootstrap_servers, max_block_ms=1_000) as producer:
        for name in ("no spaces", "", ".", "a" * 300):
            with ends_within(3), pytest.raises(Exception, match=r"(?i)topic"):
                await producer.send(name, b"value")


async def test_send_nowait_says_when_the_buffer_is_full(bootstrap_servers: str, topic: str):
    async with Producer(
        bootstrap_servers=bootstrap_servers, buffer_memory_bytes=50_000, linger_ms=FOREVER_MS
    ) as producer:
        await producer.send(topic, b"first")
        taken = 1
        while taken < 100:
            try:
                producer.send_nowait(topic, b"x" * 1_000)
            except BufferFull:
                break
            taken += 1
        assert 10 < taken < 60
    assert len(await stored(bootstrap_servers, topic)) == taken


async def test_send_waits_for_room_in_a_full_buffer(bootstrap_servers: str, topic: str):
    values = [b"%05d" % n + b"x" * 995 for n in range(300)]
    async with Producer(
        bootstrap_servers=bootstrap_servers, buffer_memory_bytes=40_000, linger_ms=FOREVER_MS
    ) as producer:
        with anyio.fail_after(WITHIN_S):
            for value in values:
                await producer.send(topic, value)
    assert [record.value for record in await stored(bootstrap_servers, topic)] == values


async def test_send_gives_up_when_there_is_no_room_within_max_block(
    bootstrap_servers: str, topic: str
):
    async with Producer(
        bootstrap_servers=bootstrap_servers,
        buffer_memory_bytes=5_000,
        linger_ms=FOREVER_MS,
        max_block_ms=5_000,
    ) as producer:
        assert await producer.partitions_for(topic) == (0,)
        for _ in range(4):
            producer.send_nowait(topic, b"x" * 1_000)
        with pytest.raises(BufferFull):
            producer.send_nowait(topic, b"x" * 1_000)
        # A send that waits for buffer memory does not wait for linger.
        with anyio.fail_after(WITHIN_S):
            await producer.send(topic, b"x" * 1_000)
    assert len(await stored(bootstrap_servers, topic)) == 5


async def test_flush_may_have_a_deadline_and_the_records_stay_on_their_way(
    bootstrap_servers: str, topic: str
):
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        deliveries = [await producer.send(topic, value) for value in numbered(3)]
        with pytest.raises(RequestTimedOut, match="flush"):
            await producer.flush(timeout_s=0)
        await producer.flush()
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]


@pytest.mark.slow
async def test_many_new_topics_one_after_the_other(bootstrap_servers: str, group_id: str):
    topics = [f"{group_id}-{number}" for number in range(15)]
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        with anyio.fail_after(WITHIN_S):
            for topic in topics:
                assert (await producer.send_and_wait(topic, b"first")).offset == 0
            for topic in topics:
                assert (await producer.send_and_wait(topic, b"other")).topic == topic


async def test_two_producers_share_a_partition_and_each_keeps_its_order(
    bootstrap_servers: str, topic: str
):
    async def send_all(name: bytes) -> None:
        async with Producer(
            bootstrap_servers=bootstrap_servers, batch_size_bytes=100, linger_ms=0
        ) as producer:
            for value in numbered(100):
                await producer.send(topic, name + value)

    async with anyio.create_task_group() as group:
        group.start_soon(send_all, b"a")
        group.start_soon(send_all, b"b")
    values = [record.value for record in await stored(bootstrap_servers, topic)]
    for name in (b"a", b"b"):
        assert [v for v in values if v.startswith(name)] == [name + v for v in numbered(100)]


async def test_producer_metrics(bootstrap_servers: str, topic: str):
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        for value in numbered(10):
            await producer.send(topic, value)
        before = producer.metrics()
        assert before["buffer_used_bytes"] > 10 * len(numbered(1)[0])
        assert before["batches_unfinished"] == 1
        assert before["records_delivered_total"] == 0
        await producer.flush()
        after = producer.metrics()
    assert list(after) == list(before)
    assert after["records_delivered_total"] == 10
    assert after["batches_sent_total"] == 1
    assert after["buffer_used_bytes"] == after["batches_unfinished"] == 0
    assert after["requests_total"] > before["requests_total"] > 0


@pytest.mark.slow
async def test_a_cancelled_send_and_wait_neither_loses_nor_repeats(
    bootstrap_servers: str, topic: str
):
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=FOREVER_MS) as producer:
        # A send cancelled during the topic lookup would not be in the buffer.
        await producer.partitions_for(topic)
        for value in numbered(5):
            with anyio.move_on_after(0.05) as scope:
                await producer.send_and_wait(topic, value)
            assert scope.cancelled_caught
        await producer.send(topic, b"after")
        await producer.flush()
    values = [record.value for record in await stored(bootstrap_servers, topic)]
    assert values == [*numbered(5), b"after"]
