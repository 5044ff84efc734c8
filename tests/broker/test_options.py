"""Options of a broker."""

from __future__ import annotations

import dataclasses
import re
import typing

import pytest

from aiokafkawire.broker import Broker, BrokerConfig, BrokerOptions
from aiokafkawire.config import list_options
from aiokafkawire.errors import InvalidOption


def test_what_is_not_said_is_as_in_kafka() -> None:
    options = BrokerConfig()
    assert options.auto_create_topics
    assert options.max_message_bytes == 1_048_588
    assert options.group_min_session_timeout_ms == 6_000
    assert options.default_replication_factor is None


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("default_partitions", 0, "default_partitions must be at least 1, not 0"),
        ("default_partitions", None, "default_partitions must be a whole number, not None"),
        ("default_partitions", True, "default_partitions must be a whole number, not True"),
        ("segment_bytes", "1g", "segment_bytes must be a whole number, not '1g'"),
        ("group_initial_rebalance_delay_ms", -1, "must be at least 0, not -1"),
        ("auto_create_topics", 1, "auto_create_topics must be True or False, not 1"),
        ("refuse_unknown_producers", None, "must be True or False, not None"),
    ],
)
def test_a_wrong_value_is_refused(option: str, value: object, message: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(message)):
        BrokerConfig(**{option: value})  # type: ignore[arg-type]


def test_zero_milliseconds_and_the_default_are_values() -> None:
    options = BrokerConfig(group_initial_rebalance_delay_ms=0, default_replication_factor=None)
    assert options.group_initial_rebalance_delay_ms == 0


def test_an_unknown_option_is_named_with_the_nearest() -> None:
    with pytest.raises(InvalidOption, match="'auto_create'; did you mean 'auto_create_topics'"):
        Broker(auto_create=False)
    misspelt: typing.Any = {"nods": 3}
    with pytest.raises(InvalidOption, match="'nods'; did you mean 'nodes'"):
        Broker(**misspelt)


def test_the_typed_dict_equals_the_option_class() -> None:
    of_class = typing.get_type_hints(BrokerConfig)
    fields = {field.name: of_class[field.name] for field in dataclasses.fields(BrokerConfig)}
    assert typing.get_type_hints(BrokerOptions) == fields


def test_help_says_what_each_option_means() -> None:
    message = list_options(BrokerConfig)
    assert [option.name for option in message] == list(typing.get_type_hints(BrokerOptions))
    for option in message:
        assert str(option) in str(BrokerOptions.__doc__)
        assert option.meaning[0].isupper()
        assert option.meaning.endswith(".")


def test_what_no_file_could_count_is_refused() -> None:
    with pytest.raises(InvalidOption, match="retention_bytes must be at most"):
        BrokerConfig(retention_bytes=2**63)
