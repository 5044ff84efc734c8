"""Batches under way and closed ones."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.errors import UnsupportedVersion
from aiokafkawire.records import BatchBuilder, ClosedBatch, Compression, iter_batches

from .record_data import ROWS, view


def closed(count: int = 10, **options: object) -> ClosedBatch:
    builder = BatchBuilder(**options)  # type: ignore[arg-type]
    for n in range(count):
        assert builder.append(1000 + n, b"k%d" % n, b"value", [("h", b"x")]) == n
    return builder.close()


def encoded(batch: ClosedBatch, *args: int, **fields: object) -> bytes:
    return b"".join(batch.encode(*args, **fields))  # type: ignore[arg-type]


def test_records_go_in_until_the_batch_is_full() -> None:
    builder = BatchBuilder(max_bytes=200)
    assert (builder.count, builder.size_bytes, builder.is_full) == (0, 61, False)
    indexes = []
    while (index := builder.append(5, None, b"x" * 20)) is not None:
        indexes.append(index)
        assert builder.size_bytes <= 200
    assert indexes == list(range(len(indexes)))
    assert builder.is_full
    assert builder.count == len(indexes) == (200 - 61) // 27
    data = encoded(builder.close())
    assert len(data) == builder.size_bytes
    assert view(data).count == len(indexes)


def test_the_first_record_always_fits() -> None:
    builder = BatchBuilder(max_bytes=10)
    assert builder.append(5, None, b"x" * 100_000) == 0
    assert builder.is_full
    assert builder.append(5, None, b"") is None
    assert view(encoded(builder.close())).columns().value(0) == b"x" * 100_000


def test_a_record_that_fills_the_batch_exactly_fits() -> None:
    builder = BatchBuilder(max_bytes=61 + 2 * 27)
    assert builder.append(5, None, b"x" * 20) == 0
    assert not builder.is_full
    assert builder.append(5, None, b"x" * 20) == 1
    assert builder.is_full


def test_timestamps_of_a_batch() -> None:
    builder = BatchBuilder()
    assert builder.base_timestamp == builder.max_timestamp == -1
    for row in ROWS:
        builder.append(*row)
    batch = builder.close()
    assert (batch.base_timestamp, batch.max_timestamp) == (1_000, 5_000_000)
    assert list(batch.columns().timestamps) == [row[0] for row in ROWS]


def test_a_string_value_gets_an_error_that_says_how_to_encode_it() -> None:
    with pytest.raises(TypeError, match=r"not 'text': call its encode\(\)$"):
        BatchBuilder().append(0, None, "text")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["text", 5, [b"x"], object()])
def test_wrong_types_are_refused_and_change_nothing(wrong: object) -> None:
    builder = BatchBuilder()
    with pytest.raises(TypeError, match="key must be bytes"):
        builder.append(0, wrong, b"")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="value must be bytes"):
        builder.append(0, None, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="header value must be bytes"):
        builder.append(0, None, None, [("h", wrong)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="header name must be str"):
        builder.append(0, None, None, [(b"h", b"x")])  # type: ignore[list-item]
    assert (builder.count, builder.size_bytes) == (0, 61)


def test_any_bytes_like_object_is_taken() -> None:
    builder = BatchBuilder()
    words = memoryview(b"abcdefgh").cast("I")
    builder.append(0, bytearray(b"key"), words, [("h", memoryview(b"x"))])
    columns = builder.close().columns()
    assert (columns.key(0), columns.value(0)) == (b"key", b"abcdefgh")
    assert columns.headers(0) == (("h", b"x"),)


def test_each_encoding_has_its_own_header_and_the_same_body() -> None:
    batch = closed(compression=Compression.GZIP)
    first = batch.encode(producer_id=7, producer_epoch=1, base_sequence=5)
    second = batch.encode(producer_id=7, producer_epoch=2, base_sequence=0)
    assert first[1] is second[1]
    for parts, epoch, sequence in ((first, 1, 5), (second, 2, 0)):
        found = view(b"".join(parts))
        found.check_crc()
        assert (found.producer_epoch, found.base_sequence) == (epoch, sequence)
        assert found.columns().key(9) == b"k9"


def test_size_is_known_exactly_once_compressed() -> None:
    batch = closed(100, compression=Compression.ZSTD)
    estimate = batch.size_bytes
    batch.compress()
    assert batch.size_bytes < estimate
    assert batch.size_bytes == len(encoded(batch))


@pytest.mark.parametrize("max_bytes", [100, 200, 100_000])
def test_split(max_bytes: int) -> None:
    batch = closed(40, compression=Compression.SNAPPY)
    parts = batch.split(max_bytes)
    assert sum(part.count for part in parts) == 40
    assert (len(parts) == 1) == (max_bytes == 100_000)
    data = b"".join(encoded(part) for part in parts)
    keys = []
    for part, found in zip(parts, iter_batches(data), strict=True):
        assert found.compression is Compression.SNAPPY
        columns = found.columns()
        assert part.count == 1 or len(part.columns().data) + 61 <= max_bytes
        assert (part.base_timestamp, part.max_timestamp) == (
            min(columns.timestamps),
            max(columns.timestamps),
        )
        keys += [columns.key(n) for n in range(len(columns))]
        assert columns.headers(0) == (("h", b"x"),)
    assert keys == [b"k%d" % n for n in range(40)]


def test_older_formats_are_made_from_the_same_records() -> None:
    builder = BatchBuilder(compression=Compression.GZIP)
    builder.append(9, None, b"a")
    builder.append(9, b"k", None)
    batch = builder.close()
    for magic in (0, 1):
        found = view(encoded(batch, magic))
        found.check_crc()
        assert (found.magic, found.count, found.last_offset) == (magic, 2, 1)
        assert [found.columns().value(n) for n in (0, 1)] == [b"a", None]
    with pytest.raises(UnsupportedVersion):
        encoded(batch, 1, transactional=True)


@pytest.mark.parametrize(
    "record",
    [
        (17, None, b"v", ()),
        (-1, b"k", None, ()),
        (2**40, b"", b"x" * 70_000, (("h", b"1"), ("i", None))),
    ],
)
def test_a_batch_of_one_record_is_as_a_builder_makes_it(record: tuple[Any, ...]):
    builder = BatchBuilder(max_bytes=100)
    assert builder.append(*record) == 0
    numbers = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 77}
    made, alone = builder.close(), ClosedBatch.single_record(*record)
    assert b"".join(alone.encode(**numbers)) == b"".join(made.encode(**numbers))
    assert (alone.count, alone.size_bytes) == (made.count, made.size_bytes)
