"""A broker's side: what producers send, what the log keeps, what old clients get."""

from __future__ import annotations

import tracemalloc

import pytest

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import (
    Compression,
    assign_offsets,
    control_batch,
    decode_fetch,
    down_convert,
    iter_batches,
    legacy,
    validate_produced,
)
from aiokafkawire.records.aborted_transactions import control_type
from aiokafkawire.records.broker_records import recompress
from aiokafkawire.records.builder import BatchBuilder
from aiokafkawire.types import TimestampType

from .record_data import ROWS, batch, patched, raw_batch, record, view

PLAIN = [(*row[:3], ()) for row in ROWS]


def test_what_a_producer_sends_is_checked_to_the_last_record() -> None:
    (found,) = validate_produced(batch())
    assert found.count == len(ROWS)
    for magic in (0, 1):
        assert len(validate_produced(batch(PLAIN, magic=magic))) == len(ROWS)
        data = batch(PLAIN, compression=Compression.LZ4, magic=magic)
        assert validate_produced(data)[0].count == len(ROWS)


def test_many_tiny_records_are_checked_in_little_memory() -> None:
    count = 100_000
    payload = b"".join(record(n, key=b"\1", value=b"\1") for n in range(count))
    data = raw_batch(payload, count, attributes=Compression.ZSTD)
    tracemalloc.start()
    try:
        (found,) = validate_produced(data, len(payload))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.count == count
    assert peak < 3 * len(payload) + 1_000_000


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (batch()[:-1], "cut off"),
        (batch()[:-1] + b"\1", "checksum"),
        (raw_batch(record(0), 2), "cannot hold"),
        (raw_batch(record(1) + record(3), 2, last_delta=3), "spans 4 offsets"),
        (raw_batch(b"", 0, last_delta=0), "spans 1 offsets"),
        (batch(control=True), "control"),
        (legacy.encode_message(1, 0, 0, None, b"x", attributes=4), "zstd"),
    ],
)
def test_what_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        validate_produced(data)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("append_time", [None, 777])
def test_offsets_are_assigned(magic: int, codec: Compression, append_time: int | None) -> None:
    sent = batch(PLAIN, compression=codec, magic=magic)
    log = bytearray()
    offset = 40
    for found in iter_batches(sent):
        log += assign_offsets(found, offset, 6, append_time)
        offset += found.count
    assert offset == 44
    records = decode_fetch("t", 0, log, 0).take(99)
    assert records.offsets() == [40, 41, 42, 43]
    assert records.values() == [row[2] for row in ROWS]
    stamps = [record.timestamp_ms for record in records]
    if magic == 0:
        assert stamps == [-1] * 4
        assert records[0].timestamp_type is TimestampType.NONE
    elif append_time:
        assert stamps == [777] * 4
        assert records[0].timestamp_type is TimestampType.LOG_APPEND_TIME
    else:
        assert stamps == [row[0] for row in ROWS]
        assert records[0].timestamp_type is TimestampType.CREATE_TIME
    assert records.leader_epoch == (6 if magic == 2 else -1)


def test_a_producer_cannot_claim_log_append_time() -> None:
    found = view(patched(batch(), 21, ">h", 8))
    kept = view(assign_offsets(found, 0, 0))
    kept.check_crc()
    assert kept.timestamp_type is TimestampType.CREATE_TIME


def test_the_bytes_sent_are_left_alone() -> None:
    sent = bytearray(batch())
    before = bytes(sent)
    assign_offsets(view(bytes(sent)), 9, 9, 9)
    assert sent == before


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", Compression)
def test_old_clients_get_old_formats(magic: int, codec: Compression) -> None:
    gaps = raw_batch(record(1) + record(4), 2, last_delta=9, attributes=codec)
    log = (
        batch(base_offset=10, compression=codec)
        + control_batch(1, 0, commit=True, coordinator_epoch=0, timestamp_ms=0, base_offset=14)
        + gaps
    )
    old = down_convert(iter_batches(log), magic)
    formats = {(found.magic, found.compression) for found in iter_batches(old, allow_partial=False)}
    assert formats == {(magic, Compression.GZIP if codec is Compression.ZSTD else codec)}
    records = decode_fetch("t", 0, old, 0).take(99)
    assert records.offsets() == [10, 11, 12, 13, 101, 104]
    assert records.values()[:4] == [row[2] for row in ROWS]
    assert down_convert(iter_batches(old), 1) == old
    assert down_convert(iter_batches(log), 2) == log


@pytest.mark.parametrize("commit", [False, True])
def test_control_batches(commit: bool) -> None:
    data = control_batch(
        9, 3, commit=commit, coordinator_epoch=7, timestamp_ms=50, base_offset=4, leader_epoch=2
    )
    found = view(data)
    found.check_crc()
    assert found.is_control
    assert found.is_transactional
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (9, 3, -1)
    assert (found.base_offset, found.next_offset, found.partition_leader_epoch) == (4, 5, 2)
    assert control_type(found) == int(commit)
    assert found.columns().value(0) == b"\0\0\0\0\0\7"


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("wanted", Compression)
def test_a_batch_changes_its_codec_and_nothing_else(
    codec: Compression, wanted: Compression
) -> None:
    builder = BatchBuilder(codec, max_bytes=2**20)
    builder.append(7, b"key", b"value" * 50, [("name", b"header")])
    parts = builder.close().encode(
        producer_id=5, producer_epoch=1, base_sequence=3, transactional=True
    )
    (batch,) = iter_batches(b"".join(bytes(part) for part in parts))
    changed = recompress(batch, wanted, None, 2**20)
    changed.check_crc()
    assert changed.compression is wanted
    assert (changed.producer_id, changed.producer_epoch, changed.base_sequence) == (5, 1, 3)
    assert changed.is_transactional
    assert changed.max_timestamp == 7
    columns = changed.columns()
    assert (columns.key(0), columns.value(0)) == (b"key", b"value" * 50)
    assert (changed is batch) == (codec is wanted)


def test_recompression_is_bounded() -> None:
    builder = BatchBuilder(Compression.GZIP, max_bytes=2**20)
    builder.append(7, None, b"v" * 1_000)
    (batch,) = iter_batches(b"".join(bytes(part) for part in builder.close().encode()))
    with pytest.raises(CorruptRecord):
        recompress(batch, Compression.NONE, None, 100)
