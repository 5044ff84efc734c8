"""DescribeCluster and DescribeConfigs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.broker.configs import BROKER_CONFIGS, STATIC_CONFIGS, TOPIC_CONFIGS, ConfigSource
from aiokafkawire.errors import BrokerError, InvalidOption
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.messages.describe_cluster import DescribeClusterRequest
from aiokafkawire.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

from .raw_client import build_update_metadata_request, connected

E = ErrorCode
TOPIC, NODE = 2, 4


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(nodes=2, racks=["east", None], max_message_bytes=5_000) as broker:
        await broker.create_topic("t", configs={"retention.ms": "60000"})
        yield broker


async def describe(
    broker: Broker,
    resource_type: int,
    name: str,
    *keys: str,
    version: int = 4,
    node: int = 1,
    **more: Any,
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
    )
    async with connected(broker, node) as client:
        request = DescribeConfigsRequest(resources=[resource], **more)
        (result,) = (await client.call(request, version)).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


async def test_the_cluster_is_described(broker: Broker) -> None:
    await broker.kill(2)
    async with connected(broker) as client:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        found = await client.call(request, 2)
        assert (found.cluster_id, found.controller_id) == (broker.cluster_id, 1)
        assert [(b.broker_id, b.rack, b.is_fenced) for b in found.brokers] == [(1, "east", False)]
        assert found.brokers[0].port == broker.nodes[1].port
        assert found.cluster_authorized_operations > 0
        request.include_fenced_brokers = True
        found = await client.call(request, 2)
        assert [(b.broker_id, b.is_fenced) for b in found.brokers] == [(1, False), (2, True)]
        for endpoint_type, code in (
            (2, E.MISMATCHED_ENDPOINT_TYPE),
            (3, E.UNSUPPORTED_ENDPOINT_TYPE),
        ):
            request.endpoint_type = endpoint_type
            assert (await client.call(request, 2)).error_code == code


async def test_metadata_includes_racks(broker: Broker) -> None:
    async with connected(broker) as client:
        found = await client.call(build_update_metadata_request("t"), 12)
    assert {node.node_id: node.rack for node in found.brokers} == {1: "east", 2: None}


def test_each_node_needs_its_rack() -> None:
    with pytest.raises(InvalidOption, match="2 nodes need 2 racks, not 1"):
        Broker(nodes=2, racks=["east"])


async def test_describe_configs_of_a_topic_returns_set_and_derived_values(broker: Broker) -> None:
    result = await describe(broker, TOPIC, "t", include_synonyms=True)
    assert (result.error_code, result.error_message) == (E.NONE, "")
    configs = {config.name: config for config in result.configs}
    assert set(configs) == set(TOPIC_CONFIGS)
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source) == (
        "60000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
    )
    assert [(s.name, s.source) for s in retention.synonyms] == [
        ("retention.ms", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    ]
    largest = configs["max.message.bytes"]
    assert (largest.value, largest.config_source) == ("5000", ConfigSource.STATIC_BROKER_CONFIG)
    assert [(s.name, s.value) for s in largest.synonyms] == [
        ("message.max.bytes", "5000"),
        ("message.max.bytes", "1048588"),
    ]
    assert not any(config.read_only or config.is_sensitive for config in configs.values())


async def test_describe_configs_of_a_broker_returns_its_options(broker: Broker) -> None:
    result = await describe(broker, NODE, "1")
    configs = {config.name: config.value for config in result.configs}
    assert set(configs) == {*BROKER_CONFIGS, "node.id", "broker.id", "broker.rack"}
    assert configs["broker.rack"] == "east"
    assert configs["message.max.bytes"] == "5000"
    assert configs["auto.create.topics.enable"] == "true"
    assert [
        c.name for c in result.configs if c.config_source == ConfigSource.STATIC_BROKER_CONFIG
    ] == [*("node.id", "broker.id", "broker.rack", "message.max.bytes")]
    assert not any(config.synonyms for config in result.configs)
    assert all(config.read_only == (config.name in STATIC_CONFIGS) for config in result.configs)
    of_all = (await describe(broker, NODE, "")).configs
    assert [(config.name, config.value) for config in of_all] == [("min.insync.replicas", "1")]
    other = await describe(broker, NODE, "2", node=2)
    assert "broker.rack" not in [config.name for config in other.configs]


async def test_some_settings_alone(broker: Broker) -> None:
    result = await describe(broker, TOPIC, "t", "retention.ms", "nothing")
    assert [config.name for config in result.configs] == ["retention.ms"]
    old = await describe(broker, TOPIC, "t", "retention.ms", "segment.ms", version=0)
    assert {config.name: config.is_default for config in old.configs} == {
        "retention.ms": False,
        "segment.ms": True,
    }


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "nowhere", E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not a name", E.INVALID_TOPIC_EXCEPTION),
        (NODE, "2", E.INVALID_REQUEST),
        (NODE, "one", E.INVALID_REQUEST),
        (8, "", E.INVALID_REQUEST),
        (8, "2", E.INVALID_REQUEST),
        (16, "", E.INVALID_REQUEST),
        (32, "", E.INVALID_REQUEST),
        (99, "1", E.INVALID_REQUEST),
    ],
)
async def test_missing_resources(
    broker: Broker, resource_type: int, name: str, code: ErrorCode
) -> None:
    result = await describe(broker, resource_type, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message or code is E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("name", "value", "good"),
    [
        ("retention.ms", "-1", True),
        ("retention.ms", "1d", False),
        ("min.cleanable.dirty.ratio", "0.1", True),
        ("min.cleanable.dirty.ratio", "half", False),
        ("preallocate", "true", True),
        ("preallocate", "1", False),
        ("leader.replication.throttled.replicas", "0:1,1:2", True),
        ("leader.replication.throttled.replicas", "all", False),
        ("compression.gzip.level", "0", False),
        ("remote.storage.enable", "true", False),
        ("message.timestamp.type", "LogAppendTime", True),
        ("message.timestamp.type", "Never", False),
        ("retention.hours", "1", False),
    ],
)
async def test_topic_configs_are_validated_as_in_kafka(
    broker: Broker, name: str, value: str, good: bool
) -> None:
    if good:
        await broker.create_topic("u", configs={name: value})
        return
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        await broker.create_topic("u", configs={name: value})
