from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.cli.json_lines import InvalidLine, from_json, to_json
from aiokafkawire.records import Record

data = (
    st.none()
    | st.binary(max_size=30)
    | st.text(max_size=30).map(lambda text: text.encode("utf-8", "replace"))
)


def test_the_documented_form() -> None:
    record = Record(
        "orders", 3, 17, timestamp_ms=5, key=b"k", value=b"\xff", headers=(("h", None),)
    )
    assert json.loads(to_json(record)) == {
        "topic": "orders",
        "partition": 3,
        "offset": 17,
        "timestamp_ms": 5,
        "timestamp_type": "create_time",
        "key": "k",
        "value_base64": "/w==",
        "headers": [{"name": "h", "value": None}],
    }


@given(
    key=data,
    value=data,
    headers=st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), data)),
    timestamp_ms=st.integers(-1, 2**62),
)
@pytest.mark.slow
def test_what_is_written_reads_back(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp_ms: int,
) -> None:
    record = Record(
        "t", 1, 2, timestamp_ms=timestamp_ms, key=key, value=value, headers=tuple(headers)
    )
    line = to_json(record)
    assert line.count(b"\n") == 1
    back = from_json(line)
    assert (back.key, back.value, back.headers) == (key, value, tuple(headers))
    assert (back.topic, back.partition) == ("t", 1)
    assert back.timestamp_ms == (None if timestamp_ms == -1 else timestamp_ms)


def test_only_what_is_to_be_sent_needs_to_be_there() -> None:
    back = from_json(b'{"value": "v"}')
    assert (back.value, back.key, back.topic, back.partition) == (b"v", None, None, None)
    assert from_json(b"{}").value is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"vlaue": "v"}', "unknown field 'vlaue'; did you mean 'value'"),
        (b'{"zzz": 1}', "fields: topic, partition"),
        (b'{"value": 5}', "value_base64 takes any bytes"),
        (b'{"value": {"a": 1}}', "must be a string or null"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both given"),
        (b'{"key_base64": "%"}', "not base64"),
        (b'{"key_base64": 5}', "must be a string"),
        (b'{"partition": -1}', "at least 0"),
        (b'{"partition": true}', "whole number"),
        (b'{"timestamp_ms": "now"}', "whole number"),
        (b'{"topic": 5}', "topic must be a string"),
        (b'{"topic": "bad topic!"}', "'bad topic!' is not a valid topic name"),
        (b'{"headers": {}}', "must be a list"),
        (b'{"headers": [1]}', "a header must be an object"),
        (b'{"headers": [{"value": "v"}]}', "a header must be an object"),
        (b'{"headers": [{"name": "n", "val": "v"}]}', "did you mean 'value'"),
    ],
)
def test_what_is_wrong_is_said(line: bytes, reason: str) -> None:
    with pytest.raises(InvalidLine) as failure:
        from_json(line)
    assert reason in str(failure.value)
