"""Which value of a config applies."""

from __future__ import annotations

import pytest

from aiokafkawire.broker import BrokerConfig
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.configs import (
    TOPIC_CONFIGS,
    ConfigResourceType,
    ConfigSource,
    DynamicConfigs,
    LogConfig,
)
from aiokafkawire.broker.configs import dynamic as module
from aiokafkawire.wire import ErrorCode

T, S = ConfigResourceType, ConfigSource


def sources(configs: DynamicConfigs, own: dict[str, str], name: str) -> list[tuple[str, S]]:
    values = configs.topic_values(own, name, TOPIC_CONFIGS[name], 1)
    return [(each.value or "", each.source) for each in values]


def test_the_nearest_value_applies() -> None:
    configs = DynamicConfigs(BrokerConfig(max_message_bytes=5))
    configs.replace(T.BROKER, "", {"message.max.bytes": "4"})
    configs.replace(T.BROKER, "1", {"message.max.bytes": "3"})
    own = {"max.message.bytes": "2"}
    assert sources(configs, own, "max.message.bytes") == [
        ("2", S.DYNAMIC_TOPIC_CONFIG),
        ("3", S.DYNAMIC_BROKER_CONFIG),
        ("4", S.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("5", S.STATIC_BROKER_CONFIG),
        ("1048588", S.DEFAULT_CONFIG),
    ]
    assert configs.topic_value("t", own, "max.message.bytes", 1) == "2"
    assert configs.topic_value("u", {}, "max.message.bytes", 1) == "3"
    assert configs.topic_value("u", {}, "max.message.bytes", 2) == "4"


def test_a_change_applies_at_once() -> None:
    configs, seen = DynamicConfigs(BrokerConfig()), []
    configs.on_change.add(lambda: seen.append(1))
    assert configs.topic_value("t", {}, "compression.type", 1) == "producer"
    configs.replace(T.BROKER, "", {"compression.type": "gzip"})
    assert configs.topic_value("t", {}, "compression.type", 1) == "gzip"
    configs.replace(T.BROKER, "", {})
    assert configs.topic_value("t", {}, "compression.type", 1) == "producer"
    assert len(seen) == 2
    assert configs.names(T.BROKER) == []


def test_min_insync_replicas_can_be_required_for_all_brokers() -> None:
    configs = DynamicConfigs(BrokerConfig(min_insync_replicas=2))
    assert configs.of(T.BROKER, "") == {}
    configs.requires_cluster_min_insync = True
    assert configs.of(T.BROKER, "") == {"min.insync.replicas": "2"}
    assert sources(configs, {}, "min.insync.replicas")[0] == ("2", S.DYNAMIC_DEFAULT_BROKER_CONFIG)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, LogConfig(2**26, 2**30)),
        ({"retention.ms": "5"}, LogConfig(2**26, 2**30, 5)),
        ({"retention.ms": "-1"}, LogConfig(2**26, 2**30)),
        ({"retention.bytes": "-1", "segment.bytes": "9"}, LogConfig(9, -1)),
        ({"cleanup.policy": "compact", "retention.ms": "5"}, LogConfig(2**26, 2**30)),
        ({"cleanup.policy": "compact,delete", "retention.ms": "5"}, LogConfig(2**26, 2**30, 5)),
    ],
)
def test_config_of_a_log(own: dict[str, str], expected: LogConfig) -> None:
    configs = DynamicConfigs(BrokerConfig())
    assert configs.log_config("t", own, 1) == expected
    assert configs.log_config("t", own, 1) is configs.log_config("t", own, 1)


def test_retention_of_all_brokers_applies_to_topics() -> None:
    configs = DynamicConfigs(BrokerConfig())
    configs.replace(T.BROKER, "", {"log.retention.ms": "7"})
    assert configs.log_config("t", {}, 1).retention_ms == 7


def test_configs_are_stored() -> None:
    configs, other = DynamicConfigs(BrokerConfig()), DynamicConfigs(BrokerConfig())
    configs.replace(T.GROUP, "g", {"consumer.session.timeout.ms": "50000"})
    other.load(configs.to_json())
    assert other.of(T.GROUP, "g") == {"consumer.session.timeout.ms": "50000"}


def test_the_number_of_groups_with_configs_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RESOURCES", 1)
    configs = DynamicConfigs(BrokerConfig())
    wanted = {"consumer.session.timeout.ms": "50000"}
    configs.replace(T.GROUP, "g", configs.validate(T.GROUP, "g", wanted))
    assert configs.validate(T.GROUP, "g", wanted)
    with pytest.raises(ApiError, match="at most 1 group") as caught:
        configs.validate(T.GROUP, "h", wanted)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
