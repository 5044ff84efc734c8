"""Makes batches and message sets for tests, honest ones and ones that lie."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import crc32c

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import BatchBuilder, BatchView, Compression, iter_batches
from aiokafkawire.records.compression import compress
from aiokafkawire.records.kernel import encode_varint

Row = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]

ROWS: list[Row] = [
    (1_000, b"k0", b"v0", ()),
    (1_007, None, b"v1", (("trace", b"abc"), ("none", None))),
    (900, b"", None, ()),
    (5_000_000, b"k3", b"x" * 300, (("é", b""),)),
]


def batch(
    rows: Iterable[Row] = ROWS,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    magic: int = 2,
    **fields: Any,
) -> bytes:
    builder = BatchBuilder(compression=compression, max_bytes=1 << 30)
    for row in rows:
        builder.append(*row)
    if magic == 2:
        fields["base_offset"] = base_offset
    return b"".join(builder.close().encode(magic, **fields))


def view(data: bytes) -> BatchView:
    (only,) = iter_batches(data, allow_partial=False)
    return only


def with_crc(data: bytes) -> bytes:
    """The batch or message with the checksum that its bytes have now."""
    out = bytearray(data)
    if out[16] == 2:
        struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
    else:
        struct.pack_into(">I", out, 12, zlib.crc32(out[16:]))
    return bytes(out)


def patched(data: bytes, position: int, form: str, value: int) -> bytes:
    """The batch with one header field replaced, and a checksum that fits."""
    out = bytearray(data)
    struct.pack_into(form, out, position, value)
    return with_crc(bytes(out))


def record(
    offset_delta: int = 0,
    *,
    key: bytes = b"\x02k",
    value: bytes = b"\x02v",
    headers: bytes = b"\0",
    timestamp_delta: bytes = b"\0",
    size: int | None = None,
) -> bytes:
    """One record of format 2 from raw pieces, which may lie."""
    body = b"\0" + timestamp_delta + encode_varint(offset_delta) + key + value + headers
    return encode_varint(len(body) if size is None else size) + body


def raw_batch(
    payload: bytes,
    count: int,
    *,
    last_delta: int | None = None,
    base_offset: int = 100,
    base_timestamp: int = 0,
    attributes: int = 0,
) -> bytes:
    """A batch of format 2 around a payload, whatever that is."""
    if attributes & 7 in iter(Compression):
        payload = compress(attributes & 7, payload)
    last = count - 1 if last_delta is None else last_delta
    head = struct.pack(
        ">qiibIhiqqqhii", base_offset, 49 + len(payload), -1, 2, 0, attributes, last,
        base_timestamp, 0, -1, -1, -1, count,
    )  # fmt: skip
    return with_crc(head + payload)


def with_crcs(data: bytes) -> bytes:
    """Return batches with correct checksums, which do not reveal damage at once."""
    try:
        return b"".join(with_crc(bytes(batch.buffer)) for batch in iter_batches(data))
    except CorruptRecord:
        return data
