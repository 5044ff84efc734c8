"""Columns of records: all are checked before the first is appended."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.errors import RecordTooLarge
from aiokafkawire.producer.record_columns import RecordColumns


def columns(
    values: Any, keys: Any = None, partition: int | None = None, **rest: Any
) -> RecordColumns:
    given = {"timestamps_ms": None, "headers": None, "max_bytes": 1_000} | rest
    return RecordColumns("t", values, keys, partition, **given)


@pytest.mark.parametrize("kind", [list, tuple])
def test_columns_of_bytes_are_fast(kind: Any):
    values = kind([b"a", None, b"bc"])
    taken = columns(values)
    assert taken.is_fast
    assert taken.values == values
    assert taken.count == 3
    assert taken.record(2)[:2] == ("t", b"bc")


def test_an_arrow_array_is_a_column():
    pyarrow = pytest.importorskip("pyarrow")
    taken = columns(pyarrow.array([b"a", None]), pyarrow.chunked_array([[b"k"], [b"l"]]), 0)
    assert taken.is_fast
    assert (taken.values, taken.keys) == ([b"a", None], [b"k", b"l"])


@pytest.mark.parametrize(
    "given",
    [
        {"values": [b"a", bytearray(b"b")]},
        {"values": [b"a", b"b"], "keys": [b"k", b"k"]},  # The key decides the partition.
        {"values": [b"a", b"b"], "timestamps_ms": [1, None]},
        {"values": [b"a", b"b"], "headers": [(), ()]},
    ],
    ids=["to be copied", "keys", "timestamps", "headers"],
)
def test_other_columns_are_appended_record_by_record(given: Any):
    taken = columns(**given)
    assert not taken.is_fast
    assert taken.record(1)[1] == b"b"


def test_headers_may_be_iterators():
    header = ("h", b"1")
    taken = columns([b"a", b"b"], headers=[iter([header]), (pair for pair in [header])])
    for _ in range(2):
        assert [taken.record(index)[5] for index in range(2)] == [(header,), (header,)]


def test_the_caller_may_change_the_columns_during_the_call():
    values, content = [b"a", b"b"], bytearray(b"c")
    plain, copied = columns(values), columns([content])
    values.clear()
    content[:] = b"other"
    assert plain.record(1)[1] == b"b"
    assert copied.record(0)[1] == b"c"


def test_keys_with_an_explicit_partition_are_fast():
    assert columns([b"a"], [b"k"], 1).is_fast


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"values": [b"a", "text"]}, TypeError),
        ({"values": [b"a", b"b"], "keys": [None, 1]}, TypeError),
        ({"values": [b"a", b"x" * 1_000]}, RecordTooLarge),
        ({"values": [b"a", None, b"x" * 1_000]}, RecordTooLarge),
        ({"values": [b"x" * 500], "keys": [b"k" * 500], "partition": 0}, RecordTooLarge),
        ({"values": [b"a"], "partition": -1}, ValueError),
        ({"values": [b"a", b"b"], "keys": [b"k"]}, ValueError),
        ({"values": [b"a", b"b"], "timestamps_ms": [1, -1]}, ValueError),
    ],
)
def test_a_wrong_record_fails_before_any_is_appended(given: Any, error: type[Exception]):
    with pytest.raises(error):
        columns(**given)


def test_large_parts_of_different_records_do_not_add_up():
    taken = columns([b"x" * 700, b"a"], [b"k", b"k" * 700], 0)
    assert not taken.is_fast  # checked one by one
    assert taken.count == 2


def test_empty_columns():
    assert columns([]).count == 0
