"""Kafka's names for what topics and nodes are set to."""

from __future__ import annotations

import pytest

from aiokafkawire.broker import BrokerConfig
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.broker.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    Kind,
    Setting,
    checked_topic_configs,
)


def test_every_option_named_by_a_setting_exists() -> None:
    options = BrokerConfig()
    for setting in [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()]:
        assert setting.value(options)
        assert setting.accepts(setting.value(options))


def test_an_option_gives_the_value() -> None:
    options = BrokerConfig(max_message_bytes=5, auto_create_topics=False)
    assert TOPIC_SETTINGS["max.message.bytes"].value(options) == "5"
    assert BROKER_SETTINGS["auto.create.topics.enable"].value(options) == "false"
    assert TOPIC_SETTINGS["retention.ms"].value(options) == "604800000"


@pytest.mark.parametrize(
    ("setting", "good", "bad"),
    [
        (Setting(Kind.INT), "-1", "1.5"),
        (Setting(Kind.LONG), "9223372036854775807", ""),
        (Setting(Kind.DOUBLE), "0.5", "half"),
        (Setting(Kind.BOOLEAN, allowed=("true", "false")), "true", "True"),
    ],
)
def test_a_value_is_of_its_kind(setting: Setting, good: str, bad: str) -> None:
    assert setting.accepts(good)
    assert not setting.accepts(bad)


@pytest.mark.parametrize(
    ("configs", "told"),
    [
        ({"retention.hours": "1"}, "unknown topic config 'retention.hours'"),
        ({"retention.ms": None}, "topic config 'retention.ms' has no value"),
        ({"retention.ms": "1d"}, "topic config 'retention.ms' cannot be '1d'"),
    ],
)
def test_wrong_configs_are_refused(configs: dict[str, str | None], told: str) -> None:
    with pytest.raises(Refusal, match=told):
        checked_topic_configs(configs)
    assert checked_topic_configs({"retention.ms": "1"}) == {"retention.ms": "1"}
