"""Message sets of formats 0 and 1, which brokers before 0.11 write and newer ones still serve.

A message is offset, size, CRC-32, magic, attributes, timestamp (format 1 only), key and value. A
message with a codec in its attributes is a wrapper: its value is a compressed message set.
Protocol source: "Old Message Format" in Kafka's documentation.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable
from struct import Struct

from aiokafkawire.errors import CorruptRecord, UnsupportedVersion
from aiokafkawire.types import NO_TIMESTAMP

from .columns import Columns
from .compression import Compression, compress, decompress
from .kernel import Buffer

__all__ = (
    "LOG_OVERHEAD_BYTES",
    "encode_message",
    "encode_message_set",
    "overhead_bytes",
    "read_legacy_run",
    "read_message",
    "read_wrapper",
)

LOG_OVERHEAD_BYTES = 12
"""Size of the offset and size fields, which the size field does not count."""

MAX_WRAPPED_MESSAGES = 1 << 20
"""The most messages read from one wrapper: brokers of those formats take a megabyte at most."""

MAX_RUN_MESSAGES = 4096
"""The most messages without compression that are decoded at a time for a consumer."""

MIN_MESSAGE_SIZE = 14
"""Minimum value of the size field."""

CRC_END = 16
CODEC_MASK = 7
LOG_APPEND_TIME_FLAG = 8

_HEAD = Struct(">qiIbb")  # offset, size, CRC, magic, attributes
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_OFFSET_AND_SIZE = Struct(">qi")
_CRC = Struct(">I")


def overhead_bytes(magic: int) -> int:
    """Return the size of a message without key and value, but with its offset and size fields."""
    return 26 if magic == 0 else 34


def read_message(data: bytes, magic: int) -> Columns:
    """Decode a single uncompressed message. `data` begins with its offset field."""
    columns = Columns(data, 0)
    _append_message(columns, 0, len(data), magic)
    return columns


def read_wrapper(
    data: bytes, magic: int, wrapper_offset: int, codec: int, max_decompressed_bytes: int
) -> Columns:
    """Decompress a wrapper and decode its messages, with absolute offsets.

    In format 0 the inner offsets are absolute. In format 1 they count from 0, and the wrapper has
    the absolute offset of its last message, or 0 before a broker has assigned offsets.
    """
    _, _, start, size = _key_and_value(data, overhead_bytes(magic) - 8, len(data))
    if size < 0:
        raise CorruptRecord("a compressed message has no value", offset=wrapper_offset)
    inner = decompress(codec, data[start : start + size], max_decompressed_bytes, magic)
    columns = Columns(inner, 0)
    position = 0
    while position < len(inner):
        if len(columns) == MAX_WRAPPED_MESSAGES:
            raise CorruptRecord(
                f"a compressed message holds more than {MAX_WRAPPED_MESSAGES} messages"
            )
        try:
            position = _append_message(columns, position, len(inner), magic)
        except CorruptRecord:
            if not _is_truncated(inner, position):
                raise
            break
    offsets = columns.offsets
    if not offsets:
        raise CorruptRecord("a compressed message holds no messages", offset=wrapper_offset)
    if magic == 1 and wrapper_offset != 0:
        base = wrapper_offset - offsets[-1]
        if base < 0:
            raise CorruptRecord(
                "a compressed message has a smaller offset than the last one in it",
                offset=wrapper_offset,
            )
        columns.offsets = array("q", [base + offset for offset in offsets])
    return columns


def _is_truncated(inner: Buffer, position: int) -> bool:
    """Return True for an incomplete last message, which ends the set as in the Java client."""
    left = len(inner) - position
    if left < LOG_OVERHEAD_BYTES:
        return True
    (size,) = _LENGTH.unpack_from(inner, position + LOG_OVERHEAD_BYTES - 4)
    return int(size) >= MIN_MESSAGE_SIZE and left < LOG_OVERHEAD_BYTES + int(size)


def read_legacy_run(view: memoryview, start: int, check_crcs: bool) -> tuple[Columns, int]:
    """Decode uncompressed messages from `start` on, as long as format and attributes are the same.

    The first message must be complete. The run ends before a corrupt message, so that reading on
    from there raises the error.

    Returns:
        The columns of the messages, and the position after the last one.
    """
    first_offset, _, _, magic, attributes = _HEAD.unpack_from(view, start)
    end = start
    previous = first_offset - 1
    total = len(view)
    for _ in range(MAX_RUN_MESSAGES):
        if total - end < overhead_bytes(magic):
            break
        offset, size, crc, *kind = _HEAD.unpack_from(view, end)
        stop = end + LOG_OVERHEAD_BYTES + size
        if kind != [magic, attributes] or offset <= previous or size < 0 or stop > total:
            break
        if check_crcs and zlib.crc32(view[end + CRC_END : stop]) != crc:
            break
        end, previous = stop, offset
    columns = Columns(bytes(view[start:end]), 0)
    position = 0
    while position < end - start:
        try:
            position = _append_message(columns, position, end - start, magic)
        except CorruptRecord:
            if not position:
                raise
            break
    return columns, start + position


def _append_message(columns: Columns, position: int, limit: int, magic: int) -> int:
    """Append the message at `position`, and return the position of the next one.

    Nothing is appended if it raises `CorruptRecord`.
    """
    data = columns.data
    head_bytes = overhead_bytes(magic) - 8
    if limit - position < head_bytes + 8:
        raise CorruptRecord("a message set ends inside a message")
    offset, size, _, inner_magic, attributes = _HEAD.unpack_from(data, position)
    if inner_magic != magic:
        raise CorruptRecord(
            f"a message of format {inner_magic} inside one of format {magic}", offset=offset
        )
    end: int = position + LOG_OVERHEAD_BYTES + size
    if size < head_bytes + 8 - LOG_OVERHEAD_BYTES or end > limit:
        raise CorruptRecord(f"a message cannot have the size {size}", offset=offset)
    if attributes & CODEC_MASK:
        raise CorruptRecord("compressed messages are nested", offset=offset)
    try:
        key_start, key_size, value_start, value_size = _key_and_value(
            data, position + head_bytes, end
        )
    except CorruptRecord as error:
        error.offset = offset
        raise
    columns.offsets.append(offset)
    columns.timestamps.append(
        _TIMESTAMP.unpack_from(data, position + 18)[0] if magic else NO_TIMESTAMP
    )
    columns.key_start.append(key_start)
    columns.key_length.append(key_size)
    columns.value_start.append(value_start)
    columns.value_length.append(value_size)
    return end


def _key_and_value(data: bytes, position: int, end: int) -> tuple[int, int, int, int]:
    """Return start and length of the key and of the value; `position` is the key's length."""
    (key_size,) = _LENGTH.unpack_from(data, position)
    key_start = position + 4
    value_start = key_start + (key_size if key_size > 0 else 0) + 4
    if value_start > end:
        raise CorruptRecord("a message's key reaches past its end")
    (value_size,) = _LENGTH.unpack_from(data, value_start - 4)
    if value_start + (value_size if value_size > 0 else 0) != end:
        raise CorruptRecord("a message's value does not end where the message does")
    return key_start, key_size, value_start, value_size


def encode_message(
    magic: int,
    offset: int,
    timestamp_ms: int,
    key: Buffer | None,
    value: Buffer | None,
    *,
    attributes: int = 0,
) -> bytes:
    """Encode one message with its CRC."""
    parts = [bytes((magic, attributes))]
    if magic:
        parts.append(_TIMESTAMP.pack(timestamp_ms))
    for field in (key, value):
        if field is None:
            parts.append(_LENGTH.pack(-1))
        else:
            parts.append(_LENGTH.pack(len(field)))
            parts.append(bytes(field))
    content = b"".join(parts)
    head = _OFFSET_AND_SIZE.pack(offset, len(content) + 4)
    return b"".join((head, _CRC.pack(zlib.crc32(content)), content))


def encode_message_set(
    columns: Columns,
    magic: int,
    codec: int = Compression.NONE,
    level: int | None = None,
    *,
    base_offset: int | None = None,
    log_append_time: int | None = None,
) -> bytes:
    """Encode all records as messages, inside one wrapper if `codec` is set.

    Offsets are those of the columns, or start at `base_offset`.

    Raises:
        UnsupportedVersion: Records with headers, or zstd, which these formats do not have.
    """
    if codec == Compression.ZSTD:
        raise UnsupportedVersion(f"message format {magic} has no zstd compression")
    count = len(columns)
    if not count:
        return b""
    if any(columns.headers(index) for index in range(count)):
        raise UnsupportedVersion(f"message format {magic} has no record headers")
    offsets: Iterable[int] = columns.offsets
    if base_offset is not None:
        offsets = range(base_offset, base_offset + count)
    offsets = list(offsets)
    attributes = LOG_APPEND_TIME_FLAG if magic and log_append_time is not None else 0
    first_inner = offsets[0] if codec and magic else 0
    messages = b"".join(
        encode_message(
            magic,
            offsets[index] - first_inner,
            columns.timestamps[index] if log_append_time is None else log_append_time,
            columns.key(index),
            columns.value(index),
            attributes=0 if codec else attributes,
        )
        for index in range(count)
    )
    if not codec:
        return messages
    newest = max(columns.timestamps) if log_append_time is None else log_append_time
    content = compress(codec, messages, level, magic)
    return encode_message(magic, offsets[-1], newest, None, content, attributes=attributes | codec)
