"""Parsing of option values."""

from __future__ import annotations

import pytest

from aiokafkawire.config import (
    ClientConfig,
    ConsumerConfig,
    make_config,
    parse_address,
    reset_duration_ms,
)
from aiokafkawire.errors import InvalidOption


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("localhost", ("localhost", 9092)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:2", ("::1", 2)),
        ("::1", ("::1", 9092)),
        ("PLAINTEXT://h:3", ("h", 3)),
    ],
)
def test_addresses_are_split(server: str, address: tuple[str, int]):
    assert parse_address(server) == address


@pytest.mark.parametrize(
    "server",
    [
        "h:0",
        "h:70000",
        "h:x",
        ":9092",
        "h:-1",
        "a b:1",
        "[::1]:x",
        "h:" + "9" * 5_000,
        "h" * 254,
        "a\0b",
        "\ud800",
    ],
)
def test_an_invalid_address_is_rejected(server: str):
    with pytest.raises(InvalidOption, match="has no valid"):
        make_config(ClientConfig, {"bootstrap_servers": server})


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("http://localhost:9092", "must be 'host:port', without 'http://'"),
        ("kafka://localhost:9092", "must be 'host:port', without 'kafka://'"),
        ("SSL://localhost:9093", "contradicts security_protocol"),
        ("://localhost:9092", "must be 'host:port', without '://'"),
        ("a:9092;b:9092", "separated by commas"),
        ("a:9092:9093", "separated by commas"),
        ("[::1", r"must be '\[IPv6 address\]:port'"),
        ("[::1]9092", r"must be '\[IPv6 address\]:port'"),
    ],
)
def test_the_error_of_an_invalid_address_shows_the_right_form(server: str, words: str):
    with pytest.raises(InvalidOption, match=words) as caught:
        make_config(ClientConfig, {"bootstrap_servers": server})
    assert repr(server) in str(caught.value)


@pytest.mark.parametrize("servers", ["", " , ", []])
def test_bootstrap_servers_must_not_be_empty(servers: object):
    with pytest.raises(InvalidOption, match="bootstrap_servers is empty"):
        make_config(ClientConfig, {"bootstrap_servers": servers})
    with pytest.raises(InvalidOption, match="bootstrap_servers is missing"):
        make_config(ClientConfig, {})


@pytest.mark.parametrize(
    "servers", [None, 9092, b"a:9092", [b"a:9092"], [("a", 9092)], ["a", b""], {"a": 1}, {}, b""]
)
def test_bootstrap_servers_must_be_strings(servers: object):
    with pytest.raises(InvalidOption, match="must be 'host:port' or a list of them, not "):
        make_config(ClientConfig, {"bootstrap_servers": servers})


@pytest.mark.parametrize(
    ("policy", "duration_ms"),
    [
        ("by_duration:P7D", 7 * 86_400_000),
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:pt0.0019s", 1),
        ("by_duration:PT0S", 0),
    ],
)
def test_a_reset_by_duration_is_parsed(policy: str, duration_ms: int):
    assert reset_duration_ms(policy) == duration_ms
    options = {"bootstrap_servers": "b", "auto_offset_reset": policy}
    assert make_config(ConsumerConfig, options).auto_offset_reset == policy


@pytest.mark.parametrize(
    "policy",
    ["by_duration", "P1D", *(f"by_duration:{text}" for text in (
        "", "P", "PT", "P1DT", "1D", "P1", "PT1D", "P1H", "PT1S1M", "P1W", "P1Y", "P-1D", "-P1D",
        "PT.5S", "PT1,5S", "P1D ", "P999999999999999999D",
    ))],
)  # fmt: skip
def test_an_invalid_duration_is_rejected(policy: str):
    with pytest.raises(InvalidOption, match="by_duration:PnDTnHnMnS"):
        make_config(ConsumerConfig, {"bootstrap_servers": "b", "auto_offset_reset": policy})
