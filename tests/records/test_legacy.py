"""Message sets of formats 0 and 1, plain and wrapped."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafkawire.errors import CorruptRecord, UnsupportedVersion
from aiokafkawire.records import Columns, Compression, iter_batches, legacy
from aiokafkawire.records.compression import compress
from aiokafkawire.types import TimestampType

from .record_data import batch, view, with_crc

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
FIELD = st.none() | st.binary(max_size=100)


def wrapper(
    inner: bytes, magic: int, offset: int, codec: int = Compression.GZIP, flags: int = 0
) -> bytes:
    content = compress(codec, inner, magic=magic)
    return legacy.encode_message(magic, offset, 50, None, content, attributes=codec | flags)


def messages(magic: int, offsets: list[int]) -> bytes:
    return b"".join(
        legacy.encode_message(magic, offset, 10 + offset, b"k", b"%d" % offset)
        for offset in offsets
    )


def rows(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    found = []
    for one in iter_batches(data, allow_partial=False):
        one.check_crc()
        columns = one.columns()
        for i, offset in enumerate(columns.offsets):
            found.append((offset, columns.timestamps[i], columns.key(i), columns.value(i)))
    return found


@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 1 << 40), FIELD, FIELD), min_size=1, max_size=9),
    st.sampled_from([Compression.NONE, *CODECS]),
)
def test_round_trip(
    magic: int, content: list[tuple[int, bytes | None, bytes | None]], codec: Compression
) -> None:
    data = batch([(*row, ()) for row in content], compression=codec, magic=magic)
    assert rows(data) == [
        (n, timestamp if magic else -1, key, value)
        for n, (timestamp, key, value) in enumerate(content)
    ]
    if codec:
        found = view(data)
        assert (found.count, found.base_offset) == (len(content), 0)
        assert found.compression is codec
        assert found.max_timestamp == (max(row[0] for row in content) if magic else -1)


def test_relative_and_absolute_inner_offsets() -> None:
    assert [row[0] for row in rows(wrapper(messages(1, [0, 1, 4]), 1, 104))] == [100, 101, 104]
    assert [row[0] for row in rows(wrapper(messages(1, [0, 1, 2]), 1, 0))] == [0, 1, 2]
    assert [row[0] for row in rows(wrapper(messages(0, [7, 9]), 0, 9))] == [7, 9]


def test_log_append_time_of_a_wrapper_counts_for_all() -> None:
    data = wrapper(messages(1, [0, 1]), 1, 1, flags=legacy.LOG_APPEND_TIME_FLAG)
    assert [row[1] for row in rows(data)] == [50, 50]
    assert view(data).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert view(messages(0, [1])).timestamp_type is TimestampType.NONE


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_nesting_stops_at_one(magic: int, codec: Compression) -> None:
    data = wrapper(wrapper(messages(magic, [1]), magic, 1, codec), magic, 1, codec)
    with pytest.raises(CorruptRecord, match="nested") as caught:
        rows(data)
    assert caught.value.offset == 1


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (b"", "holds no messages"),
        (messages(1, [0])[:-1], "holds no messages"),
        (messages(1, [0]) + b"\0" * 12, "ends inside"),
        (messages(1, [0]) + b"\0" * 11 + b"\x0d" + b"\0" * 40, "format 0 inside"),
        (messages(0, [0]) * 2, "format 0 inside"),
        (messages(1, [8]), "smaller offset"),
    ],
)
def test_wrappers_that_lie(inner: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason) as caught:
        rows(wrapper(inner, 1, 5))
    assert caught.value.offset is not None


def test_a_wrapper_has_a_value() -> None:
    data = legacy.encode_message(1, 5, 0, b"k", None, attributes=1)
    with pytest.raises(CorruptRecord, match="no value"):
        rows(data)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [100, 1 << 30, 3])
def test_lengths_that_lie(magic: int, length: int) -> None:
    good = legacy.encode_message(magic, 5, 0, b"kk", b"vv")
    start = legacy.overhead_bytes(magic) - 8
    for position in (start, start + 6):
        data = bytearray(good)
        data[position : position + 4] = length.to_bytes(4)
        with pytest.raises(CorruptRecord) as caught:
            rows(with_crc(bytes(data)))
        assert caught.value.offset == 5


def test_a_message_too_short_for_its_format() -> None:
    good = bytearray(legacy.encode_message(1, 5, 0, None, None))
    good[8:12] = (14).to_bytes(4)
    with pytest.raises(CorruptRecord, match="26 bytes"):
        list(iter_batches(good))


def test_a_wrapper_of_too_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "MAX_WRAPPED_MESSAGES", 2)
    assert len(rows(wrapper(messages(1, [0, 1]), 1, 1))) == 2
    with pytest.raises(CorruptRecord, match="more than 2 messages"):
        rows(wrapper(messages(1, [0, 1, 2]), 1, 2))


def test_a_bomb_in_a_wrapper_is_bounded() -> None:
    with pytest.raises(CorruptRecord, match="more than 65536 bytes"):
        view(wrapper(bytes(1 << 20), 1, 5)).columns(65536)


def test_what_the_formats_lack_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="headers"):
        batch([(0, None, b"v", [("h", b"x")])], magic=1)
    with pytest.raises(UnsupportedVersion, match="zstd"):
        batch(compression=Compression.ZSTD, magic=1)
    with pytest.raises(UnsupportedVersion, match="producer ids"):
        batch(magic=0, producer_id=1)
    assert legacy.encode_message_set(Columns(b"", 0), 1) == b""
