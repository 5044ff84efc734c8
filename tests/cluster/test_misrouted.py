"""Connections that reach another node or another cluster (KIP-1242)."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker, SeenRequest
from aiokafkawire.cluster import Cluster, ToNode
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import Address
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.api_versions import ApiVersionsResponse
from aiokafkawire.wire.messages.describe_cluster import DescribeClusterRequest
from aiokafkawire.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests.cluster.scripted import cluster_client

pytestmark = pytest.mark.slow


def soon(seconds: float = 10.0) -> float:
    return anyio.current_time() + seconds


ASK = DescribeClusterRequest(include_cluster_authorized_operations=False)


def address(broker: Broker, node_id: int) -> Address:
    host, _, port = broker.bootstrap_servers.split(",")[node_id - 1].rpartition(":")
    return Address(host, int(port))


def swap_addresses(broker: Broker, times: int | None = 1) -> None:
    """Let Metadata responses list each of the two nodes at the address of the other."""

    def swapped(seen: SeenRequest) -> MetadataResponse:
        assert isinstance(seen.message, MetadataRequest)
        here, there = (address(broker, node) for node in (1, 2))
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=1, host=there.host, port=there.port),
                MetadataResponseBroker(node_id=2, host=here.host, port=here.port),
            ],
            cluster_id=broker.cluster_id,
            controller_id=1,
            topics=[],
        )

    broker.on(ApiKey.METADATA, swapped, times=times)


async def ask(cluster: Cluster, node_id: int) -> None:
    await cluster.request(ASK, to=ToNode(node_id), deadline=soon())


def asked(broker: Broker) -> list[int]:
    return [seen.node_id for seen in broker.requests if seen.api_key == ApiKey.DESCRIBE_CLUSTER]


def refused(broker: Broker) -> int:
    return sum(
        isinstance(seen.response, ApiVersionsResponse) and seen.response.error_code == 129
        for seen in broker.requests
    )


async def test_a_misrouted_connection_ends_in_a_rebootstrap(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aiokafkawire")
    async with (
        Broker(nodes=2, as_of="4.4") as broker,
        cluster_client(bootstrap_servers=broker.bootstrap_servers) as cluster,
    ):
        swap_addresses(broker)
        await cluster.start(soon())
        await ask(cluster, 2)
        assert asked(broker) == [2]
        assert refused(broker)
    assert sum("closing all connections" in text for text in caplog.messages) == 1


async def test_all_connections_are_closed() -> None:
    async with (
        Broker(nodes=2, as_of="4.4") as broker,
        cluster_client(bootstrap_servers=broker.bootstrap_servers) as cluster,
    ):
        await cluster.start(soon())
        await ask(cluster, 1)
        before = cluster.broker_client(1)
        there = address(broker, 1)
        update = cluster.metadata.with_node(2, there.host, there.port)
        cluster._metadata_updater.apply(update)
        await ask(cluster, 2)
        await ask(cluster, 1)
        assert asked(broker) == [1, 2, 1]
        assert cluster.broker_client(1) is not before
        assert not before.is_connected


@pytest.mark.parametrize(("as_of", "enabled"), [("4.4", False), ("4.3", True)])
async def test_without_the_check_the_other_node_answers(as_of: str, enabled: bool) -> None:
    async with (
        Broker(nodes=2, as_of=as_of) as broker,
        cluster_client(
            bootstrap_servers=broker.bootstrap_servers, metadata_cluster_check_enable=enabled
        ) as cluster,
    ):
        swap_addresses(broker)
        await cluster.start(soon())
        await ask(cluster, 2)
        assert asked(broker) == [1]
        assert not refused(broker)


async def test_wrong_bootstrap_metadata_is_retried_with_backoff() -> None:
    async with (
        Broker(nodes=2, as_of="4.4") as broker,
        cluster_client(
            bootstrap_servers=broker.bootstrap_servers,
            retry_backoff_ms=50,
            retry_backoff_max_ms=100,
            reconnect_backoff_ms=50,
            reconnect_backoff_max_ms=100,
        ) as cluster,
    ):
        swap_addresses(broker, times=None)
        await cluster.start(soon())
        with pytest.raises(KafkaError):
            await cluster.request(ASK, to=ToNode(2), deadline=soon(2.0))
        assert 2 <= refused(broker) <= 60


@pytest.mark.parametrize("as_of", ["4.4", None])
async def test_clients_go_on_with_a_new_cluster_at_the_same_address(as_of: str | None) -> None:
    """An embedded broker that restarts without data has another cluster id."""
    options: dict[str, Any] = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5}
    reading = options | {"auto_offset_reset": "earliest", "group_id": "g"}
    async with contextlib.AsyncExitStack() as stack:
        async with Broker(as_of=as_of) as broker:
            servers, port = broker.bootstrap_servers, address(broker, 1).port
            await broker.create_topic("t")
            first = broker.cluster_id
            producer = Producer(bootstrap_servers=servers, **options)
            consumer = Consumer("t", bootstrap_servers=servers, **reading)
            await stack.enter_async_context(producer)
            await stack.enter_async_context(consumer)
            await producer.send_and_wait("t", b"old")
        broker = await stack.enter_async_context(Broker(as_of=as_of, ports=[port]))
        stack.push_async_callback(consumer.stop)
        stack.push_async_callback(producer.stop)
        assert broker.cluster_id != first
        await broker.create_topic("t")
        await producer.send_and_wait("t", b"new")
        with anyio.fail_after(20):
            while (await consumer.getone()).value != b"new":
                pass
