"""The admin client's operations on configs, and topics that are ensured."""

from __future__ import annotations

import uuid

import pytest

from aiokafkawire import Admin
from aiokafkawire.admin import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    EnsuredTopic,
    NewTopic,
)
from aiokafkawire.errors import BrokerError, PartialFailure, UnsupportedVersion
from tests.behaviour.features import needs, without
from tests.behaviour.support import eventually

UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST = 3, 40, 42


def topic_resource(topic: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, topic)


async def value_of(admin: Admin, topic: str, name: str) -> tuple[str | None, bool]:
    """Return the value of a topic's config, and whether the topic itself has it."""
    resource = topic_resource(topic)
    entry = (await admin.describe_configs({resource: [name]}))[resource][name]
    return entry.value, entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG


async def wait_value(admin: Admin, topic: str, name: str, value: str, own: bool = True) -> None:
    async def has_value() -> bool:
        return await value_of(admin, topic, name) == (value, own)

    await eventually(has_value)


@needs("configs by request")
async def test_configs_of_a_topic(admin: Admin, topic: str):
    resource = topic_resource(topic)
    entries = (await admin.describe_configs([resource]))[resource]
    assert entries["retention.ms"].value == "604800000"
    assert entries["cleanup.policy"].value == "delete"
    assert entries["retention.ms"].source is not ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert await admin.incremental_alter_configs({resource: {"retention.ms": "3600000"}}) == {
        resource: None
    }
    await wait_value(admin, topic, "retention.ms", "3600000")
    append = AlterConfigOp("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    await admin.incremental_alter_configs({resource: [append]})
    await wait_value(admin, topic, "cleanup.policy", "delete,compact")
    await wait_value(admin, topic, "retention.ms", "3600000")
    subtract = AlterConfigOp("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    await admin.incremental_alter_configs(
        {resource: [subtract, AlterConfigOp("retention.ms", None, AlterConfigOpType.DELETE)]}
    )
    await wait_value(admin, topic, "cleanup.policy", "compact")
    await wait_value(admin, topic, "retention.ms", "604800000", own=False)


@needs("errors of configs")
async def test_configs_of_a_topic_that_does_not_exist(admin: Admin, topic: str):
    resource, unknown = topic_resource(topic), topic_resource("no-such-topic")
    with pytest.raises(PartialFailure) as caught:
        await admin.describe_configs([resource, unknown])
    assert list(caught.value.succeeded) == [resource]
    error = caught.value.failed[unknown]
    assert isinstance(error, BrokerError)
    assert (error.code, error.topic) == (UNKNOWN_TOPIC_OR_PARTITION, "no-such-topic")


@needs("configs by request")
async def test_configs_that_are_refused(admin: Admin, topic: str):
    resource = topic_resource(topic)
    results = await admin.incremental_alter_configs(
        {resource: {"retention.ms": "a while"}}, return_errors=True
    )
    error = results[resource]
    assert isinstance(error, BrokerError)
    assert error.code in {INVALID_REQUEST, INVALID_CONFIG}
    assert "retention.ms" in str(error)


@needs("configs by request")
async def test_validating_changes_nothing(admin: Admin, topic: str):
    resource = topic_resource(topic)
    await admin.incremental_alter_configs(
        {resource: {"retention.ms": "3600000"}}, validate_only=True
    )
    assert await value_of(admin, topic, "retention.ms") == ("604800000", False)


@needs("configs by request")
async def test_configs_of_each_broker(admin: Admin):
    nodes = (await admin.describe_cluster()).nodes
    resources = [ConfigResource(ConfigResourceType.BROKER, str(node.node_id)) for node in nodes]
    described = await admin.describe_configs(resources)
    ids = {entries.get("node.id", entries.get("broker.id", None)) for entries in described.values()}
    assert {entry.value for entry in ids if entry} == {str(node.node_id) for node in nodes}


@needs("config resources")
async def test_resources_are_listed(admin: Admin, topic: str):
    listed = await admin.list_config_resources([ConfigResourceType.TOPIC])
    assert topic_resource(topic) in listed
    assert {resource.type for resource in listed} == {ConfigResourceType.TOPIC}
    every = await admin.list_config_resources()
    assert {*listed} <= {*every}
    assert await admin.list_client_metrics_resources() == []


@needs("configs by request", "adding partitions")
async def test_topics_are_ensured(admin: Admin):
    name, other = (f"topic-{uuid.uuid4().hex[:12]}" for _ in range(2))
    plain = NewTopic(name, 1, 1)
    assert await admin.ensure_topics([plain]) == {name: EnsuredTopic(name, is_created=True)}
    assert await admin.ensure_topics([plain]) == {name: EnsuredTopic(name, is_created=False)}
    larger = NewTopic(name, 3, 1, configs={"retention.ms": "3600000"})
    expected = EnsuredTopic(name, False, 2, {"retention.ms": "3600000"})
    planned = await admin.ensure_topics([larger], validate_only=True)
    assert planned == {name: expected}
    assert expected.is_changed
    wanted = [larger, NewTopic(other, 1, 1)]
    assert await admin.ensure_topics(wanted) == {
        name: expected,
        other: EnsuredTopic(other, is_created=True),
    }
    await wait_value(admin, name, "retention.ms", "3600000")
    again = await admin.ensure_topics([NewTopic(name, 2, 1), *wanted])
    assert not any(topic.is_changed for topic in again.values())
    await admin.delete_topics([name, other])


@needs("configs by request", as_of="2.2")
async def test_one_config_is_changed_by_replacing_all(admin: Admin, topic: str):
    # Brokers before 2.3 have AlterConfigs alone.
    resource = topic_resource(topic)
    await admin.incremental_alter_configs({resource: {"retention.ms": "3600000"}})
    await wait_value(admin, topic, "retention.ms", "3600000")
    await admin.incremental_alter_configs({resource: {"segment.ms": "7200000"}})
    await wait_value(admin, topic, "segment.ms", "7200000")
    await wait_value(admin, topic, "retention.ms", "3600000")
    await admin.incremental_alter_configs({resource: {"retention.ms": None}})
    await wait_value(admin, topic, "retention.ms", "604800000", own=False)


@without("configs by request", as_of="0.10.2")
async def test_configs_of_old_brokers(admin: Admin, topic: str):
    with pytest.raises(UnsupportedVersion, match=r"DescribeConfigs needs Kafka 0\.11\.0 or later"):
        await admin.describe_configs([topic_resource(topic)])
