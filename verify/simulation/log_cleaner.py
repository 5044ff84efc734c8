"""Compaction of a log of the embedded broker, which has none itself."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator

from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.records import iter_batches
from aiokafkawire.records.batch import (
    BATCH_HEADER,
    BATCH_OVERHEAD_BYTES,
    CRC_POSITION,
    BatchView,
    batch_crc,
)
from aiokafkawire.wire.primitives import decode_varint

__all__ = ("clean_log", "superseded_offsets")

LENGTH_OVERHEAD = 12
"""Bytes of a batch that its length does not count: those of the base offset and the length."""


def superseded_offsets(log: PartitionLog) -> list[int]:
    """Return the offsets of records that have a later one with the same key."""
    latest: dict[bytes, int] = {}
    found = []
    for view in _batches(log):
        if view.is_control:
            continue
        columns = view.columns()
        for index, offset in enumerate(columns.offsets):
            key = bytes(columns.key(index) or b"")
            if key in latest:
                found.append(latest[key])
            latest[key] = offset
    return sorted(found)


def clean_log(log: PartitionLog, removed: Callable[[int], bool]) -> None:
    """Remove the records of offsets, and batches that are empty then.

    All others keep their offsets, as after a run of Kafka's log cleaner. Batches must not be
    compressed.
    """
    for segment in log._segments:
        data = segment.data.read(0, segment.data.size_bytes)
        cleaned = [_clean(view, removed) for view in iter_batches(data)]
        batches, segment.batches = segment.batches, []
        segment.data.truncate(0)
        for batch, content in zip(batches, cleaned, strict=True):
            if content:
                position = segment.data.size_bytes
                segment.data.append(content)
                segment.batches.append(
                    dataclasses.replace(batch, position=position, size_bytes=len(content))
                )


def _clean(view: BatchView, removed: Callable[[int], bool]) -> bytes:
    """Return a batch without the removed records; empty if none is left."""
    whole = bytes(view.buffer)
    if view.is_control:
        return whole
    columns = view.columns()
    kept = [index for index, offset in enumerate(columns.offsets) if not removed(offset)]
    if len(kept) == len(columns):
        return whole
    if not kept:
        return b""
    assert not view.compression
    records = list(_encoded_records(whole))
    body = b"".join(records[index] for index in kept)
    header = list(BATCH_HEADER.unpack_from(whole))
    header[1] = BATCH_OVERHEAD_BYTES - LENGTH_OVERHEAD + len(body)
    header[8] = max(columns.timestamps[index] for index in kept)
    header[-1] = len(kept)
    cleaned = bytearray(BATCH_HEADER.pack(*header) + body)
    struct.pack_into(">I", cleaned, CRC_POSITION, batch_crc(cleaned))
    return bytes(cleaned)


def _encoded_records(batch: bytes) -> Iterator[bytes]:
    """Yield the records of an uncompressed batch, each with its length."""
    position = BATCH_OVERHEAD_BYTES
    while position < len(batch):
        length, start = decode_varint(batch, position)
        yield batch[position : start + length]
        position = start + length


def _batches(log: PartitionLog) -> Iterator[BatchView]:
    for segment in log._segments:
        yield from iter_batches(segment.data.read(0, segment.data.size_bytes))
