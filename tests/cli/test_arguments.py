from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.broker import BrokerConfig
from aiokafkawire.cli.arguments import (
    OffsetArgument,
    OffsetKind,
    client_options,
    parse_assignments,
    parse_delimiter,
    parse_header,
    parse_offset,
    unescape,
)
from aiokafkawire.config import ConsumerConfig, ProducerConfig
from aiokafkawire.errors import InvalidOption


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", OffsetArgument(OffsetKind.BEGINNING)),
        ("end", OffsetArgument(OffsetKind.END)),
        ("stored", OffsetArgument(OffsetKind.STORED)),
        ("0", OffsetArgument(OffsetKind.OFFSET, 0)),
        ("17", OffsetArgument(OffsetKind.OFFSET, 17)),
        ("-3", OffsetArgument(OffsetKind.END, 3)),
        ("s@1700000000000", OffsetArgument(OffsetKind.FROM_TIME, 1_700_000_000_000)),
        ("e@5", OffsetArgument(OffsetKind.UNTIL_TIME, 5)),
        ("s@2026-11-24T10:00:00Z", OffsetArgument(OffsetKind.FROM_TIME, 1_795_514_400_000)),
        ("e@2026-11-24T10:00:00.5Z", OffsetArgument(OffsetKind.UNTIL_TIME, 1_795_514_400_500)),
        ("s@2026-11-24T11:00:00+01:00", OffsetArgument(OffsetKind.FROM_TIME, 1_795_514_400_000)),
        ("s@2026-11-24 10:00", OffsetArgument(OffsetKind.FROM_TIME, 1_795_514_400_000)),
        ("s@2026-11-24", OffsetArgument(OffsetKind.FROM_TIME, 1_795_478_400_000)),
        ("s@20261124T100000Z", OffsetArgument(OffsetKind.FROM_TIME, 1_795_514_400_000)),
        ("s@1970-01-01T00:00:00Z", OffsetArgument(OffsetKind.FROM_TIME, 0)),
        # No record has a part of a millisecond: the first one after it is meant.
        ("s@1970-01-01T00:00:00.000001Z", OffsetArgument(OffsetKind.FROM_TIME, 1)),
        ("s@9223372036854775807", OffsetArgument(OffsetKind.FROM_TIME, 2**63 - 1)),
    ],
)
def test_offsets(text: str, position: OffsetArgument) -> None:
    assert parse_offset(text) == position


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "first", "1.5", "s@", "x@3", "@3", "--3", "s@-3", "²", "s@²"),
        *("s@yesterday", "s@2026-13-01", "s@10:00", "x@2026-11-24", "s@1969-12-31T23:59:59Z"),
        *("s@9223372036854775808", "9223372036854775808", "-9223372036854775808"),
        "s@0001-01-01T00:00:00+23:59",
    ],
)
def test_what_is_no_offset_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"beginning, end, stored, N, -N"):
        parse_offset(text)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a", b"a"),
        ("\\n\\t\\r\\0", b"\n\t\r\0"),
        ("a\\x41b", b"aAb"),
        ("\\xff", b"\xff"),
        ("\\\\n", b"\\n"),
        ("é", "é".encode()),
    ],
)
def test_escapes(text: str, data: bytes) -> None:
    assert unescape(text) == data


@pytest.mark.parametrize("text", ["\\", "\\q", "\\x", "\\x4", "\\xzz"])
def test_bad_escapes_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption):
        unescape(text)


def test_a_delimiter_must_not_be_empty() -> None:
    assert parse_delimiter("-K", ":") == b":"
    with pytest.raises(InvalidOption, match="-K must not be empty"):
        parse_delimiter("-K", "")


def test_headers() -> None:
    assert parse_header("a=b=c") == ("a", b"b=c")
    assert parse_header("a=") == ("a", b"")
    assert parse_header("a") == ("a", None)
    with pytest.raises(InvalidOption, match="has no name"):
        parse_header("=b")


BASE: dict[str, Any] = {"bootstrap_servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("assignment", "name", "value"),
    [
        ("linger_ms=50", "linger_ms", 50),
        ("linger.ms=50", "linger_ms", 50),
        ("acks=all", "acks", "all"),
        ("acks=1", "acks", 1),
        ("acks=-1", "acks", -1),
        ("enable_idempotence=false", "enable_idempotence", False),
        ("enable_idempotence=none", "enable_idempotence", None),
        ("allow_auto_create_topics=no", "allow_auto_create_topics", False),
        ("compression_type=gzip", "compression_type", "gzip"),
        ("client_id=a=b", "client_id", "a=b"),
        ("api_version=0.10", "api_version", "0.10"),
    ],
)
def test_producer_options_take_their_type(assignment: str, name: str, value: object) -> None:
    options = client_options(ProducerConfig, [assignment], BASE)
    assert options[name] == value
    assert type(options[name]) is type(value)


def test_what_commands_give_goes_before_x_and_x_before_defaults() -> None:
    options = client_options(
        ConsumerConfig,
        ["group_id=a", "fetch_min_bytes=2"],
        {**BASE, "group_id": "b", "client_id": None},
        {"fetch_min_bytes": 3, "max_poll_records": 4},
    )
    assert options == {**BASE, "group_id": "b", "fetch_min_bytes": 2, "max_poll_records": 4}


def test_options_of_the_broker_take_their_type_too() -> None:
    assignments = ["as_of=2.8", "default_replication_factor=none", "segment.bytes=1024"]
    options = parse_assignments(BrokerConfig, assignments)
    assert options == {"as_of": "2.8", "default_replication_factor": None, "segment_bytes": 1024}


def test_assignors_are_a_list() -> None:
    options = client_options(ConsumerConfig, ["partition_assignment_strategy=range, range"], BASE)
    assert options["partition_assignment_strategy"] == ("range", "range")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("lingerms=5", "did you mean 'linger_ms'"),
        ("compression.typ=gzip", "did you mean 'compression_type'"),
        ("linger_ms=soon", "linger_ms must be a whole number, not 'soon'"),
        ("acks=most", "acks must be 'all', -1, 0 or 1, not 'most'"),
        ("linger_ms=-1", "linger_ms must be at least 0"),
        ("compression_type=zip", "compression_type must be one of 'none', 'gzip'"),
        ("allow_auto_create_topics=perhaps", "must be true or false"),
        ("partitioner=round_robin", "takes a Python object"),
        ("linger_ms", "not of the form option=value"),
        ("=5", "not of the form option=value"),
    ],
)
def test_wrong_options_are_named(assignment: str, message: str) -> None:
    with pytest.raises(InvalidOption) as failure:
        client_options(ProducerConfig, [assignment], BASE)
    assert message in str(failure.value)
