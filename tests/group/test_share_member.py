"""Members of share groups (KIP-932) with the embedded broker: errors and recovery."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType
from aiokafkawire.broker import Answer, Broker, Close
from aiokafkawire.errors import BrokerError, UnsupportedVersion
from aiokafkawire.share import ShareConsumer
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.consumer.helpers import QUICK, TIMEOUT_S, numbers, orders_broker, produce

BROKER: dict[str, Any] = {
    "group_share_heartbeat_interval_ms": 50,
    "group_share_min_heartbeat_interval_ms": 50,
}
OPTIONS = {
    name: value
    for name, value in QUICK.items()
    if name not in {"auto_offset_reset", "heartbeat_interval_ms"}
}
HEARTBEAT = ApiKey.SHARE_GROUP_HEARTBEAT


def member(broker: Broker, *topics: str) -> ShareConsumer:
    servers = broker.bootstrap_servers
    return ShareConsumer(*topics or ("orders",), bootstrap_servers=servers, group_id="g", **OPTIONS)


async def read_from_start(broker: Broker) -> None:
    """Let the group read from the beginning of its partitions."""
    group = ConfigResource(ConfigResourceType.GROUP, "g")
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        await admin.incremental_alter_configs({group: {"share.auto.offset.reset": "earliest"}})


async def read(reader: ShareConsumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    with anyio.fail_after(TIMEOUT_S):
        while len(values) < count:
            for records in (await reader.getmany(timeout_ms=100)).values():
                values += [record.value for record in records]
    return values


@pytest.mark.parametrize(
    "fault",
    [Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), Answer(ErrorCode.NOT_COORDINATOR), Close()],
    ids=["loading", "moved", "closed"],
)
async def test_a_heartbeat_is_repeated_until_the_coordinator_answers(fault: Any) -> None:
    async with orders_broker(records=3, **BROKER) as broker:
        await read_from_start(broker)
        failing = broker.on(HEARTBEAT, fault, times=2)
        async with member(broker) as reader:
            assert await read(reader, 3) == numbers(0, 3)
    assert failing.hits == 2


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
async def test_a_removed_member_joins_again(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.group")
    async with orders_broker(records=2, **BROKER) as broker:
        await read_from_start(broker)
        async with member(broker) as reader:
            await read(reader, 2)
            broker.on(HEARTBEAT, Answer(code), times=1)
            with anyio.fail_after(TIMEOUT_S):
                while caplog.text.count("assigned 1 partition: orders [0]") < 2:
                    assert await reader.getmany(timeout_ms=10) == {}
            await produce(broker, "orders", 0, numbers(2, 4))
            assert await read(reader, 2) == numbers(2, 4)


async def test_a_topic_that_is_created_later_is_read() -> None:
    async with orders_broker(auto_create_topics=False, **BROKER) as broker:
        await read_from_start(broker)
        async with member(broker, "orders", "payments") as reader:
            await reader.getmany(timeout_ms=10)
            await broker.create_topic("payments", 1)
            await produce(broker, "payments", 0, numbers(0, 2))
            assert await read(reader, 2) == numbers(0, 2)


async def test_a_member_without_permission_for_a_topic_keeps_trying() -> None:
    async with orders_broker(records=1, **BROKER) as broker:
        await read_from_start(broker)
        broker.on(HEARTBEAT, Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)
        async with member(broker) as reader:
            with anyio.fail_after(TIMEOUT_S), pytest.raises(BrokerError, match="orders") as raised:
                await reader.getmany(timeout_ms=TIMEOUT_S * 1000)
            assert raised.value.group == "g"
            assert await read(reader, 1) == numbers(0, 1)


async def test_a_broker_without_share_groups_is_named_with_the_release_needed() -> None:
    async with orders_broker(as_of="4.0") as broker, member(broker) as reader:
        with anyio.fail_after(TIMEOUT_S), pytest.raises(UnsupportedVersion, match=r"Kafka 4\.2"):
            await reader.getmany(timeout_ms=TIMEOUT_S * 1000)


@pytest.mark.parametrize(
    "fault", [Answer(ErrorCode.GROUP_AUTHORIZATION_FAILED), Close()], ids=["refused", "closed"]
)
async def test_a_member_that_cannot_leave_is_closed_and_logs_the_reason(
    fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire.group")
    async with orders_broker(records=1, **BROKER) as broker:
        await read_from_start(broker)
        async with member(broker) as reader:
            await read(reader, 1)
            broker.on(HEARTBEAT, fault)
            with anyio.fail_after(TIMEOUT_S):
                await reader.stop()
    assert "but ShareGroupHeartbeat failed" in caplog.text
