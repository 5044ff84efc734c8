"""Consuming under faults: every record once and in order, and every call ends by its deadline."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Close, Delay, Drop
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import BrokerError, KafkaError, NoOffsetForPartition, UnknownTopic
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.behaviour.support import WITHIN_S, fill, numbered, take
from tests.elapsed import ends_within
from tests.faults.support import READER, fetch_errors, reading

pytestmark = pytest.mark.slow

NewTopic = Callable[..., Awaitable[str]]


@pytest.mark.parametrize(
    "action", [Drop(), Drop(carried_out=True), Close(), Close(carried_out=True)]
)
async def test_fetches_that_bring_nothing_are_repeated(
    broker: Broker, topic: str, action: Drop | Close
):
    await fill(broker.bootstrap_servers, topic, numbered(50))
    fault = broker.on(ApiKey.FETCH, action, times=2)
    async with reading(broker.bootstrap_servers, topic, max_poll_records=7) as consumer:
        assert [record.value for record in await take(consumer, 50)] == numbered(50)
    assert fault.hits == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
async def test_retriable_errors_of_a_partition(broker: Broker, topic: str, code: ErrorCode):
    await fill(broker.bootstrap_servers, topic, numbered(20))
    fault = broker.on(ApiKey.FETCH, fetch_errors(code), times=2)
    async with reading(broker.bootstrap_servers, topic) as consumer:
        assert [record.value for record in await take(consumer, 20)] == numbered(20)
    assert fault.hits == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
async def test_retriable_errors_of_a_whole_fetch(broker: Broker, topic: str, code: ErrorCode):
    await fill(broker.bootstrap_servers, topic, numbered(20))
    fault = broker.on(ApiKey.FETCH, Answer(code), times=2)
    async with reading(broker.bootstrap_servers, topic) as consumer:
        assert [record.value for record in await take(consumer, 20)] == numbered(20)
    assert fault.hits == 2


async def test_an_unauthorized_topic_is_reported_at_once(broker: Broker, topic: str):
    broker.on(ApiKey.FETCH, fetch_errors(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)
    async with reading(broker.bootstrap_servers, topic) as consumer:
        with ends_within(5), pytest.raises(BrokerError) as caught:
            await consumer.getone()
        assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (caught.value.topic, caught.value.api) == (topic, "Fetch")
        # It is reported once, and then tried again.
        await fill(broker.bootstrap_servers, topic, [b"allowed again"])
        assert [record.value for record in await take(consumer, 1)] == [b"allowed again"]


async def test_a_topic_that_stays_unauthorized_is_reported_again_without_extra_requests(
    broker: Broker, new_topic: NewTopic
):
    topic = await new_topic(partitions=3)
    fault = broker.on(ApiKey.FETCH, fetch_errors(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    async with reading(broker.bootstrap_servers, topic, 3) as consumer:
        for _ in range(3):
            with ends_within(5), pytest.raises(BrokerError):
                await consumer.getone()
        hits = fault.hits
        await consumer.end_offsets()
        assert fault.hits <= hits + 3  # fetches in flight
        fault.remove()
        await fill(broker.bootstrap_servers, topic, numbered(4), 1)
        values: list[bytes | None] = []
        with anyio.fail_after(WITHIN_S):
            while len(values) < 4:
                with contextlib.suppress(BrokerError):  # the error of the last response
                    values += [record.value for record in await take(consumer, 1)]
        assert values == numbered(4)


async def test_a_missing_partition_is_reported_and_rarely_requested(broker: Broker, topic: str):
    absent = TopicPartition(topic, 7)
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers, **READER | {"default_api_timeout_ms": 700}
    ) as consumer:
        consumer.assign([absent, (topic, 0)])
        broker.requests.clear()
        await fill(broker.bootstrap_servers, topic, numbered(3))
        assert len(await take(consumer, 3)) == 3  # the other partitions are read meanwhile
        for _ in range(2):
            with ends_within(5), pytest.raises(UnknownTopic, match="no partition 7") as caught:
                await consumer.getone()
            assert (caught.value.topic, caught.value.partition) == absent
        asked = [s for s in broker.requests.of(ApiKey.METADATA) if s.client_id == "aiokafkawire"]
        assert len(asked) < 20


async def test_leaders_that_move_while_reading(broker: Broker, new_topic: NewTopic):
    topic = await new_topic(partitions=2)
    for partition in range(2):
        await fill(broker.bootstrap_servers, topic, numbered(100), partition)
    values: dict[int, list[bytes | None]] = {0: [], 1: []}
    async with reading(broker.bootstrap_servers, topic, 2, max_poll_records=20) as consumer:
        while sum(map(len, values.values())) < 200:
            for record in await take(consumer, 1):
                values[record.partition].append(record.value)
            broker.move_leader(topic, 0, broker.leader(topic, 0) % 3 + 1)
        # Nothing is left that a moved leader would repeat.
        assert await consumer.getmany(timeout_ms=200) == {}
    assert values == {0: numbered(100), 1: numbered(100)}


async def test_nodes_that_die_and_come_back_while_reading(broker: Broker, new_topic: NewTopic):
    topic = await new_topic(partitions=3)
    for partition in range(3):
        await fill(broker.bootstrap_servers, topic, numbered(100), partition)
    values: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}
    async with reading(broker.bootstrap_servers, topic, 3, max_poll_records=25) as consumer:
        for node in (1, 2, 3):
            await broker.kill(node)
            for record in await take(consumer, 50):
                values[record.partition].append(record.value)
            await broker.restart(node)
        while sum(map(len, values.values())) < 300:
            for record in await take(consumer, 1):
                values[record.partition].append(record.value)
    assert values == dict.fromkeys(range(3), numbered(100))


async def test_a_reader_outlives_the_whole_cluster(broker: Broker, topic: str):
    await fill(broker.bootstrap_servers, topic, numbered(10))
    async with reading(broker.bootstrap_servers, topic) as consumer:
        assert [record.value for record in await take(consumer, 10)] == numbered(10)
        for node in (1, 2, 3):
            await broker.kill(node)
        with ends_within(3):
            assert await consumer.getmany(timeout_ms=300) == {}
        for node in (1, 2, 3):
            await broker.restart(node)
        await fill(broker.bootstrap_servers, topic, numbered(10, start=10))
        assert [record.value for record in await take(consumer, 10)] == numbered(10, start=10)


CALLS: dict[str, Callable[[Consumer, TopicPartition], Awaitable[object]]] = {
    "beginning_offsets": lambda consumer, one: consumer.beginning_offsets(one),
    "end_offsets": lambda consumer, one: consumer.end_offsets(one),
    "offsets_for_times": lambda consumer, one: consumer.offsets_for_times({one: 1}),
    "committed": lambda consumer, one: consumer.committed(one),
    "commit": lambda consumer, one: consumer.commit({one: 1}),
    "partitions_for": lambda consumer, one: consumer.partitions_for("not-known-yet"),
    "position": lambda consumer, one: consumer.position(one),
}


@pytest.mark.parametrize("call", CALLS)
async def test_with_a_hanging_broker_every_call_ends_by_its_deadline(
    broker: Broker, topic: str, group_id: str, call: str
):
    options = READER | {
        "group_id": group_id,
        "default_api_timeout_ms": 500,
        "close_timeout_ms": 300,
        "enable_auto_commit": False,
    }
    partition = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, **options) as consumer:
        await consumer.end_offsets(partition)
        for node in (1, 2, 3):
            broker.pause(node)
        consumer.assign([partition])
        with ends_within(3), pytest.raises(KafkaError) as caught:
            await CALLS[call](consumer, partition)
        assert caught.value.retriable
        assert isinstance(caught.value, TimeoutError)
    for node in (1, 2, 3):
        broker.resume(node)


async def test_getmany_ends_by_its_timeout_with_a_hanging_broker(broker: Broker, topic: str):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    async with reading(broker.bootstrap_servers, topic, close_timeout_ms=300) as consumer:
        for node in (1, 2, 3):
            broker.pause(node)
        with ends_within(2):
            assert await consumer.getmany(timeout_ms=300) == {}
        with anyio.move_on_after(0.3) as scope:
            await consumer.getone()
        assert scope.cancelled_caught
        for node in (1, 2, 3):
            broker.resume(node)
        assert [record.value for record in await take(consumer, 5)] == numbered(5)


async def test_a_slow_broker_is_waited_for(broker: Broker, topic: str):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    broker.on(ApiKey.FETCH, Delay(0.1), times=3)
    async with reading(broker.bootstrap_servers, topic, request_timeout_ms=5_000) as consumer:
        assert [record.value for record in await take(consumer, 5)] == numbered(5)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE])
async def test_offsets_are_asked_for_again_after_a_retriable_error(
    broker: Broker, topic: str, code: ErrorCode
):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    fault = broker.on(ApiKey.LIST_OFFSETS, Answer(code), times=2)
    partition = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, **READER) as consumer:
        assert await consumer.end_offsets(partition) == {partition: 5}
    assert fault.hits == 2


async def test_records_deleted_before_the_position_fall_to_the_policy(broker: Broker, topic: str):
    await fill(broker.bootstrap_servers, topic, numbered(10))
    broker.delete_records(topic, 0, 6)
    partition = TopicPartition(topic, 0)
    async with reading(broker.bootstrap_servers, topic) as consumer:
        consumer.seek(partition, 2)
        assert [record.value for record in await take(consumer, 4)] == numbered(4, start=6)
    async with reading(broker.bootstrap_servers, topic, auto_offset_reset="none") as consumer:
        consumer.seek(partition, 2)
        with anyio.fail_after(WITHIN_S), pytest.raises(NoOffsetForPartition) as caught:
            await consumer.getone()
        assert partition in caught.value.partitions


async def test_a_getone_cancelled_while_the_answer_is_on_its_way_loses_nothing(
    broker: Broker, topic: str
):
    await fill(broker.bootstrap_servers, topic, numbered(5))
    broker.on(ApiKey.FETCH, Delay(0.05), times=3)
    values = []
    async with reading(broker.bootstrap_servers, topic) as consumer:
        with anyio.fail_after(WITHIN_S):
            while len(values) < 5:
                with anyio.move_on_after(0.02):
                    values.append((await consumer.getone()).value)
    assert values == numbered(5)
