"""Routing of configs to brokers, AlterConfigs on old brokers, and hostile answers."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.admin import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
)
from aiokafkawire.admin.alter_configs import replacement
from aiokafkawire.cluster import ToAnyNode, ToNode
from aiokafkawire.errors import PartialFailure, ProtocolError, UnsupportedVersion
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.alter_configs import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from aiokafkawire.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from aiokafkawire.wire.messages.list_config_resources import (
    ConfigResource as ListedResource,
)
from aiokafkawire.wire.messages.list_config_resources import ListConfigResourcesResponse
from tests.admin.fakes import ScriptedAdmin
from tests.admin.scripted import ScriptedCluster

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "orders")
BROKER = ConfigResource(ConfigResourceType.BROKER, "2")
DEFAULTS = ConfigResource(ConfigResourceType.BROKER, "")
LOGGER = ConfigResource(ConfigResourceType.BROKER_LOGGER, "3")


def config(name: str, value: str | None, source: int, **fields: Any) -> Any:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=False,
        config_source=source,
        is_sensitive=fields.pop("is_sensitive", False),
        **fields,
    )


def described(*configs: Any, kinds: Any = None) -> Any:
    def answer(request: Any) -> DescribeConfigsResponse:
        asked = [(each.resource_type, each.resource_name) for each in request.resources]
        return DescribeConfigsResponse(
            throttle_time_ms=0,
            results=[
                DescribeConfigsResult(
                    error_code=0,
                    error_message=None,
                    resource_type=kind,
                    resource_name=name,
                    configs=list(configs),
                )
                for kind, name in (asked if kinds is None else kinds)
            ],
        )

    return answer


async def test_configs_of_a_broker_are_asked_of_that_broker() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.DESCRIBE_CONFIGS, described(config("a", "1", 5)))
    results = await ScriptedAdmin(cluster).describe_configs([TOPIC, BROKER, DEFAULTS, LOGGER])
    assert list(results) == [TOPIC, BROKER, DEFAULTS, LOGGER]
    routes = {
        sent.to: [each.resource_name for each in sent.message.resources] for sent in cluster.sent
    }
    assert routes == {ToAnyNode(): ["orders", ""], ToNode(2): ["2"], ToNode(3): ["3"]}


async def test_equal_configs_are_one_object() -> None:
    cluster = ScriptedCluster()
    other = ConfigResource(ConfigResourceType.TOPIC, "payments")
    cluster.answer(
        ApiKey.DESCRIBE_CONFIGS, described(config("a", "1", 5), config("b", "1", 5, config_type=3))
    )
    results = await ScriptedAdmin(cluster).describe_configs([TOPIC, other])
    assert results[TOPIC] == results[other]
    assert results[TOPIC]["a"] is results[other]["a"]
    assert results[TOPIC]["b"].type is ConfigType.INT
    assert results[TOPIC]["a"].type is ConfigType.UNKNOWN


async def test_numbers_that_are_newer_than_this_client() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.DESCRIBE_CONFIGS, described(config("a", "1", 77, config_type=99)))
    entry = (await ScriptedAdmin(cluster).describe_configs([TOPIC]))[TOPIC]["a"]
    assert (entry.source, entry.type) == (ConfigSource.UNKNOWN, ConfigType.UNKNOWN)
    cluster.answer(
        ApiKey.LIST_CONFIG_RESOURCES,
        lambda _: ListConfigResourcesResponse(
            throttle_time_ms=0,
            error_code=0,
            config_resources=[ListedResource(resource_name="x", resource_type=99)],
        ),
    )
    (listed,) = await ScriptedAdmin(cluster).list_config_resources()
    assert listed == ConfigResource(ConfigResourceType.UNKNOWN, "x")


@pytest.mark.parametrize("kinds", [[], [(4, "orders")], [(2, "other")], [(2, "orders")] * 2])
async def test_hostile_answers(kinds: list[tuple[int, str]]) -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.DESCRIBE_CONFIGS, described(kinds=kinds))
    with pytest.raises(ProtocolError):
        await ScriptedAdmin(cluster).describe_configs([TOPIC])


async def test_the_source_in_version_0() -> None:
    cluster = ScriptedCluster(versions={ApiKey.DESCRIBE_CONFIGS: 0})
    cluster.answer(
        ApiKey.DESCRIBE_CONFIGS,
        described(config("a", "1", -1, is_default=True), config("b", "2", -1)),
    )
    admin = ScriptedAdmin(cluster)
    entries = (await admin.describe_configs([TOPIC]))[TOPIC]
    assert [entry.source for entry in entries.values()] == [
        ConfigSource.DEFAULT_CONFIG,
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ]
    assert entries["a"].is_default
    assert (await admin.describe_configs([BROKER]))[BROKER]["b"].source is (
        ConfigSource.STATIC_BROKER_CONFIG
    )
    with pytest.raises(UnsupportedVersion, match=r"needs Kafka 2\.6"):
        await admin.describe_configs([TOPIC], include_documentation=True)


async def test_a_broker_resource_needs_a_node_id() -> None:
    with pytest.raises(ValueError, match="must be a node id, not 'two'"):
        await ScriptedAdmin(ScriptedCluster()).describe_configs(
            [ConfigResource(ConfigResourceType.BROKER, "two")]
        )


async def test_all_configs_are_replaced_on_old_brokers() -> None:
    cluster = ScriptedCluster(versions={ApiKey.INCREMENTAL_ALTER_CONFIGS: -1})
    cluster.answer(
        ApiKey.DESCRIBE_CONFIGS,
        described(config("kept", "1", 1), config("changed", "2", 1), config("default", "3", 5)),
    )
    cluster.answer(
        ApiKey.ALTER_CONFIGS,
        lambda request: AlterConfigsResponse(
            throttle_time_ms=0,
            responses=[
                AlterConfigsResourceResponse(
                    error_code=0, error_message=None, resource_type=2, resource_name="orders"
                )
            ],
        ),
    )
    admin = ScriptedAdmin(cluster)
    assert await admin.incremental_alter_configs({TOPIC: {"changed": "9"}}) == {TOPIC: None}
    (sent,) = cluster.requests(ApiKey.ALTER_CONFIGS)
    assert {each.name: each.value for each in sent.message.resources[0].configs} == {
        "kept": "1",
        "changed": "9",
    }


async def test_brokers_without_any_way_to_alter_configs() -> None:
    versions = dict.fromkeys(
        [ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.DESCRIBE_CONFIGS], -1
    )
    cluster = ScriptedCluster(versions=versions)
    with pytest.raises(UnsupportedVersion, match=r"DescribeConfigs needs Kafka 0\.11"):
        await ScriptedAdmin(cluster).incremental_alter_configs({TOPIC: {"a": "1"}})


ENTRIES = {
    entry.name: entry
    for entry in (
        ConfigEntry("list", "a,b", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ConfigEntry("own", "1", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ConfigEntry("default", "x", ConfigSource.DEFAULT_CONFIG),
        ConfigEntry("secret", None, ConfigSource.DYNAMIC_BROKER_CONFIG, is_sensitive=True),
    )
}
OWN = {"list": "a,b", "own": "1"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (AlterConfigOp("own", "2"), {"own": "2"}),
        (AlterConfigOp("list", "b,c", AlterConfigOpType.APPEND), {"list": "a,b,c"}),
        (AlterConfigOp("default", "y", AlterConfigOpType.APPEND), {"default": "x,y"}),
        (AlterConfigOp("list", "a,z", AlterConfigOpType.SUBTRACT), {"list": "b"}),
    ],
)
def test_the_configs_after_a_change(change: AlterConfigOp, expected: dict[str, str]) -> None:
    assert replacement(TOPIC, ENTRIES, [change]) == OWN | expected


def test_a_deleted_config_is_left_out() -> None:
    delete = AlterConfigOp("own", None, AlterConfigOpType.DELETE)
    assert replacement(TOPIC, ENTRIES, [delete]) == {"list": "a,b"}


def test_a_secret_is_not_lost() -> None:
    with pytest.raises(UnsupportedVersion, match=r"delete the secret 'secret' of broker '2'"):
        replacement(BROKER, ENTRIES, [AlterConfigOp("other", "1")])
    assert replacement(BROKER, ENTRIES, [AlterConfigOp("secret", "new")]) == {"secret": "new"}


async def test_each_resource_has_its_error() -> None:
    cluster = ScriptedCluster()
    cluster.answer(ApiKey.DESCRIBE_CONFIGS, described(kinds=[(2, "orders")]))
    other = ConfigResource(ConfigResourceType.TOPIC, "other")
    with pytest.raises(PartialFailure) as caught:
        await ScriptedAdmin(cluster).describe_configs([TOPIC, other])
    assert list(caught.value.succeeded) == [TOPIC]
    assert caught.value.failed[other].topic == "other"
