"""Batches as they stand in the log: fields, checksums, and every way in which they can lie."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import BatchView, Compression, iter_batches
from aiokafkawire.records.batch import CHUNK_RECORDS
from aiokafkawire.records.columns import RECORD_COLUMN_BYTES
from aiokafkawire.records.compression import DecompressionLimitExceeded
from aiokafkawire.records.kernel import encode_varint
from aiokafkawire.types import TimestampType

from .record_data import ROWS, batch, patched, raw_batch, record, view

TEXT = st.text(st.characters(codec="utf-8"), max_size=9)
ROW = st.tuples(
    st.integers(-1, 1 << 50),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(TEXT, st.none() | st.binary(max_size=9)), max_size=3),
)


@settings(max_examples=50)
@given(
    st.lists(ROW, min_size=1, max_size=30),
    st.sampled_from(Compression),
    st.integers(0, 1 << 62),
)
def test_round_trip(rows: list[object], compression: Compression, base_offset: int) -> None:
    found = view(batch(rows, base_offset, compression))  # type: ignore[arg-type]
    found.check_crc()
    columns = found.columns()
    assert found.count == len(columns) == len(rows)
    assert list(columns.offsets) == list(range(base_offset, base_offset + len(rows)))
    assert found.last_offset == columns.offsets[-1]
    assert [
        (columns.timestamps[i], columns.key(i), columns.value(i), list(columns.headers(i)))
        for i in range(len(rows))
    ] == rows


@pytest.mark.parametrize("size", [62, 63, 64, 127, 128, 8191, 8192, 8193, 1_100_000])
def test_sizes_where_varints_grow(size: int) -> None:
    row = (-(1 << 40), b"k" * size, b"v" * size, [("h" * size, b"x" * size)])
    columns = view(batch([(0, b"", b"", ()), row, *[(size, None, None, ())] * 70])).columns()
    assert (columns.key(1), columns.value(1)) == row[1:3]
    assert columns.headers(1) == tuple(row[3])
    assert columns.timestamps[1] == row[0]
    assert columns.timestamps[71] == size


def test_fields() -> None:
    data = batch(
        ROWS, 70, Compression.ZSTD, producer_id=5, producer_epoch=2, base_sequence=(1 << 31) - 2,
        transactional=True, leader_epoch=9,
    )  # fmt: skip
    found = view(data)
    assert found.size_bytes == len(data) == len(found.buffer)
    assert (found.base_offset, found.last_offset, found.next_offset) == (70, 73, 74)
    assert (found.producer_id, found.producer_epoch) == (5, 2)
    assert (found.base_sequence, found.last_sequence) == ((1 << 31) - 2, 1)
    assert found.is_transactional
    assert not found.is_control
    assert found.partition_leader_epoch == 9
    assert found.compression is Compression.ZSTD
    assert found.timestamp_type is TimestampType.CREATE_TIME
    assert (found.base_timestamp, found.max_timestamp) == (1000, 5_000_000)
    assert found.delete_horizon_ms is None


def test_a_partial_last_batch_is_dropped_or_an_error() -> None:
    whole = batch(base_offset=5)
    for cut in range(1, len(whole)):
        data = whole + whole[:cut]
        assert [found.base_offset for found in iter_batches(data)] == [5]
        with pytest.raises(CorruptRecord, match="cut off"):
            list(iter_batches(data, allow_partial=False))
    assert len(list(iter_batches(whole * 3, allow_partial=False))) == 3
    assert list(iter_batches(b"")) == []


def test_nothing_is_copied() -> None:
    data = bytearray(batch() * 2)
    first, second = iter_batches(data)
    assert first.buffer.obj is data
    assert second.buffer.obj is data


def test_a_wrong_checksum_names_the_offset() -> None:
    data = bytearray(batch(base_offset=12))
    data[-1] ^= 1
    with pytest.raises(CorruptRecord, match="checksum") as caught:
        view(bytes(data)).check_crc()
    assert caught.value.offset == 12


def test_chunks_are_the_whole() -> None:
    rows = [(n, b"%d" % n, None, ()) for n in range(1000)]
    found = view(batch(rows, 7, Compression.LZ4))
    whole = found.columns()
    chunks = list(found.chunks(max_records=300))
    assert [len(chunk) for chunk in chunks] == [300, 300, 300, 100]
    for name in ("offsets", "timestamps", "key_length", "value_length", "key_start"):
        joined = [number for chunk in chunks for number in getattr(chunk, name)]
        assert joined == list(getattr(whole, name))


GOOD = record(0) + record(1) + record(2)


@pytest.mark.parametrize(
    ("payload", "count", "fields", "reason"),
    [
        (GOOD, 4, {}, "cannot hold|reaches past"),
        (GOOD, 2, {}, "follow the last"),
        (GOOD, 0, {"last_delta": 2}, "without records"),
        (GOOD, -1, {}, "-1 records"),
        (GOOD, (1 << 31) - 1, {}, "cannot hold"),
        (GOOD, 3, {"last_delta": 1}, "after the last offset of its batch"),
        (GOOD, 3, {"last_delta": -1}, "cannot run"),
        (GOOD, 3, {"base_offset": -1}, "cannot run"),
        (GOOD, 3, {"base_offset": (1 << 63) - 2}, "cannot run"),
        (GOOD, 3, {"attributes": 5}, "codec 5"),
        (GOOD + b"\0", 3, {}, "follow the last"),
        (record(1) + record(1), 2, {}, "do not rise"),
        (record(1) + record(0), 2, {}, "do not rise"),
        (record(-1) + record(0), 2, {}, "do not rise"),
        (record(0, size=5) + record(1), 2, {}, "length is wrong"),
        (record(0, size=-1) + record(1), 2, {}, "length is wrong"),
        (record(0, size=1 << 30) + record(1), 2, {}, "length is wrong"),
        (record(0, key=encode_varint(100)) + record(1), 2, {}, "reaches past"),
        (record(0, key=encode_varint(9) + b"k") + record(1), 2, {}, "1 headers"),
        (record(0, value=encode_varint((1 << 31) - 1)), 1, {}, "reaches past"),
        (record(0, headers=encode_varint(-1)), 1, {}, "-1 headers"),
        (record(0, headers=encode_varint(1 << 30)), 1, {}, "headers"),
        (record(0, headers=encode_varint(1) + encode_varint(-1)), 1, {}, "no key"),
        (record(0, headers=encode_varint(2) + b"\0\0"), 1, {}, "reaches past"),
        (record(0, headers=b"\x02\x02a\x14") + record(1) * 3, 2, {}, "past its record"),
        (record(0, timestamp_delta=b"\x80" * 10 + b"\0"), 1, {}, "10 bytes"),
        (record(0, key=b"\x80" * 6 + b"\0"), 1, {}, "5 bytes"),
        (record(0, timestamp_delta=b"\x02"), 1, {"base_timestamp": (1 << 63) - 1}, "reaches past"),
    ],
)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_lies_inside_a_batch(
    payload: bytes, count: int, fields: dict[str, int], reason: str, codec: Compression
) -> None:
    fields = {"attributes": codec.value, **fields}
    found = view(raw_batch(payload, count, **fields))
    found.check_crc()
    with pytest.raises(CorruptRecord, match=reason) as caught:
        found.columns()
    assert caught.value.offset is not None
    assert caught.value.offset >= found.base_offset


def test_gaps_and_an_empty_batch_are_fine() -> None:
    found = view(raw_batch(record(1) + record(4), 2, last_delta=9))
    assert list(found.columns().offsets) == [101, 104]
    assert found.next_offset == 110
    empty = view(raw_batch(b"", 0, last_delta=9))
    assert len(empty.columns()) == 0
    assert empty.next_offset == 110


@pytest.mark.parametrize(
    ("position", "form", "value", "reason"),
    [
        (8, ">i", 13, "size 13"),
        (8, ">i", -1, "size -1"),
        (8, ">i", -(1 << 31), "size"),
        (8, ">i", 48, "60 bytes"),
        (16, ">b", 3, "format 3"),
        (16, ">b", -1, "format 255"),
    ],
)
def test_headers_that_cannot_be(position: int, form: str, value: int, reason: str) -> None:
    data = bytearray(batch(base_offset=33))
    data[position : position + (4 if form == ">i" else 1)] = value.to_bytes(
        4 if form == ">i" else 1, signed=True
    )
    with pytest.raises(CorruptRecord, match=reason) as caught:
        list(iter_batches(data))
    assert caught.value.offset == 33


def test_a_claimed_count_allocates_nothing() -> None:
    found = view(patched(batch(), 57, ">i", (1 << 31) - 1))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            found.columns()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def empty_records(count: int) -> BatchView:
    payload = b"".join(record(n, key=b"\1", value=b"\1") for n in range(count))
    return view(raw_batch(payload, count, attributes=Compression.ZSTD))


def test_columns_keep_within_the_limit() -> None:
    count = 2 * CHUNK_RECORDS
    found = empty_records(count)
    limit = RECORD_COLUMN_BYTES * count
    assert len(found.columns(limit)) == count
    with pytest.raises(
        DecompressionLimitExceeded, match=f"columns of {count} records take more than {limit - 1}"
    ):
        found.columns(limit - 1)
    assert sum(map(len, found.chunks(limit - 1))) == count
    few = empty_records(CHUNK_RECORDS)
    assert len(few.columns(10 * CHUNK_RECORDS)) == CHUNK_RECORDS  # as many as chunks have


def test_a_bomb_of_records_is_bounded() -> None:
    bomb = view(raw_batch(record(0) + bytes(32 << 20), 1, attributes=Compression.ZSTD))
    assert bomb.size_bytes < 10_000
    with pytest.raises(CorruptRecord, match="more than 1048576 bytes") as caught:
        bomb.columns(max_decompressed_bytes=1 << 20)
    assert caught.value.offset == 100


def test_log_append_time_replaces_all_timestamps() -> None:
    found = view(patched(patched(batch(), 21, ">h", 8), 35, ">q", 777))
    assert found.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert set(found.columns().timestamps) == {777}


def test_views_can_be_made_of_any_buffer() -> None:
    data = batch()
    for buffer in (data, bytearray(data), memoryview(data)):
        (found,) = iter_batches(buffer)
        assert isinstance(found, BatchView)
        found.check_crc()
        assert len(found.columns()) == len(ROWS)
