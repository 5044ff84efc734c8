"""Broker side: validate produced batches, assign offsets, down-convert for old clients."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from aiokafkawire.errors import CorruptRecord

from . import legacy
from .batch import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    CRC_POSITION,
    MAGIC_V2,
    TIMESTAMP_TYPE_FLAG,
    BatchView,
    batch_crc,
    iter_batches,
)
from .builder import BatchBuilder
from .columns import Columns
from .compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Compression, compress, decompress
from .kernel import Buffer

__all__ = ("assign_offsets", "control_batch", "down_convert", "recompress", "validate_produced")

MAX_TIMESTAMP_POSITION = 35
LEADER_EPOCH_POSITION = 12
LENGTH_POSITION = 8

_INT64 = Struct(">q")
_INT32 = Struct(">i")
_INT16 = Struct(">h")
_CRC = Struct(">I")
_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")


def validate_produced(
    buffer: Buffer, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> list[BatchView]:
    """Return the batches of a produce request, with every record validated.

    Raises:
        CorruptRecord: A wrong checksum, an invalid or incomplete batch, a control batch, or
            offsets of format 2 that are not consecutive from 0.
    """
    batches = list(iter_batches(buffer, allow_partial=False))
    for batch in batches:
        batch.check_crc()
        if batch.magic < MAGIC_V2 and batch.compression is Compression.ZSTD:
            raise CorruptRecord(f"message format {batch.magic} has no zstd compression")
        count = sum(map(len, batch.chunks(max_decompressed_bytes)))
        if batch.is_control:
            raise CorruptRecord("a producer cannot send control batches")
        if batch.magic == MAGIC_V2:
            span = batch.last_offset - batch.base_offset + 1
            if not count or span != count:
                raise CorruptRecord(
                    f"a produced batch of {count} records spans {span} offsets",
                    offset=batch.base_offset,
                )
    return batches


def assign_offsets(
    batch: BatchView, base_offset: int, leader_epoch: int, log_append_time: int | None = None
) -> bytes:
    """Return a copy of a batch for the log, with offsets from `base_offset`, in the same format.

    `log_append_time` (milliseconds since 1970) replaces all timestamps.
    """
    if batch.magic == MAGIC_V2:
        return _assign_in_header(batch, base_offset, leader_epoch, log_append_time)
    return legacy.encode_message_set(
        batch.columns(),
        batch.magic,
        batch.compression,
        base_offset=base_offset,
        log_append_time=log_append_time if batch.magic else None,
    )


def _assign_in_header(
    batch: BatchView, base_offset: int, leader_epoch: int, log_append_time: int | None
) -> bytes:
    out = bytearray(batch.buffer)
    _INT64.pack_into(out, 0, base_offset)
    _INT32.pack_into(out, LEADER_EPOCH_POSITION, leader_epoch)
    attributes = batch.attributes & ~TIMESTAMP_TYPE_FLAG
    if log_append_time is not None:
        attributes |= TIMESTAMP_TYPE_FLAG
        _INT64.pack_into(out, MAX_TIMESTAMP_POSITION, log_append_time)
    if log_append_time is not None or attributes != batch.attributes:
        # The checksum does not cover the offset and the leader epoch, which precede it.
        _INT16.pack_into(out, ATTRIBUTES_POSITION, attributes)
        _CRC.pack_into(out, CRC_POSITION, batch_crc(out))
    return bytes(out)


def recompress(
    batch: BatchView, codec: Compression, level: int | None, max_decompressed_bytes: int
) -> BatchView:
    """Return a batch of format 2 in another codec; other formats are returned as they are.

    Args:
        batch: A validated batch.
        codec: Codec of the result.
        level: Level of gzip, lz4 and zstd, None for the codec's default.
        max_decompressed_bytes: Limit of the records without compression.

    Raises:
        CorruptRecord: The records exceed the limit.
    """
    if batch.magic != MAGIC_V2 or batch.compression is codec:
        return batch
    records = batch.buffer[BATCH_OVERHEAD_BYTES:]
    plain = decompress(batch.compression, records, max_decompressed_bytes)
    out = bytearray(batch.buffer[:BATCH_OVERHEAD_BYTES]) + compress(codec, plain, level)
    _INT32.pack_into(out, LENGTH_POSITION, len(out) - LEADER_EPOCH_POSITION)
    _INT16.pack_into(out, ATTRIBUTES_POSITION, batch.attributes & ~CODEC_MASK | codec)
    _CRC.pack_into(out, CRC_POSITION, batch_crc(out))
    return BatchView(memoryview(bytes(out)))


def down_convert(batches: Iterable[BatchView], magic: int) -> bytes:
    """Convert batches to a message format of at most `magic`, for old clients.

    As in Kafka, control batches and record headers are dropped; zstd becomes gzip. Offsets are
    kept, with gaps for dropped batches.
    """
    out = []
    for batch in batches:
        if batch.magic <= magic:
            out.append(bytes(batch.buffer))
        elif not batch.is_control:
            columns = batch.columns()
            codec = batch.compression
            if codec is Compression.ZSTD:
                codec = Compression.GZIP
            out.append(legacy.encode_message_set(_without_headers(columns), magic, codec))
    return b"".join(out)


def _without_headers(columns: Columns) -> Columns:
    plain = Columns(columns.data, 0)
    for name in Columns.__slots__:
        if name not in {"data", "has_headers"}:
            setattr(plain, name, getattr(columns, name))
    return plain


def control_batch(
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Encode the commit or abort marker of a transaction in a partition."""
    builder = BatchBuilder()
    key = _CONTROL_KEY.pack(0, int(commit))
    builder.append(timestamp_ms, key, _CONTROL_VALUE.pack(0, coordinator_epoch))
    parts = builder.close().encode(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    return b"".join(parts)
