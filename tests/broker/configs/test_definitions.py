"""Types, ranges and messages of configs."""

from __future__ import annotations

import pytest

from aiokafkawire.broker import BrokerConfig
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.configs import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    STATIC_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigType,
)
from aiokafkawire.broker.configs.brokers import DYNAMIC_CONFIGS
from aiokafkawire.broker.configs.definitions import parse_all, split_list


@pytest.mark.parametrize(
    "configs", [TOPIC_CONFIGS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS, BROKER_CONFIGS]
)
def test_every_default_is_valid(configs: dict[str, ConfigDef]) -> None:
    options = BrokerConfig()
    for name, config in configs.items():
        value = config.value(options)
        if value is not None:
            is_number = config.config_type is ConfigType.DOUBLE
            assert is_number or config.parse(name, value) == value, name


def test_every_topic_config_has_documentation_and_a_known_broker_config() -> None:
    for config in (*TOPIC_CONFIGS.values(), *GROUP_CONFIGS.values(), *DYNAMIC_CONFIGS.values()):
        assert config.documentation.endswith(".")
    for config in TOPIC_CONFIGS.values():
        assert not config.server_property or config.server_property in DYNAMIC_CONFIGS
    assert not DYNAMIC_CONFIGS.keys() & STATIC_CONFIGS


def test_an_option_gives_the_value() -> None:
    options = BrokerConfig(max_message_bytes=5, auto_create_topics=False)
    assert TOPIC_CONFIGS["max.message.bytes"].value(options) == "5"
    assert BROKER_CONFIGS["auto.create.topics.enable"].value(options) == "false"
    assert TOPIC_CONFIGS["retention.ms"].value(options) == "604800000"


@pytest.mark.parametrize(
    ("config", "value", "shown"),
    [
        (ConfigDef(ConfigType.INT), " +7 ", "7"),
        (ConfigDef(ConfigType.LONG), "9223372036854775807", "9223372036854775807"),
        (ConfigDef(ConfigType.DOUBLE), "0.5", "0.5"),
        (ConfigDef(ConfigType.BOOLEAN), "TRUE", "true"),
        (ConfigDef(ConfigType.LIST), "a , b", "a,b"),
        (ConfigDef(ConfigType.LIST), "", ""),
        (ConfigDef(ConfigType.STRING), " text ", "text"),
    ],
)
def test_values_are_shown_as_kafka_does(config: ConfigDef, value: str, shown: str) -> None:
    assert config.parse("name", value) == shown


@pytest.mark.parametrize(
    ("config", "value", "message"),
    [
        (ConfigDef(ConfigType.INT), "1.5", "Invalid value 1.5 for .*: Not a number of type INT"),
        (ConfigDef(ConfigType.INT), "2147483648", "Not a number of type INT"),
        (ConfigDef(ConfigType.SHORT), "40000", "Not a number of type SHORT"),
        (ConfigDef(ConfigType.LONG), "", "Invalid value  for .*: Not a number of type LONG"),
        (ConfigDef(ConfigType.DOUBLE), "half", "Not a number of type DOUBLE"),
        (ConfigDef(ConfigType.BOOLEAN), "1", "Expected value to be either true or false"),
        (ConfigDef(ConfigType.INT, low=1), "0", "Value must be at least 1"),
        (ConfigDef(ConfigType.DOUBLE, high=1), "2", "Invalid value 2.0 .* no more than 1"),
        (ConfigDef(ConfigType.STRING, valid_values=("a", "b")), "c", "must be one of: a, b"),
        (ConfigDef(ConfigType.LIST, valid_values=("a", "b")), "a,c", "Invalid value c "),
    ],
)
def test_invalid_values_are_refused(config: ConfigDef, value: str, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        config.parse("name", value)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ApiError, match=r"Unknown topic config name: retention\.hours"):
        parse_all({"retention.hours": "1"}, TOPIC_CONFIGS, "topic")


def test_a_list_is_split() -> None:
    assert split_list(" ") == []
    assert split_list("a, b") == ["a", "b"]
