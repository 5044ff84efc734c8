from __future__ import annotations

import dataclasses
import typing

import pytest

from aiokafkawire import config
from aiokafkawire.config import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    ShareConsumerConfig,
    list_options,
    make_config,
)
from aiokafkawire.errors import InvalidOption

SERVERS = {"bootstrap_servers": "localhost:9092"}


def without_variables(hint: typing.Any) -> typing.Any:
    """Return a type with `Any` in place of type variables."""
    variables = getattr(hint, "__parameters__", ())
    return hint[(typing.Any,) * len(variables)] if variables else hint


@pytest.mark.parametrize(
    ("config_class", "options"),
    [
        (ClientConfig, config.ClientOptions),
        (ProducerConfig, config.ProducerOptions),
        (ConsumerConfig, config.ConsumerOptions),
        (ShareConsumerConfig, config.ShareConsumerOptions),
    ],
)
def test_the_typed_dict_equals_the_option_class(config_class: type, options: type):
    of_class = typing.get_type_hints(config_class)
    fields = {field.name: of_class[field.name] for field in dataclasses.fields(config_class)}
    hints = typing.get_type_hints(options)
    listed = {name: without_variables(hint) for name, hint in hints.items()}
    assert listed == fields, f"{options.__name__} and {config_class.__name__} differ"


@pytest.mark.parametrize(
    "options",
    [
        config.ClientOptions,
        config.ProducerOptions,
        config.ConsumerOptions,
        config.ShareConsumerOptions,
    ],
)
def test_type_checkers_require_bootstrap_servers(options: type):
    hints = typing.get_type_hints(options, include_extras=True)
    required = [name for name, hint in hints.items() if typing.get_origin(hint) is typing.Required]
    assert required == ["bootstrap_servers"]


@pytest.mark.parametrize(
    ("config_class", "options"),
    [
        (ClientConfig, config.ClientOptions),
        (ProducerConfig, config.ProducerOptions),
        (ConsumerConfig, config.ConsumerOptions),
        (ShareConsumerConfig, config.ShareConsumerOptions),
    ],
)
def test_help_describes_each_option(config_class: type[ClientConfig], options: type):
    listed = list_options(config_class)
    names = [option.name for option in listed]
    assert names == list(typing.get_type_hints(options)), "the order of the options differs"
    for option in listed:
        assert str(option) in str(options.__doc__)
        # One sentence, which begins and ends as one.
        assert option.meaning[0].isupper() or option.meaning[0] == "`"
        assert option.meaning.endswith(".")


def test_an_option_is_printed_with_type_default_and_unit():
    listed = {option.name: option for option in list_options(ProducerConfig)}
    assert str(listed["linger_ms"]).startswith("linger_ms (int, default 5 ms): ")
    assert str(listed["acks"]).startswith("acks ('all' | -1 | 0 | 1, default 'all'): ")
    assert str(listed["bootstrap_servers"]).startswith("bootstrap_servers (str | Sequence[str]): ")
    assert listed["batch_size_bytes"].unit == "bytes"
    assert listed["max_in_flight_requests_per_connection"].range == (1, 1_000)
    assert listed["compression_type"].kind.startswith("'none' | 'gzip'")


def test_the_defaults_are_those_of_the_java_client():
    producer = make_config(ProducerConfig, SERVERS)
    assert (producer.required_acks, producer.idempotent) == (-1, True)
    assert (producer.linger_ms, producer.batch_size_bytes) == (5, 16_384)
    assert producer.delivery_timeout_ms == 120_000
    consumer = make_config(ConsumerConfig, SERVERS)
    assert consumer.effective_session_timeout_ms == 45_000
    assert consumer.max_poll_records == 500
    assert consumer.auto_offset_reset == "latest"


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("lingr_ms", "linger_ms"),
        ("batch_size", "batch_size_bytes"),
        ("linger.ms", "linger_ms"),
        ("bootstrap_server", "bootstrap_servers"),
    ],
)
def test_the_error_of_an_unknown_option_suggests_the_nearest(given: str, nearest: str):
    with pytest.raises(InvalidOption, match=f"unknown option '{given}'; did you mean '{nearest}'"):
        make_config(ProducerConfig, {**SERVERS, given: 1})


def test_without_a_similar_option_the_error_only_names_it():
    with pytest.raises(InvalidOption, match=r"^unknown option 'zzzz'$") as failure:
        make_config(ProducerConfig, {**SERVERS, "zzzz": 1})
    assert failure.value.option == "zzzz"


def test_an_option_of_another_client_is_named():
    with pytest.raises(InvalidOption, match="'key_deserializer' is a consumer option, not one of"):
        make_config(ProducerConfig, {**SERVERS, "key_deserializer": str})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"linger_ms": -1}, "linger_ms must be at least 0, not -1"),
        ({"linger_ms": 1.5}, "linger_ms must be a whole number"),
        ({"linger_ms": True}, "linger_ms must be a whole number"),
        ({"compression_type": "rar"}, "compression_type must be one of 'none', 'gzip'"),
        ({"client_id": None}, "client_id must be a string"),
        ({"client_id": "\ud800"}, "client_id must be UTF-8 text"),
        ({"client_id": "c" * 32_768}, "client_id must be UTF-8 text of at most 32767 bytes"),
        ({"allow_auto_create_topics": 1}, "must be True or False"),
        ({"acks": "some"}, "acks must be"),
        ({"acks": -2}, "acks must be"),
        ({"acks": 2}, "acks must be .*, not 2; only Kafka 0.8 accepts more"),
        ({"acks": 2, "api_version": "0.9"}, "acks must be .*, not 2"),
        ({"acks": 2**15, "api_version": "0.8.2"}, "acks must be"),
        ({"acks": True}, "acks must be .*, not True"),
        ({"acks": 1.0}, "acks must be .*, not 1.0"),
        ({"acks": "1"}, "acks must be .*, not '1'"),
        ({"enable_idempotence": "false"}, "enable_idempotence must be True or False, not 'false'"),
        ({"partitioner": "murmur2"}, "partitioner must be a function, not 'murmur2'"),
        (
            {"bootstrap_servers": {"localhost:9092": 1}},
            "bootstrap_servers must be 'host:port' or a list",
        ),
        ({"acks": 1, "enable_idempotence": True}, "needs acks='all'"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"transactional_id": ""}, "transactional_id must not be empty"),
        ({"transactional_id": 7}, "transactional_id must be a string"),
        ({"transactional_id": "t", "acks": 1}, "transactional_id needs acks='all'"),
        (
            {"transactional_id": "t", "enable_idempotence": False},
            "enable_idempotence, which is False",
        ),
        (
            {"transactional_id": "t", "max_in_flight_requests_per_connection": 6},
            "transactional_id allows at most 5",
        ),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms must be at least 1"),
        ({"delivery_timeout_ms": 10}, "delivery_timeout_ms .10. must be at least"),
        ({"retry_backoff_ms": 2000}, "retry_backoff_ms .2000. must not be above"),
        ({"compression_level": 3}, "has no levels"),
        ({"compression_type": "gzip", "compression_level": -1}, "of gzip must be .* 1 to 9"),
        ({"compression_type": "lz4", "compression_level": 18}, "of lz4 must be .* 1 to 17"),
        (
            {"compression_type": "zstd", "compression_level": "9"},
            "compression_level must be a whole number, not .9.",
        ),
    ],
)
def test_an_invalid_producer_option_is_rejected_with_the_reason(
    options: dict[str, object], reason: str
):
    with pytest.raises(InvalidOption, match=reason):
        make_config(ProducerConfig, {**SERVERS, **options})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"auto_offset_reset": "first"}, "auto_offset_reset must be"),
        ({"auto_offset_reset": ["latest"]}, "auto_offset_reset must be"),
        ({"group_id": ""}, "group_id must not be empty; omit it for none"),
        ({"group_id": "g", "group_instance_id": ""}, "group_instance_id must not be empty"),
        ({"partition_assignment_strategy": 5}, "must be a list of assignors, not 5"),
        ({"isolation_level": ["read_committed"]}, "isolation_level must be one of"),
        ({"heartbeat_interval_ms": 45_000}, "must be below session_timeout_ms"),
        ({"group_instance_id": "a"}, "needs a group_id"),
        ({"partition_assignment_strategy": ()}, "at least one assignor"),
        ({"isolation_level": "dirty"}, "isolation_level must be one of"),
    ],
)
def test_an_invalid_consumer_option_is_rejected_with_the_reason(
    options: dict[str, object], reason: str
):
    with pytest.raises(InvalidOption, match=reason):
        make_config(ConsumerConfig, {**SERVERS, **options})


def test_a_fetch_response_may_be_larger_than_other_responses():
    given = {"bootstrap_servers": "a", "max_response_bytes": 2_048}
    assert make_config(ProducerConfig, given).max_frame_bytes == 2_048
    assert make_config(ConsumerConfig, given | {"fetch_max_bytes": 10}).max_frame_bytes == 2_058


def test_kafka_0_8_accepts_any_number_of_acks():
    assert (
        make_config(ProducerConfig, {**SERVERS, "acks": 3, "api_version": "0.8.2"}).required_acks
        == 3
    )


def test_lower_acks_turn_off_default_idempotence():
    assert not make_config(ProducerConfig, {**SERVERS, "acks": 1}).idempotent
    assert not make_config(ProducerConfig, {**SERVERS, "acks": 0}).idempotent
    assert make_config(ProducerConfig, {**SERVERS, "acks": -1}).idempotent


def test_a_transactional_id_requires_and_enables_idempotence():
    assert make_config(ProducerConfig, {**SERVERS, "transactional_id": "t"}).idempotent
    assert make_config(ProducerConfig, SERVERS).transaction_timeout_ms == 60_000


def test_a_share_consumer_needs_a_group() -> None:
    with pytest.raises(InvalidOption, match="group_id is missing"):
        make_config(ShareConsumerConfig, SERVERS)
