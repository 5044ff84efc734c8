"""Decoding by slices gives what decoding one record after the other gives, errors too."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import fixed_stride
from aiokafkawire.records.columns import Columns
from aiokafkawire.records.headers import encode_headers
from aiokafkawire.records.kernel import RecordBuffer, decode_records

BASE_OFFSET, BASE_TIMESTAMP = 10**12, 1_700_000_000_000
COLUMNS = ("offsets", "timestamps", "key_start", "key_length", "value_start", "value_length")

Row = tuple[int, int, bytes | None, bytes | None, bool]


def encoded(rows: list[Row]) -> bytes:
    under_way = RecordBuffer(1 << 30)
    for offset, timestamp, key, value, header in rows:
        if not under_way.count:
            under_way.base_timestamp = 0
        under_way.count = offset  # which leaves some out
        headers = encode_headers([("h", b"1")] if header else [])
        assert under_way.add(timestamp, key, value, headers) == offset
    return under_way.take_body()


def outcome(decode: object, data: bytes, count: int) -> object:
    columns = Columns(data, count)
    try:
        end = decode(columns, 0, count, BASE_OFFSET, BASE_TIMESTAMP, 0, -1)  # type: ignore[operator]
    except (CorruptRecord, IndexError, OverflowError) as error:
        return type(error), str(error)
    return end, columns.has_headers, [getattr(columns, name) for name in COLUMNS]


def assert_same(data: bytes, count: int) -> None:
    assert outcome(fixed_stride.decode_fixed_stride, data, count) == outcome(
        decode_records, data, count
    )


def test_many_records_of_one_shape_are_a_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset delta takes a byte more from 64 and from 8192 on."""
    one_by_one: list[int] = []

    def counting(columns: Columns, start: int, stop: int, *rest: int) -> int:
        one_by_one.append(stop - start)
        return decode_records(columns, start, stop, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fixed_stride, "decode_records", counting)
    data = encoded([(n, n // 50, b"key", b"v" * 100, False) for n in range(8192)])
    columns = Columns(data, 8192)
    assert fixed_stride.decode_fixed_stride(
        columns, 0, 8192, BASE_OFFSET, BASE_TIMESTAMP, 0, -1
    ) == len(data)
    assert sum(one_by_one) == 0
    assert columns.offsets == array("q", range(BASE_OFFSET, BASE_OFFSET + 8192))
    assert columns.timestamps == array("q", [BASE_TIMESTAMP + n // 50 for n in range(8192)])
    assert columns.key(8191) == b"key"
    assert columns.value(5000) == b"v" * 100


@pytest.mark.parametrize("count", [1, 15, 16, 63, 64, 65, 300, 8191, 8193, 9000])
@pytest.mark.parametrize("key", [None, b"", b"k" * 70])
def test_runs_of_every_length(count: int, key: bytes | None) -> None:
    assert_same(encoded([(n, n, key, b"value", False) for n in range(count)]), count)


@pytest.mark.parametrize("step", [0, 1, 63, 130, 1000, -1])
def test_timestamps_of_every_width(step: int) -> None:
    assert_same(encoded([(n, n * step, None, b"v" * 200, False) for n in range(200)]), 200)


RUN = st.tuples(
    st.integers(1, 100),  # records
    st.none() | st.binary(max_size=80),
    st.none() | st.binary(max_size=200),
    st.integers(-3, 5000),  # timestamp of the first
    st.integers(0, 3),  # and how much each is later
    st.sampled_from([0, 0, 0, 1, 70]),  # offsets left out before it
    st.sampled_from([False, False, True]),
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, int]:
    rows: list[Row] = []
    offset = 0
    for count, key, value, first, step, gap, header in draw(st.lists(RUN, min_size=1, max_size=4)):
        offset += gap
        rows += [(offset + n, first + n * step, key, value, header) for n in range(count)]
        offset += count
    return encoded(rows), len(rows)


@settings(max_examples=60, deadline=None)
@given(batches())
def test_any_batch(batch: tuple[bytes, int]) -> None:
    assert_same(*batch)


@settings(max_examples=150, deadline=None)
@given(batches(), st.data())
@pytest.mark.slow
def test_any_damaged_batch(batch: tuple[bytes, int], data: st.DataObject) -> None:
    content, count = bytearray(batch[0]), batch[1]
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    assert_same(bytes(content), count)
    assert_same(bytes(content[:cut]), count)
