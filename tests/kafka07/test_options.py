"""Validation of the client's options."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest

from aiokafkawire.config import list_options
from aiokafkawire.errors import InvalidOption
from aiokafkawire.kafka07 import Client, Kafka07Config, Kafka07Options


def test_keyword_arguments_match_the_config() -> None:
    of_class = typing.get_type_hints(Kafka07Config)
    fields = {field.name: of_class[field.name] for field in dataclasses.fields(Kafka07Config)}
    del fields["server"]
    assert typing.get_type_hints(Kafka07Options) == fields
    expected = [option for option in list_options(Kafka07Config) if option.name in fields]
    assert all(str(option) in str(Kafka07Options.__doc__) for option in expected)


@pytest.mark.parametrize(
    ("server", "options", "expected"),
    [
        ("here:0", {}, "port"),
        ("", {}, "host"),
        (1, {}, "server must be a string"),
        ("here", {"fetch_size": 1}, "unknown option 'fetch_size'; did you mean 'fetch_size_bytes'"),
        ("here", {"fetch_size_bytes": 0}, "fetch_size_bytes must be at least 1"),
        ("here", {"fetch_size_bytes": True}, "whole number"),
        ("here", {"fetch_size_bytes": 2**30}, "must not be above fetch_size_max_bytes"),
        ("here", {"max_response_bytes": 2**20}, "must not be above max_response_bytes"),
        ("here", {"retry_backoff_ms": 2_000}, "must not be above retry_backoff_max_ms"),
        ("here", {"compression_type": "lz4"}, "'none', 'gzip', 'snappy'"),
    ],
)
def test_invalid_options(server: Any, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidOption, match=expected):
        Client(server, **options)


def test_repr_names_the_server() -> None:
    client = Client("here")
    assert repr(client) == "<kafka07.Client server='here:9092' (not started yet)>"
    assert client.config.fetch_size_bytes == 2**20
