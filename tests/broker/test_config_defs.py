"""Kafka's names for the configs of topics and brokers."""

from __future__ import annotations

import pytest

from aiokafkawire.broker import BrokerConfig
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.config_defs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigType,
    validate_topic_configs,
)


def test_every_option_named_by_a_setting_exists() -> None:
    options = BrokerConfig()
    for setting in [*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values()]:
        assert setting.value(options)
        assert setting.is_valid(setting.value(options))


def test_an_option_gives_the_value() -> None:
    options = BrokerConfig(max_message_bytes=5, auto_create_topics=False)
    assert TOPIC_CONFIGS["max.message.bytes"].value(options) == "5"
    assert BROKER_CONFIGS["auto.create.topics.enable"].value(options) == "false"
    assert TOPIC_CONFIGS["retention.ms"].value(options) == "604800000"


@pytest.mark.parametrize(
    ("setting", "good", "bad"),
    [
        (ConfigDef(ConfigType.INT), "-1", "1.5"),
        (ConfigDef(ConfigType.LONG), "9223372036854775807", ""),
        (ConfigDef(ConfigType.DOUBLE), "0.5", "half"),
        (ConfigDef(ConfigType.BOOLEAN, valid_values=("true", "false")), "true", "True"),
    ],
)
def test_a_value_is_of_its_kind(setting: ConfigDef, good: str, bad: str) -> None:
    assert setting.is_valid(good)
    assert not setting.is_valid(bad)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"retention.hours": "1"}, "unknown topic config 'retention.hours'"),
        ({"retention.ms": None}, "topic config 'retention.ms' has no value"),
        ({"retention.ms": "1d"}, "topic config 'retention.ms' cannot be '1d'"),
    ],
)
def test_wrong_configs_are_refused(configs: dict[str, str | None], message: str) -> None:
    with pytest.raises(ApiError, match=message):
        validate_topic_configs(configs)
    assert validate_topic_configs({"retention.ms": "1"}) == {"retention.ms": "1"}
