"""GetTelemetrySubscriptions and PushTelemetry (KIP-714)."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.broker import Broker, ClientMetrics
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.configs import ConfigResourceType, DynamicConfigs
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.telemetry import MAX_INSTANCES, ClientAttributes, ClientTelemetry
from aiokafkawire.records.compression import Compression, compress
from aiokafkawire.wire import ZERO_UUID, ApiKey, ErrorCode
from aiokafkawire.wire.messages.api_versions import ApiVersionsRequest
from aiokafkawire.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from aiokafkawire.wire.messages.push_telemetry import PushTelemetryRequest
from aiokafkawire.wire.otlp import (
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    Temporality,
    encode_metrics_data,
)

from .raw_client import RawClient, connected
from .threaded_broker import repeat_until, threaded_broker

E = ErrorCode
ME = UUID(int=7)
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(client_telemetry=True) as broker:
        yield broker


def subscribe(broker: Broker, name: str, **configs: str) -> None:
    broker._running.cluster.dynamic_configs.replace(
        ConfigResourceType.CLIENT_METRICS,
        name,
        {key.replace("_", "."): value for key, value in configs.items()},
    )


async def subscription(client: RawClient, instance: UUID = ME) -> Any:
    return await client.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance), 0)


async def push(
    client: RawClient,
    number: int,
    metrics: bytes = b"m",
    *,
    compression: int = 0,
    terminating: bool = False,
    instance: UUID = ME,
) -> int:
    request = PushTelemetryRequest(
        client_instance_id=instance,
        subscription_id=number,
        terminating=terminating,
        compression_type=compression,
        metrics=metrics,
    )
    code: int = (await client.call(request, 0)).error_code
    return code


async def software(client: RawClient, name: str) -> set[ApiKey]:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.2")
    response = await client.call(request, 4)
    return {each.api_key for each in response.api_keys}


async def test_the_apis_are_listed_on_demand(broker: Broker) -> None:
    async with connected(broker) as client:
        assert await software(client, "raw") >= TELEMETRY
    async with Broker() as without, connected(without) as client:
        assert not await software(client, "raw") & TELEMETRY


async def test_without_subscriptions_nothing_is_pushed(broker: Broker) -> None:
    async with connected(broker) as client:
        found = await subscription(client, ZERO_UUID)
        assert found.error_code == E.NONE
        assert found.client_instance_id != ZERO_UUID
        assert found.accepted_compression_types == [4, 3, 1, 2]
        assert (found.push_interval_ms, found.telemetry_max_bytes) == (300_000, 1_048_576)
        assert (found.delta_temporality, found.requested_metrics) == (True, [])


async def test_a_subscription_matches_clients(broker: Broker) -> None:
    subscribe(
        broker, "one", interval_ms="1000", metrics="a.,b.", match="client_software_name=raw.*"
    )
    subscribe(broker, "two", interval_ms="500", metrics="b.,c.", match="client_id=raw")
    subscribe(broker, "other", interval_ms="100", metrics="*", match="client_source_port=1")
    async with connected(broker) as client:
        before = await subscription(client)
        assert (before.push_interval_ms, before.requested_metrics) == (500, ["b.", "c."])
        await software(client, "raw-client")
        found = await subscription(client)
        assert (found.push_interval_ms, found.requested_metrics) == (500, ["a.", "b.", "c."])
        assert found.subscription_id != before.subscription_id
        subscribe(broker, "all", metrics="*")
        assert (await subscription(client)).requested_metrics == ["*"]


async def test_pushed_metrics_are_kept(broker: Broker) -> None:
    subscribe(broker, "one", interval_ms="100", metrics="*")
    async with connected(broker) as client:
        found = await subscription(client)
        assert await push(client, found.subscription_id, b"metrics") == E.NONE
        assert await push(client, found.subscription_id) == E.THROTTLING_QUOTA_EXCEEDED
        await subscription(client)
        packed = compress(Compression.ZSTD, b"more")
        assert await push(client, found.subscription_id, packed, compression=4) == E.NONE
    kept = broker.client_metrics
    assert [each.metrics for each in kept] == [b"metrics", b"more"]
    assert (kept[0].client_instance_id, kept[0].client_id, kept[0].node_id) == (ME, "raw", 1)


async def test_invalid_pushes(broker: Broker) -> None:
    subscribe(broker, "one", interval_ms="1000", metrics="*")
    async with connected(broker) as client:
        number = (await subscription(client)).subscription_id
        cases: list[tuple[dict[str, Any], ErrorCode]] = [
            ({"instance": ZERO_UUID}, E.INVALID_REQUEST),
            ({"number": number + 1}, E.UNKNOWN_SUBSCRIPTION_ID),
            ({"compression": 9}, E.UNSUPPORTED_COMPRESSION_TYPE),
            ({"metrics": b"x" * 1_048_577}, E.TELEMETRY_TOO_LARGE),
            ({"metrics": b"garbage", "compression": 1}, E.INVALID_RECORD),
            ({"metrics": b"garbage"}, E.NONE),
        ]
        for fields, code in cases:
            await subscription(client)
            assert await push(client, **{"number": number, **fields}) == code
        assert await push(client, number, terminating=True) == E.NONE
        assert await push(client, number, terminating=True) == E.INVALID_REQUEST


async def test_a_changed_subscription_has_another_id(broker: Broker) -> None:
    subscribe(broker, "one", metrics="a")
    async with connected(broker) as client:
        number = (await subscription(client)).subscription_id
        subscribe(broker, "one", metrics="b")
        assert await push(client, number) == E.UNKNOWN_SUBSCRIPTION_ID


async def test_pushed_metrics_are_logged(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aiokafkawire.broker")
    subscribe(broker, "one", interval_ms="100", metrics="*")
    point = NumberDataPoint(3, {"node_id": "1"})
    data = encode_metrics_data([ResourceMetrics({}, (Metric("latency", (point,)),))])
    async with connected(broker) as client:
        number = (await subscription(client)).subscription_id
        assert await push(client, number, data, terminating=True) == E.NONE
        await subscription(client)
        assert await push(client, number, b"garbage") == E.NONE
    lines = [line for line in caplog.messages if line.startswith(f"Client raw ({ME})")]
    assert [line.partition(": ")[2] for line in lines[:2]] == [
        "pushed 1 metrics while closing",
        "latency{node_id=1} = 3",
    ]
    assert "pushed metrics that cannot be decoded: " in lines[2]
    assert broker.client_metrics[0].decode()[0].metrics == (Metric("latency", (point,)),)


@pytest.mark.slow
def test_librdkafka_pushes_its_metrics() -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    with threaded_broker(client_telemetry=True) as server:
        configs = server.broker._running.cluster.dynamic_configs
        server.call(
            configs.replace,
            ConfigResourceType.CLIENT_METRICS,
            "one",
            {"interval.ms": "200", "metrics": "*", "match": "client_software_name=confluent.*"},
        )
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.servers, "client.id": "c"},
            logger=logging.getLogger("librdkafka"),
        )
        producer.produce("t", b"v")

        def pushes() -> tuple[ClientMetrics, ...]:
            found: tuple[ClientMetrics, ...] = server.call(lambda: server.broker.client_metrics)
            return found

        repeat_until(lambda: producer.poll(0.05), lambda: bool(pushes()))
        assert pushes()[0].client_id == "c"
        (resource,) = pushes()[0].decode()
        metrics = {metric.name: metric for metric in resource.metrics}
        created = metrics["org.apache.kafka.producer.connection.creation.total"]
        assert created.temporality is Temporality.DELTA
        assert created.is_monotonic
        assert created.points[0].start_time_ns < created.points[0].time_ns
        assert metrics["org.apache.kafka.producer.connection.creation.rate"].temporality is None


def test_the_number_of_instances_is_limited() -> None:
    telemetry = ClientTelemetry(DynamicConfigs(BrokerConfig()), random.Random(1))
    client = ClientAttributes("c", "", "", "127.0.0.1", 1)
    for number in range(MAX_INSTANCES + 5):
        telemetry.subscribe(UUID(int=number + 1), client, 0.0)
    assert len(telemetry._instances) == MAX_INSTANCES


def test_a_push_may_follow_after_the_interval() -> None:
    telemetry = ClientTelemetry(DynamicConfigs(BrokerConfig()), random.Random(1))
    client = ClientAttributes("c", "", "", "127.0.0.1", 1)
    number = telemetry.subscribe(ME, client, 0.0).subscription_id
    pushed = ClientMetrics(
        client_instance_id=ME, client_id="c", node_id=1, terminating=False, metrics=b""
    )
    telemetry.push(pushed, number, 0, client, 1.0)
    with pytest.raises(ApiError, match="THROTTLING_QUOTA_EXCEEDED"):
        telemetry.push(pushed, number, 0, client, 300.9)
    telemetry.push(pushed, number, 0, client, 301.0)
    assert len(telemetry.pushes) == 2
