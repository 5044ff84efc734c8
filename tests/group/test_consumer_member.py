"""Members in the consumer protocol (KIP-848) with the embedded broker: errors and recovery."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Close
from aiokafkawire.consumer import Consumer, SubscriptionPattern
from aiokafkawire.errors import (
    BrokerError,
    FencedInstanceId,
    GroupFailed,
    IllegalState,
    UnsupportedVersion,
)
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.consumer.helpers import QUICK, TIMEOUT_S, numbers, orders_broker, produce, read

from .test_member import Notes, Reader, until

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BROKER: dict[str, Any] = {
    "group_consumer_heartbeat_interval_ms": 50,
    "group_consumer_min_heartbeat_interval_ms": 50,
}
HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


def member(broker: Broker, **options: Any) -> Consumer:
    chosen = {"group_id": "g", "group_protocol": "consumer"}
    quick = {name: value for name, value in QUICK.items() if name != "heartbeat_interval_ms"}
    servers = broker.bootstrap_servers
    return Consumer("orders", bootstrap_servers=servers, **quick | chosen | options)


async def test_a_partition_that_moves_is_revoked_before_another_member_gets_it() -> None:
    async with (
        orders_broker(2, records=5, **BROKER) as broker,
        anyio.create_task_group() as tasks,
        member(broker) as one,
    ):
        notes = Notes()
        one.subscribe(["orders"], listener=notes)
        first = Reader(one)
        tasks.start_soon(first.run)
        await until(lambda: first.owned == 2)
        async with member(broker) as two:
            second = Reader(two)
            tasks.start_soon(second.run)
            await until(lambda: first.owned == second.owned == 1)
            await second.stop()

        def moves() -> list[tuple[str, list[TopicPartition]]]:
            # A new member epoch calls the listener too, without partitions.
            return [call for call in notes.calls if call[1]]

        await until(lambda: len(moves()) == 3)
        await first.stop()
        moved = moves()[1][1]
        assert len(moved) == 1
        assert moves() == [("assigned", [P0, P1]), ("revoked", moved), ("assigned", moved)]


@pytest.mark.parametrize(
    "fault",
    [
        Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        Answer(ErrorCode.NOT_COORDINATOR),
        Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        Close(),
    ],
    ids=["loading", "moved", "unavailable", "closed"],
)
async def test_a_heartbeat_is_repeated_until_the_coordinator_answers(fault: Any) -> None:
    async with orders_broker(records=5, **BROKER) as broker:
        failing = broker.on(HEARTBEAT, fault, times=2)
        async with member(broker) as reader:
            await read(reader, 5)
            await reader.commit()
            assert reader.assignment() == {P0}
    assert failing.hits == 2


async def test_a_fenced_member_joins_again() -> None:
    async with orders_broker(records=5, **BROKER) as broker, member(broker) as reader:
        notes = Notes()
        reader.subscribe(["orders"], listener=notes)
        await read(reader, 3)
        await reader.commit()
        broker.on(HEARTBEAT, Answer(ErrorCode.FENCED_MEMBER_EPOCH), times=1)
        with anyio.fail_after(TIMEOUT_S):
            while len(notes.calls) < 3:
                await reader.getmany(timeout_ms=10)
        assert notes.calls[:3] == [("assigned", [P0]), ("lost", [P0]), ("assigned", [P0])]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, BrokerError),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceId),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupFailed),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedVersion),
    ],
)
async def test_a_final_error_is_raised_and_names_the_group(
    code: ErrorCode, error: type[Exception]
) -> None:
    async with orders_broker(**BROKER) as broker:
        broker.on(HEARTBEAT, Answer(code))
        async with member(broker) as reader:
            with anyio.fail_after(TIMEOUT_S), pytest.raises(error) as raised:
                await reader.getone()
    assert getattr(raised.value, "group", None) == "g"


async def test_a_member_without_permission_for_a_topic_keeps_trying() -> None:
    async with orders_broker(records=1, **BROKER) as broker:
        broker.on(HEARTBEAT, Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)
        async with member(broker) as reader:
            with anyio.fail_after(TIMEOUT_S), pytest.raises(BrokerError, match="orders"):
                await reader.getone()
            assert len(await read(reader, 1)) == 1


async def test_a_pattern_is_matched_by_the_coordinator() -> None:
    async with orders_broker(records=2, **BROKER) as broker:
        await broker.create_topic("payments", 1)
        await produce(broker, "payments", 0, numbers(0, 1))
        reader = member(broker)
        reader.subscribe(SubscriptionPattern("pay.*"))
        assert reader.subscription() == frozenset()
        async with reader:
            assert [record.topic for record in await read(reader, 1)] == ["payments"]
            assert reader.subscription() == {"payments"}
            reader.subscribe(SubscriptionPattern("ord.*"))
            assert [record.topic for record in await read(reader, 2)] == ["orders"] * 2
            assert reader.subscription() == {"orders"}
            reader.subscribe(["payments"])
            await until(lambda: reader.subscription() == {"payments"})


async def test_a_pattern_of_the_coordinator_needs_the_consumer_protocol() -> None:
    async with orders_broker(records=1, **BROKER) as broker:
        broker.on(HEARTBEAT, Answer(ErrorCode.UNSUPPORTED_VERSION))
        async with member(broker, group_protocol="auto") as reader:
            await read(reader, 1)
            with pytest.raises(IllegalState, match="group_protocol"):
                reader.subscribe(SubscriptionPattern("ord.*"))
            assert reader.subscription() == {"orders"}
        with pytest.raises(IllegalState, match="group_protocol"):
            member(broker, group_protocol="classic").subscribe(SubscriptionPattern("ord.*"))


async def test_auto_uses_the_classic_protocol_if_the_coordinator_refuses() -> None:
    async with orders_broker(records=1, **BROKER) as broker:
        broker.on(HEARTBEAT, Answer(ErrorCode.UNSUPPORTED_VERSION))
        async with member(broker, group_protocol="auto") as reader:
            await read(reader, 1)
            assert reader.metrics()['group_protocol{protocol="classic"}'] == 1
        assert broker.requests.of(ApiKey.JOIN_GROUP)


@pytest.mark.parametrize("fault", [Answer(ErrorCode.NOT_COORDINATOR), Close()])
async def test_a_member_that_cannot_leave_is_closed_and_logs_the_reason(
    fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire")
    async with orders_broker(records=1, **BROKER) as broker, member(broker) as reader:
        await read(reader, 1)
        broker.on(HEARTBEAT, fault)
        with anyio.fail_after(TIMEOUT_S):
            await reader.stop()
    assert "but ConsumerGroupHeartbeat failed" in caplog.text


async def test_a_static_member_keeps_its_partitions_while_it_restarts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire")
    async with orders_broker(records=1, **BROKER) as broker:
        async with member(broker, group_instance_id="i") as reader:
            await read(reader, 1)
        assert "its partitions are kept for it" in caplog.text
        async with member(broker, group_instance_id="i") as reader:
            await produce(broker, "orders", 0, numbers(1, 2))
            (record,) = await read(reader, 1)
            assert record.value == b"1"
