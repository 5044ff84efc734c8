"""Compression codecs of record batches, with a limit for the decompressed size.

Decompression stops as soon as the output exceeds `max_bytes`, regardless of the declared size.
Protocol source: the codec numbers are bits 0 to 2 of a batch's attributes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum
from mmap import mmap
from struct import Struct
from typing import Any

import cramjam
import snappy

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.runtime.memory import allocate

from .kernel import COMPILED, Buffer

__all__ = (
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "Compression",
    "DecompressionLimitExceeded",
    "compress",
    "declared_size",
    "decompress",
)

DEFAULT_MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
"""Default limit for the decompressed size of one batch."""

INITIAL_OUTPUT_BYTES = 64 * 1024
INITIAL_OUTPUT_RATIO = 4
TRUSTED_RATIO = 32  # a header that claims more is believed only step by step

MAX_COPIED_BYTES = 256 * 1024
"""Maximum output that is copied to `bytes`. Copying more would block the event loop for long."""

SNAPPY_MAX_RATIO = 32  # a copy of 64 bytes takes three
XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER = XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
XERIAL_BLOCK_BYTES = 32 * 1024
XERIAL_MIN_BLOCK_BYTES = 1024  # the Java client's smallest block size
XERIAL_MAX_SMALL_BLOCKS = 10_000
"""Each block takes microseconds, also an empty one of five bytes."""

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_BLOCK_CHECKSUM_FLAG = 16
LZ4_CONTENT_SIZE_FLAG = 8
LZ4_CONTENT_CHECKSUM_FLAG = 4
LZ4_DICTIONARY_FLAG = 1
LZ4_MAX_BLOCKS = 10_000  # of 64 KiB or more, if the writer fills them

ZSTD_DEFAULT_LEVEL = 3
GZIP_DEFAULT_LEVEL = 6
GZIP_MAX_MEMBERS = 100
"""The most members read one by one: each copies all that follows it."""

_INT32 = Struct(">i")
_LITTLE_UINT32 = Struct("<I")

CRAMJAM_MIN_VERSION = "2.8.0"
"""Earlier ones cannot write LZ4 frames of independent blocks, and 2.6 panics on damaged data."""


def _check_cramjam() -> None:
    try:
        cramjam.lz4.Compressor(level=0, content_checksum=False, block_linked=False)
    except TypeError:
        raise ImportError(
            f"aiokafkawire needs cramjam {CRAMJAM_MIN_VERSION} or later, and {cramjam.__version__}"
            f" is installed: run pip install 'cramjam>={CRAMJAM_MIN_VERSION}'"
        ) from None


_check_cramjam()


class Compression(IntEnum):
    """Compression codecs by their number on the wire."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionLimitExceeded(CorruptRecord):
    """The decompressed data exceeds the limit."""


class _OutputTooSmall(Exception):
    """The output does not fit into its buffer."""


def compress(codec: int, data: Buffer, level: int | None = None, magic: int = 2) -> bytes:
    """Compress a batch's records, in the framing that brokers and the Java client read.

    `level` is passed to gzip, lz4 and zstd; snappy has none. Format 0 takes an lz4 frame with the
    header checksum that its readers expect (KIP-57).
    """
    if codec == Compression.NONE:
        return bytes(data)
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, GZIP_DEFAULT_LEVEL if level is None else level))
    if codec == Compression.SNAPPY:
        return _compress_xerial(data)
    if codec == Compression.LZ4:
        return _compress_lz4(data, level, magic)
    if codec == Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, ZSTD_DEFAULT_LEVEL if level is None else level))
    raise ValueError(f"there is no compression codec {codec}")


def decompress(codec: int, data: Buffer, max_bytes: int, magic: int = 2) -> Buffer:
    """Decompress the records of a batch; the result must not be modified.

    Raises:
        CorruptRecord: The data is corrupt, or exceeds `max_bytes` (`DecompressionLimitExceeded`).
    """
    if codec == Compression.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return bytes(data)
    if codec == Compression.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if codec == Compression.GZIP:
        try:
            return _decompress_stream(cramjam.gzip, data, max_bytes, _gzip_size(data))
        except cramjam.DecompressionError:
            return _decompress_gzip_members(data, max_bytes)
    try:
        if codec == Compression.LZ4:
            if magic == 0:
                data = _rewrite_lz4_checksum(data, correct=True)
            data = _first_lz4_frame(data)
            return _decompress_stream(cramjam.lz4, data, max_bytes, _lz4_size(data))
        if codec == Compression.ZSTD:
            return _decompress_stream(cramjam.zstd, data, max_bytes, _zstd_size(data))
    except cramjam.DecompressionError as error:
        raise CorruptRecord(f"{Compression(codec).name} data is damaged: {error}") from error
    raise CorruptRecord(f"there is no compression codec {codec}")


def declared_size(codec: int, data: Buffer) -> int | None:
    """Return the decompressed size that the data declares, if any; it may be wrong."""
    if codec == Compression.GZIP:
        return _gzip_size(data)
    if codec == Compression.LZ4:
        return _lz4_size(data)
    return _zstd_size(data) if codec == Compression.ZSTD else None


def _too_large(max_bytes: int) -> DecompressionLimitExceeded:
    return DecompressionLimitExceeded(
        f"a batch takes more than {max_bytes} bytes when it is decompressed"
    )


def _too_many_parts(codec: str, limit: int, parts: str) -> CorruptRecord:
    return CorruptRecord(f"{codec} data is damaged: it has more than {limit} {parts}")


def _decompress_stream(module: Any, data: Buffer, max_bytes: int, declared: int | None) -> Buffer:
    """Decompress into buffers of growing size until one holds all of it.

    `declared` is the size in the header. It may be wrong in both directions, and a stream may have
    more than one frame, so it is only the first size to try.
    """
    size = max(INITIAL_OUTPUT_BYTES, INITIAL_OUTPUT_RATIO * len(data))
    if declared is not None:
        size = min(declared, max(INITIAL_OUTPUT_BYTES, TRUSTED_RATIO * len(data)))
    size = min(size, max_bytes)
    while True:
        try:
            return _decompress_into(module, data, size)
        except _OutputTooSmall:
            if size >= max_bytes:
                raise _too_large(max_bytes) from None
            size = min(max(2 * size, INITIAL_OUTPUT_BYTES), max_bytes)


def _decompress_into(module: Any, data: Buffer, size: int) -> Buffer:
    out = allocate(size)
    try:
        written = module.decompress_into(data, out)
    except cramjam.DecompressionError as error:
        if str(error) == _output_too_small_text(module):
            raise _OutputTooSmall from None
        raise
    return _trim_output(out, written)


def _trim_output(out: bytearray | mmap, size: int) -> Buffer:
    """Return the first `size` bytes of the output."""
    if size <= MAX_COPIED_BYTES or not COMPILED:
        return bytes(memoryview(out)[:size])
    if isinstance(out, bytearray):
        del out[size:]  # frees the unused part
    return memoryview(out)[:size].toreadonly()


_OUTPUT_TOO_SMALL_TEXTS: dict[str, str] = {}  # one entry a codec


def _output_too_small_text(module: Any) -> str:
    """Return the library's error text for a too small buffer, as it has no class for it."""
    known = _OUTPUT_TOO_SMALL_TEXTS.get(module.__name__)
    if known is None:
        known = ""
        try:
            module.decompress_into(bytes(module.compress(bytes(64))), bytearray(1))
        except cramjam.DecompressionError as error:
            known = str(error)
        _OUTPUT_TOO_SMALL_TEXTS[module.__name__] = known
    return known


# --- gzip ------------------------------------------------------------------------------------


def _gzip_size(data: Buffer) -> int | None:
    return int.from_bytes(data[-4:], "little") if len(data) >= 18 else None


def _decompress_gzip_members(data: Buffer, max_bytes: int) -> bytes:
    """Decompress whole gzip members and ignore what follows them, as the Java client does."""
    out: list[bytes] = []
    total = 0
    remaining = bytes(data)
    while remaining:
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            part = member.decompress(remaining, max_bytes - total + 1)
        except zlib.error as error:
            if out:
                break
            raise CorruptRecord(f"GZIP data is damaged: {error}") from error
        total += len(part)
        if total > max_bytes:
            raise _too_large(max_bytes)
        if not member.eof:
            if out:
                break
            raise CorruptRecord("GZIP data is damaged: it ends too early")
        out.append(part)
        if len(out) > GZIP_MAX_MEMBERS:
            raise _too_many_parts("GZIP", GZIP_MAX_MEMBERS, "members")
        remaining = member.unused_data
    if not out:
        raise CorruptRecord("GZIP data is damaged: there is none")
    return b"".join(out)


# --- snappy ----------------------------------------------------------------------------------


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    out = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(view[start : start + XERIAL_BLOCK_BYTES]))
        out.append(_INT32.pack(len(block)))
        out.append(block)
    return b"".join(out)


def _decompress_snappy(data: Buffer, max_bytes: int) -> Buffer:
    """Decompress both formats: xerial's framing (Java) and one raw block (librdkafka)."""
    view = memoryview(data)
    framed = bytes(view[: len(XERIAL_MAGIC)]) == XERIAL_MAGIC
    blocks: list[tuple[memoryview, int]] = []
    total = 0
    for block in _xerial_blocks(view) if framed else (view,):
        blocks.append((block, _block_size(block, total, max_bytes)))
        total += blocks[-1][1]
        if len(blocks) - total // XERIAL_MIN_BLOCK_BYTES > XERIAL_MAX_SMALL_BLOCKS:
            raise _too_many_parts("SNAPPY", XERIAL_MAX_SMALL_BLOCKS, "small blocks")
    out = allocate(total)
    position = 0
    with memoryview(out) as room:
        for block, size in blocks:
            with room[position : position + size] as part:
                _decompress_block(block, part)
            position += size
    return _trim_output(out, total)


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position = len(XERIAL_HEADER)
    streams = 1
    if len(view) < position:
        raise CorruptRecord("SNAPPY data is damaged: its header is cut off")
    while position < len(view):
        if bytes(view[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)  # streams may be joined
            streams += 1
            if streams > XERIAL_MAX_SMALL_BLOCKS:
                raise _too_many_parts("SNAPPY", XERIAL_MAX_SMALL_BLOCKS, "joined streams")
            continue
        if len(view) - position < 4:
            return  # too few bytes for a block's length end the stream for the Java client too
        size = _INT32.unpack_from(view, position)[0]
        position += 4
        if size < 0 or size > len(view) - position:
            raise CorruptRecord("SNAPPY data is damaged: a block reaches past the end")
        yield view[position : position + size]
        position += size


def _block_size(block: memoryview, before: int, max_bytes: int) -> int:
    """Return the decompressed size that a block declares; more is an error."""
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CorruptRecord(f"SNAPPY data is damaged: {error}") from error
    if before + size > max_bytes:
        raise _too_large(max_bytes)
    if size > SNAPPY_MAX_RATIO * len(block):
        raise CorruptRecord("SNAPPY data is damaged: it claims more than it can hold")
    return size


def _decompress_block(block: memoryview, out: memoryview) -> None:
    try:
        written = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise CorruptRecord(f"SNAPPY data is damaged: {error}") from error
    if written != len(out):
        raise CorruptRecord(f"SNAPPY data is damaged: {written} bytes, not {len(out)}")


# --- lz4 -------------------------------------------------------------------------------------


def _compress_lz4(data: Buffer, level: int | None, magic: int) -> bytes:
    # Java refuses blocks that refer to earlier ones.
    compressor = cramjam.lz4.Compressor(
        level=0 if level is None else level, content_checksum=False, block_linked=False
    )
    compressor.compress(data)
    frame = bytes(compressor.finish())
    return _rewrite_lz4_checksum(frame, correct=False) if magic == 0 else frame


def _lz4_size(data: Buffer) -> int | None:
    if len(data) < 14 or not data[4] & LZ4_CONTENT_SIZE_FLAG:
        return None
    return int.from_bytes(data[6:14], "little")


def _first_lz4_frame(data: Buffer) -> Buffer:
    """Cut off what follows the end mark of the first frame, which the Java client ignores.

    A frame of more than `LZ4_MAX_BLOCKS` blocks is left as it is, so that tiny blocks take no time.
    """
    if len(data) < 7 or data[:4] != LZ4_MAGIC:
        return data
    flags = data[4]
    checksum_bytes = 4 * bool(flags & LZ4_BLOCK_CHECKSUM_FLAG)
    position = _lz4_header_bytes(flags)
    for _ in range(LZ4_MAX_BLOCKS):
        if len(data) - position < 4:
            break
        size = _LITTLE_UINT32.unpack_from(data, position)[0] & 0x7FFFFFFF
        position += 4
        if not size:
            end = position + 4 * bool(flags & LZ4_CONTENT_CHECKSUM_FLAG)
            return data if end >= len(data) else memoryview(data)[:end]
        position += size + checksum_bytes
    return data


def _lz4_header_bytes(flags: int) -> int:
    optional = 8 * bool(flags & LZ4_CONTENT_SIZE_FLAG) + 4 * bool(flags & LZ4_DICTIONARY_FLAG)
    return len(LZ4_MAGIC) + 3 + optional  # the flags, the block size, and the header's checksum


def _rewrite_lz4_checksum(frame: Buffer, correct: bool) -> bytes:
    """Set the header checksum of an lz4 frame.

    Format 0 was written with the frame's magic number counted in, which the lz4 format does not
    do; readers of that format check for, or ignore, the wrong one.
    """
    out = bytearray(frame)
    if len(out) < 7 or out[:4] != LZ4_MAGIC:
        return bytes(out)
    end = _lz4_header_bytes(out[4]) - 1
    if len(out) > end:
        out[end] = xxh32(bytes(out[4 if correct else 0 : end])) >> 8 & 255
    return bytes(out)


def xxh32(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes, all that an lz4 header without dictionary has.

    Longer input (a header with a dictionary, which Kafka never has) gives another number.
    """
    mask = 0xFFFFFFFF
    hashed = (374761393 + len(data)) & mask
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little")
        hashed = (hashed + word * 3266489917) & mask
        hashed = (hashed << 17 | hashed >> 15) * 668265263 & mask
    for byte in data[whole:]:
        hashed = (hashed + byte * 374761393) & mask
        hashed = (hashed << 11 | hashed >> 21) * 2654435761 & mask
    hashed = (hashed ^ hashed >> 15) * 2246822519 & mask
    hashed = (hashed ^ hashed >> 13) * 3266489917 & mask
    return hashed ^ hashed >> 16


# --- zstd ------------------------------------------------------------------------------------


def _zstd_size(data: Buffer) -> int | None:
    """Return the content size in the header of the first frame, if any (RFC 8878, 3.1.1.1)."""
    if len(data) < 6 or bytes(data[:4]) != b"\x28\xb5\x2f\xfd":
        return None
    descriptor = data[4]
    single = descriptor >> 5 & 1
    start = 5 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3]
    size_bytes = (single, 2, 4, 8)[descriptor >> 6]
    field = data[start : start + size_bytes]
    if not size_bytes or len(field) < size_bytes:
        return None
    return int.from_bytes(field, "little") + (256 if size_bytes == 2 else 0)
