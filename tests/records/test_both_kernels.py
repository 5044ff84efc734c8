"""The compiled kernel gives what its source gives, results and errors, for hostile bytes too."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records.columns import Columns
from aiokafkawire.records.headers import encode_headers

from .kernels import both_kernels

MAX_INT64, MIN_INT64 = (1 << 63) - 1, -(1 << 63)
COLUMNS = ("offsets", "timestamps", "key_start", "key_length", "value_start", "value_length")
FIELDS = (
    "topic", "partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers",
    "leader_epoch",
)  # fmt: skip
INT64 = st.integers(MIN_INT64, MAX_INT64)
TIMES = st.integers(0, 1 << 42) | st.sampled_from([-1, 0, MAX_INT64, MIN_INT64]) | INT64
CONTENT = st.none() | st.binary(max_size=90) | st.just(b"v" * 9000)
HEADERS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=5)), max_size=3)
RECORDS = st.lists(st.tuples(TIMES, CONTENT, CONTENT, HEADERS), max_size=12)

COMPILED, SOURCE = both_kernels()


class Derived(bytes):
    """A subclass of bytes, which the kernel leaves to the caller."""


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, or its error: for our own errors with text and offset."""
    try:
        return function(*arguments)
    except CorruptRecord as error:
        return type(error), str(error), error.offset
    except (IndexError, OverflowError, TypeError) as error:
        return type(error)


def same(name: str, *arguments: Any) -> Any:
    compiled = outcome(getattr(COMPILED, name), *arguments)
    assert compiled == outcome(getattr(SOURCE, name), *arguments)
    return compiled


@given(st.binary(max_size=300))
def test_the_hash_of_a_key(key: bytes) -> None:
    assert same("murmur2", key) == COMPILED.murmur2(memoryview(key))


@given(
    st.lists(st.none() | st.binary(max_size=5) | st.sampled_from([b"x" * 40])),
    st.lists(st.sampled_from([bytearray(b"b"), memoryview(b"m"), "s", 1, Derived(b"d")])),
    st.randoms(),
)
def test_the_longest_of_a_column(plain: list[Any], others: list[Any], rng: Random) -> None:
    column = [*plain, *others]
    rng.shuffle(column)
    expected = -1 if others else max((len(entry or b"") for entry in plain), default=0)
    assert same("longest", column) == same("longest", tuple(column)) == expected


@pytest.mark.parametrize("name", ["partition", "offset", "timestamp_ms", "leader_epoch"])
@pytest.mark.parametrize("value", [1.5, 1.0, "1", None])
def test_a_record_takes_no_number_that_is_not_whole(name: str, value: Any) -> None:
    fields = {"topic": "t", "partition": 0, "offset": 0, name: value}
    for module in (COMPILED, SOURCE):
        with pytest.raises(TypeError, match="integer"):
            module.Record(**fields)


@given(INT64 | st.integers())
def test_varints_are_written(value: int) -> None:
    same("encode_varint", value)


@settings(max_examples=300)
@given(st.binary(max_size=12), st.integers(0, 13), st.sampled_from([5, 10]))
@example(b"\xff" * 9 + b"\x01", 0, 10)
@example(b"\xff" * 9 + b"\x02", 0, 10)
@example(b"\xff" * 9 + b"\x7f", 0, 10)
@example(b"\xff" * 9 + b"\x80", 0, 10)
@example(b"\xff" * 4 + b"\x7f", 0, 5)
def test_varints_are_read(data: bytes, position: int, max_bytes: int) -> None:
    same("decode_varint", data, position, max_bytes)


@settings(max_examples=300)
@given(RECORDS, st.integers(0, 2000))
def test_a_batch_under_way(records: list[Any], limit: int) -> None:
    made = []
    for module in (COMPILED, SOURCE):
        under_way = module.RecordBuffer(limit)
        under_way.future = "future"
        results: list[Any] = []
        for timestamp, key, value, headers in records:
            results.append(outcome(under_way.add, timestamp, key, value, encode_headers(headers)))
            placed = outcome(under_way.put, timestamp, key, value)
            if isinstance(placed, module.RecordHandle):
                placed = placed.future, placed.index, placed.timestamp_ms
            results.append(placed)
        keys, values = [row[1] for row in records], [row[2] for row in records]
        results.append(outcome(under_way.put_many, 5, None, values, 0, len(values)))
        results.append(outcome(under_way.put_many, 5, keys, tuple(values), 0, len(values)))
        results += [under_way.count, under_way.base_timestamp, under_way.max_timestamp]
        results += [under_way.body_bytes, under_way.is_full, under_way.take_body()]
        made.append(results)
    assert made[0] == made[1]


@pytest.mark.parametrize("other", ["text", 5, bytearray(b"x"), memoryview(b"x")])
def test_what_is_no_bytes_is_left_to_the_caller(other: Any) -> None:
    for module in (COMPILED, SOURCE):
        under_way = module.RecordBuffer(1000)
        assert under_way.put_many(5, [b"k", other], [b"v", b"v"], 0, 2) == 1
        assert under_way.put_many(5, None, (b"v", other), 0, 2) == 1
        assert under_way.put(5, None, other) is None
        assert under_way.put(5, other, b"v") is None
        assert under_way.count == 2


def test_a_delivery_is_of_the_class_that_was_asked_for() -> None:
    for module in (COMPILED, SOURCE):

        class Delivery(module.RecordHandle):  # type: ignore[misc, name-defined]
            __slots__ = ()

            def __init__(self) -> None:
                raise AssertionError("not called")

        under_way = module.RecordBuffer(1000)
        under_way.future, under_way.handle_class = "future", Delivery
        assert under_way.put(5, None, b"v") is None
        assert under_way.add(5, None, b"v", b"\0") == 0
        delivery = under_way.put(6, b"k", b"v")
        assert type(delivery) is Delivery
        assert (delivery.future, delivery.index, delivery.timestamp_ms) == ("future", 1, 6)


def test_a_class_that_is_no_delivery_is_refused() -> None:
    under_way = COMPILED.RecordBuffer(1000)
    under_way.add(5, None, b"v", b"\0")
    with pytest.raises(TypeError):
        under_way.handle_class = 5
    for kind in (str, None):
        under_way.handle_class = kind
        with pytest.raises(TypeError):
            under_way.put(5, None, b"v")
    assert under_way.count == 1


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, int]:
    """Encoded records and their count; offsets with gaps."""
    under_way = SOURCE.RecordBuffer(1 << 30)
    time = draw(st.integers(0, 1 << 42))
    rows = draw(st.lists(st.tuples(st.integers(-9, 9000), CONTENT, CONTENT, HEADERS), max_size=9))
    for late, key, value, headers in rows:
        under_way.add(time + late, key, value, encode_headers(headers))
        under_way.count += draw(st.sampled_from([0, 0, 1, 70]))
    return under_way.take_body(), len(rows)


def decoded(module: Any, data: Any, count: int, base_offset: int, base_timestamp: int) -> Any:
    """All that can be learnt of the records, or the error."""
    columns = Columns(data, count)
    columns.data = data if module is COMPILED else bytes(data)
    end = outcome(module.decode_records, columns, 0, count, base_offset, base_timestamp, 0, -1)
    if not isinstance(end, int):
        return end
    records = module.make_records(columns, 0, count, "topic", 1, 0, 5)
    found = [[getattr(record, name) for name in FIELDS] for record in records]
    pieces = []
    for starts, lengths in (
        (columns.key_start, columns.key_length),
        (columns.value_start, columns.value_length),
    ):
        size = module.total(lengths, 0, count)
        content, ends = bytearray(size), array("i", bytes(4 * (count + 1)))
        valid = bytearray((count + 7) // 8)
        half = count // 2
        for start, stop in ((0, half), (half, count)):
            part = (columns.data, starts, lengths, start, stop)
            module.fill_binary(*part, content, ends, valid, start)
        pieces += [module.slices(columns.data, starts, lengths, 0, count), content, ends, valid]
    return end, columns.has_headers, [getattr(columns, name) for name in COLUMNS], found, pieces


BASES = st.tuples(
    st.sampled_from([0, 10**12, MAX_INT64 - 60]), st.sampled_from([0, 10**12, MAX_INT64, MIN_INT64])
)


def assert_same(data: bytes, count: int, bases: tuple[int, int]) -> None:
    expected = decoded(SOURCE, data, count, *bases)
    for form in (bytes, bytearray, memoryview):
        assert decoded(COMPILED, form(data), count, *bases) == expected


@settings(max_examples=200)
@given(batches(), BASES)
def test_honest_batches(batch: tuple[bytes, int], bases: tuple[int, int]) -> None:
    assert_same(*batch, bases)


@settings(max_examples=300)
@given(batches(), BASES, st.data())
def test_damaged_batches(
    batch: tuple[bytes, int], bases: tuple[int, int], data: st.DataObject
) -> None:
    content, count = bytearray(batch[0]), batch[1] + data.draw(st.integers(0, 1))
    for _ in range(data.draw(st.integers(1, 3)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
            st.integers(0, 255) | st.sampled_from([0x7F, 0x80, 0xFF, 1])
        )
    cut = data.draw(st.integers(0, len(content)))
    assert_same(bytes(content), count, bases)
    assert_same(bytes(content[:cut]), count, bases)


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 4), BASES)
def test_any_bytes(data: bytes, count: int, bases: tuple[int, int]) -> None:
    assert_same(data, count, bases)


@pytest.mark.parametrize("module", [COMPILED, SOURCE])
def test_a_header_ends_inside_the_data(module: Any) -> None:
    """Though the record claims to be as long."""
    data = b"\x1a\0\0\0\x01\x01\x02\x02h\x08ab"
    assert len(data) == 12  # of the 14 that it announces
    with pytest.raises(CorruptRecord, match="past its record"):
        module.decode_records(Columns(data, 1), 0, 1, 0, 0, 0, -1)


LIES = [-2, -(1 << 62), MIN_INT64, 1 << 62, MAX_INT64, 4, 1 << 32]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("column", ["key_start", "value_start", "key_length", "value_length"])
def test_a_position_that_lies_reads_nothing(column: str, lie: int) -> None:
    columns = Columns(b"abc", 1)
    columns.key_length[0] = columns.value_length[0] = 1
    getattr(columns, column)[0] = lie
    null = column.endswith("length") and lie < 0
    part = column.partition("_")[0]
    pieces = columns.data, getattr(columns, f"{part}_start"), getattr(columns, f"{part}_length")
    out, ends, valid = bytearray(9), array("i", bytes(8)), bytearray(1)
    calls = [
        lambda: COMPILED.make_records(columns, 0, 1, "topic", 0, 0, 0)[0],
        lambda: COMPILED.slices(*pieces, 0, 1)[0],
        lambda: COMPILED.fill_binary(*pieces, 0, 1, out, ends, valid, 0),
    ]
    for call in calls:
        if null:
            assert getattr(call(), part, None) is None
        else:
            with pytest.raises(IndexError):
                call()


def test_indexes_that_lie_reach_no_memory() -> None:
    columns = Columns(b"abc", 2)
    ends, valid = array("i", bytes(12)), bytearray(1)
    pieces = columns.data, columns.key_start, columns.key_length
    columns.key_length[0] = 3
    for start, stop in ((-1, 1), (0, 3), (0, MAX_INT64)):
        with pytest.raises(IndexError):
            COMPILED.make_records(columns, start, stop, "topic", 0, 0, 0)
        with pytest.raises(IndexError):
            COMPILED.decode_records(columns, start, stop, 0, 0, 0, -1)
        with pytest.raises(IndexError):
            COMPILED.slices(*pieces, start, stop)
        with pytest.raises(IndexError):
            COMPILED.total(columns.key_length, start, stop)
    for position in (4, MAX_INT64):
        with pytest.raises(IndexError):
            COMPILED.decode_records(columns, 0, 1, 0, 0, position, -1)
        with pytest.raises(IndexError):
            COMPILED.decode_headers(b"abc", position)
    for row in (-1, 2, 1 << 40):
        with pytest.raises(IndexError):
            COMPILED.fill_binary(*pieces, 0, 1, bytearray(3), ends, valid, row)
    with pytest.raises(IndexError):
        COMPILED.fill_binary(*pieces, 0, 1, bytearray(2), ends, valid, 0)
    with pytest.raises((IndexError, TypeError)):
        COMPILED.slices(b"abc", array("b", b"abc"), columns.key_length, 0, 1)
    columns.key_start = [0, 0]  # type: ignore[assignment]
    with pytest.raises(TypeError):
        COMPILED.make_records(columns, 0, 1, "topic", 0, 0, 0)
