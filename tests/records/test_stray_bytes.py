"""Bytes after the last record of a compressed batch, inside it and covered by its checksum.

`stray-bytes` holds what Kafka's `MemoryRecords` and streaming iterator make of each batch.
"""

from __future__ import annotations

import pytest

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import iter_batches

from .vectors import load, unbase64

DIFFERENT = {
    # The start of another frame: zstd-jni notices that it is cut off only if more is read.
    *(f"stray/zstd/v2/after:{stray}" for stray in ("frame-cut", "magic4", "magic1")),
    # A batch of 0 records that has bytes is refused, whatever its codec: the count may be a lie.
    *("stray/zstd/v2/count0-payload-4x00", "stray/none/v2/count0-4x00"),
}
"""Kafka reads these batches, and they are refused here."""

VECTORS = load("stray-bytes")


def records_of(data: bytes) -> list[list[int]]:
    found: list[list[int]] = []
    for batch in iter_batches(data, allow_partial=False):
        batch.check_crc()
        columns = batch.columns()
        found += map(list, zip(columns.offsets, columns.value_length, strict=True))
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "snappyraw", "lz4", "zstd"])
def test_what_kafka_reads_is_read(codec: str) -> None:
    failed = []
    for vector in VECTORS:
        if vector["codec"] != codec or "records" not in vector or vector["id"] in DIFFERENT:
            continue
        data = unbase64(vector["bytes"])
        assert data is not None
        try:
            if records_of(data) != vector["records"]:
                failed.append(f"{vector['id']}: other records")
        except CorruptRecord as error:
            failed.append(f"{vector['id']}: {error}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("id", sorted(DIFFERENT))
def test_what_is_refused_here_alone(id: str) -> None:
    (vector,) = (vector for vector in VECTORS if vector["id"] == id)
    assert "records" in vector
    with pytest.raises(CorruptRecord):
        records_of(unbase64(vector["bytes"]) or b"")


def test_what_kafka_refuses_is_refused_or_holds_the_same_records() -> None:
    kinds = set()
    for vector in VECTORS:
        if "error" not in vector:
            continue
        try:
            records = records_of(unbase64(vector["bytes"]) or b"")
        except CorruptRecord:
            continue
        assert records in ([[0, 2], [1, 2], [2, 2]], []), vector["id"]
        kinds.add((vector["codec"], vector["how"]))
    assert kinds == {
        ("gzip", "after:frame cut"),  # a member that is cut off counts as stray bytes
        *((codec, "count0 payload none") for codec in ("gzip", "snappy", "snappyraw", "lz4")),
    }
