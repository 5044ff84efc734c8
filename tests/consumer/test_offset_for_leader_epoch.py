"""Positions in truncated logs: validated by OffsetForLeaderEpoch and by fetches."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Close
from aiokafkawire.errors import BrokerError, LogTruncated
from aiokafkawire.producer import Producer
from aiokafkawire.types import OffsetAndMetadata
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse

from .helpers import TIMEOUT_S, consumer, numbers, orders_broker, produce, read
from .record_data import P0, P1


async def test_a_new_leader_is_asked_once_before_it_is_fetched_from() -> None:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("orders", 2, 2)
        for partition in (0, 1):
            await produce(broker, "orders", partition, numbers(0, 3))
        async with consumer(broker, group_id="g") as reader:
            reader.assign([P0, P1])
            await read(reader, 6)
            assert broker.requests.of(ApiKey.OFFSET_FOR_LEADER_EPOCH) == []
            for partition in (0, 1):
                broker.move_leader("orders", partition, 3 - broker.leader("orders", partition))
                await produce(broker, "orders", partition, numbers(3, 5))
            assert sorted(record.offset for record in await read(reader, 4)) == [3, 3, 4, 4]
            asked = [
                (p.leader_epoch, p.current_leader_epoch)
                for seen in broker.requests.of(ApiKey.OFFSET_FOR_LEADER_EPOCH)
                for t in seen.message.topics
                for p in t.partitions
            ]
            assert {epoch for epoch, _ in asked} == {0}
            assert {current for _, current in asked} == {1}


async def test_a_truncated_log_raises_until_a_seek() -> None:
    async with orders_broker() as broker:
        await produce(broker, "orders", 0, numbers(0, 10), each=2)
        async with consumer(broker, auto_offset_reset="none") as reader:
            reader.assign([P0])
            reader.seek(P0, 0)
            await read(reader, 10)
            broker.truncate("orders", 0, 6)
            with anyio.fail_after(TIMEOUT_S):
                for _ in range(2):
                    with pytest.raises(LogTruncated) as caught:
                        await reader.getone()
            error = caught.value
            assert (error.topic, error.partition, error.offset) == (*P0, 10)
            assert (error.diverging_offset, error.leader_epoch) == (6, 0)
            assert await reader.position(P0) == 10
            await produce(broker, "orders", 0, numbers(100, 103))
            reader.seek(P0, error.diverging_offset or 0)
            assert [record.value for record in await read(reader, 3)] == numbers(100, 103)


@pytest.mark.parametrize("policy", ["earliest", "latest"])
async def test_a_policy_continues_where_the_log_was_truncated(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with orders_broker() as broker:
        await produce(broker, "orders", 0, numbers(0, 10), each=2)
        async with consumer(broker, auto_offset_reset=policy) as reader:
            reader.assign([P0])
            reader.seek(P0, 0)
            await read(reader, 10)
            broker.truncate("orders", 0, 6)
            await produce(broker, "orders", 0, numbers(100, 106))
            assert [(r.offset, r.value) for r in await read(reader, 6)] == list(
                enumerate(numbers(100, 106), 6)
            )
    assert caplog.text.count("the log was truncated") == 1


async def test_fetched_records_that_were_truncated_are_not_delivered() -> None:
    async with orders_broker() as broker:
        await produce(broker, "orders", 0, numbers(0, 10), each=2)
        async with consumer(broker, auto_offset_reset="none") as reader:
            reader.assign([P0])
            reader.seek(P0, 0)
            assert list(await reader.getmany(timeout_ms=20_000, max_records=3))
            broker.truncate("orders", 0, 6)
            await produce(broker, "orders", 0, numbers(100, 102))
            # Only a fetch detects it: until then records fetched before may be delivered.
            await broker.wait_for_request(ApiKey.OFFSET_FOR_LEADER_EPOCH, count=2)
            records = await read(reader, 5)
            assert [record.value for record in records] == [*numbers(3, 6), *numbers(100, 102)]


async def test_a_committed_leader_epoch_detects_a_truncation() -> None:
    async with orders_broker() as broker:
        await produce(broker, "orders", 0, numbers(0, 10), each=2)
        async with consumer(broker, group_id="g", enable_auto_commit=False) as reader:
            reader.assign([P0])
            await read(reader, 10)
            await reader.commit()
            assert (await reader.committed(P0))[P0] == OffsetAndMetadata(10, leader_epoch=0)
        broker.truncate("orders", 0, 4)
        await produce(broker, "orders", 0, numbers(100, 109))
        async with consumer(broker, group_id="g", auto_offset_reset="none") as reader:
            reader.assign([P0])
            with anyio.fail_after(TIMEOUT_S), pytest.raises(LogTruncated) as caught:
                await reader.getone()
            assert (caught.value.offset, caught.value.diverging_offset) == (10, 4)


async def test_a_fetch_detects_a_truncation_without_epoch_validation() -> None:
    async with orders_broker(records=3) as broker:
        unwilling = Answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, unwilling)
        async with consumer(broker, auto_offset_reset="none") as reader:
            reader.assign([P0])
            reader.seek(P0, 0)
            await read(reader, 3)
            broker.truncate("orders", 0, 0)
            await produce(broker, "orders", 0, numbers(5, 6))
            with anyio.fail_after(TIMEOUT_S), pytest.raises(LogTruncated) as caught:
                await reader.getone()
            assert (caught.value.offset, caught.value.diverging_offset) == (3, 0)


@pytest.mark.parametrize(
    "action",
    [
        Close(),
        Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Answer(ErrorCode.FENCED_LEADER_EPOCH),
        Answer(ErrorCode.UNKNOWN_LEADER_EPOCH),
        Answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_validation_is_repeated_until_it_succeeds(action: Any) -> None:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("orders", 1, 2)
        await produce(broker, "orders", 0, numbers(0, 3))
        async with consumer(broker, "orders") as reader:
            await read(reader, 3)
            fault = broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, action, times=2)
            broker.move_leader("orders", 0, 3 - broker.leader("orders", 0))
            await produce(broker, "orders", 0, numbers(3, 5))
            assert [record.offset for record in await read(reader, 2)] == [3, 4]
            assert fault.hits == 2


async def test_a_fatal_validation_error_is_raised_and_the_validation_repeated() -> None:
    async with Broker(nodes=2) as broker:
        await broker.create_topic("orders", 1, 2)
        await produce(broker, "orders", 0, numbers(0, 3))
        async with consumer(broker, "orders") as reader:
            await read(reader, 3)
            refusal = Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, refusal, times=1)
            broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda seen: _nothing(), times=1)
            broker.move_leader("orders", 0, 3 - broker.leader("orders", 0))
            await produce(broker, "orders", 0, numbers(3, 5))
            with anyio.fail_after(TIMEOUT_S):
                with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                    await reader.getone()
                with pytest.raises(Exception, match="does not contain the partition"):
                    await reader.getone()
            assert [record.offset for record in await read(reader, 2)] == [3, 4]


def _nothing() -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(topics=[])


async def test_a_committed_epoch_newer_than_the_metadata_waits_for_updates() -> None:
    async with (
        orders_broker(records=3) as broker,
        consumer(broker, group_id="g", auto_offset_reset="none") as reader,
    ):
        reader.assign([P0])
        reader.seek(P0, OffsetAndMetadata(2, leader_epoch=7))
        with anyio.fail_after(TIMEOUT_S), pytest.raises(LogTruncated) as caught:
            await reader.getone()
        assert (caught.value.offset, caught.value.diverging_offset) == (2, None)


@pytest.mark.parametrize("code", [None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
async def test_brokers_without_epoch_validation_are_fetched_from(code: ErrorCode | None) -> None:
    async with Broker(nodes=2, as_of="4.3" if code else "2.0") as broker:
        await broker.create_topic("orders", 1, 2)
        if code is not None:
            broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, Answer(code))
        async with (
            Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
            consumer(broker, "orders") as reader,
        ):
            await producer.send_and_wait("orders", b"1")
            await read(reader, 1)
            broker.move_leader("orders", 0, 3 - broker.leader("orders", 0))
            await producer.send_and_wait("orders", b"2")
            assert [record.value for record in await read(reader, 1)] == [b"2"]


@pytest.mark.parametrize(
    ("release", "asked"),
    [("0.10.1", 0), ("1.1", 0), ("2.0", 0), ("2.1", 1), ("2.7", 1), ("4.3", 1)],
)
@pytest.mark.slow
async def test_a_leader_may_move_in_every_release(release: str, asked: int) -> None:
    async with Broker(nodes=2, as_of=release) as broker:
        await broker.create_topic("orders", 1, 2)
        options = {"bootstrap_servers": broker.bootstrap_servers, "enable_idempotence": False}
        async with Producer(**options) as producer, consumer(broker, "orders") as reader:
            for value in numbers(0, 3):
                await producer.send_and_wait("orders", value)
            await read(reader, 3)
            broker.move_leader("orders", 0, 3 - broker.leader("orders", 0))
            for value in numbers(3, 5):
                await producer.send_and_wait("orders", value)
            assert [record.value for record in await read(reader, 2)] == numbers(3, 5)
        assert len(broker.requests.of(ApiKey.OFFSET_FOR_LEADER_EPOCH)) == asked


async def test_position_returns_after_validation() -> None:
    async with orders_broker() as broker:
        await produce(broker, "orders", 0, numbers(0, 10), each=2)
        async with consumer(broker) as reader:
            reader.assign([P0])
            await read(reader, 10)
            validated = anyio.Event()

            async def hold(seen: Any) -> None:
                await validated.wait()

            broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, hold, times=1)
            broker.truncate("orders", 0, 6)
            await broker.wait_for_request(ApiKey.OFFSET_FOR_LEADER_EPOCH)
            validated.set()
            assert await reader.position(P0) == 6
