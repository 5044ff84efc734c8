from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Answer, Close
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import (
    BrokerError,
    ConnectionFailed,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
)
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.list_offsets import ListOffsetsResponse
from tests.short_timeouts import api_timeout

from .helpers import TIMEOUT_S, consumer, numbers, orders_broker, produce
from .record_data import P0, P1


async def ends(reader: Consumer, *tps: TopicPartition) -> dict[TopicPartition, int]:
    with anyio.fail_after(TIMEOUT_S):
        return await reader.end_offsets(*tps)


@pytest.mark.parametrize(
    "action",
    [
        Close(),
        Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Answer(ErrorCode.OFFSET_NOT_AVAILABLE),
        lambda seen_version: ListOffsetsResponse(topics=[]),
    ],
)
async def test_a_retriable_error_is_retried(action: Any) -> None:
    async with orders_broker(2, nodes=2) as broker:
        await produce(broker, "orders", 1, numbers(0, 3))
        async with consumer(broker) as reader:
            fault = broker.on(ApiKey.LIST_OFFSETS, action, times=2)
            if callable(action):
                with pytest.raises(Exception, match="does not contain the partition"):
                    await ends(reader, P0, P1)
                broker.clear_faults()
            assert await ends(reader, P0, P1) == {P0: 0, P1: 3}
            assert fault.hits == 2


@pytest.mark.slow
async def test_a_fatal_error_is_raised() -> None:
    async with orders_broker() as broker, consumer(broker) as reader:
        broker.on(ApiKey.LIST_OFFSETS, Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED") as refused:
            await ends(reader, P0)
        assert (refused.value.topic, refused.value.partition) == P0
        broker.on(ApiKey.LIST_OFFSETS, Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with api_timeout(reader, 500), pytest.raises(RequestTimedOut) as late:
            await ends(reader, P0)
        assert isinstance(late.value.__cause__, BrokerError)


async def test_a_backoff_past_the_deadline_hides_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with orders_broker() as broker, consumer(broker) as reader:
        cluster = reader._running.cluster
        looked_up = cluster.topic_metadata

        async def topic(name: str, deadline: float) -> object:
            if broker.requests.of(ApiKey.LIST_OFFSETS):
                raise RequestTimedOut("nothing was learnt")
            return await looked_up(name, deadline)

        monkeypatch.setattr(cluster, "topic_metadata", topic)
        broker.on(ApiKey.LIST_OFFSETS, Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(RequestTimedOut, match="no leader returned the offset") as late:
            await ends(reader, P0)
        assert isinstance(late.value.__cause__, BrokerError)


async def test_a_timeout_names_why_the_leader_was_not_asked() -> None:
    """Bootstrap works, but nothing listens at the address that the leader advertises."""
    async with orders_broker(advertised_host="127.0.0.2") as broker:
        servers = broker.bootstrap_servers.replace("127.0.0.2", "127.0.0.1")
        options = {"bootstrap_servers": servers, "group_id": None, "retry_backoff_ms": 10}
        async with Consumer(**options) as reader:
            reader.assign(P0)
            for ask in (reader.end_offsets, reader.position):
                with api_timeout(reader, 500), pytest.raises(RequestTimedOut) as late:
                    await ask(P0)
                assert "the last error: 127.0.0.2:" in str(late.value)
                assert "connection refused" in str(late.value)
                assert isinstance(late.value.__cause__, ConnectionFailed)


async def test_a_missing_partition_raises_before_the_deadline() -> None:
    async with orders_broker(auto_create_topics=False) as broker, consumer(broker) as reader:
        assert await ends(reader, P0) == {P0: 0}
        with api_timeout(reader, 400), pytest.raises(UnknownTopic, match="it has 1 partition"):
            await ends(reader, TopicPartition("orders", 7))
        with api_timeout(reader, 100), pytest.raises(UnknownTopic):
            await ends(reader, TopicPartition("nowhere", 0))


async def test_a_missing_partition_raises_soon_without_auto_creation() -> None:
    async with (
        orders_broker() as broker,
        consumer(broker, allow_auto_create_topics=False) as reader,
    ):
        with pytest.raises(UnknownTopic, match=r"no partition 1: it has 1 partition$"):
            await ends(reader, P0, P1)
        await broker.add_partitions("orders", 2)
        assert await ends(reader, P0, P1) == {P0: 0, P1: 0}


async def test_version_0_has_offsets_but_no_timestamps() -> None:
    async with (
        orders_broker(records=3) as broker,
        consumer(broker, api_version="0.9") as reader,
    ):
        assert await ends(reader, P0) == {P0: 3}
        assert await reader.beginning_offsets(P0) == {P0: 0}
        with pytest.raises(UnsupportedVersion):
            await reader.offsets_for_times({P0: 5})
