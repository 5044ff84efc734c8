"""The primitive types of the Kafka protocol as annotations, and the encoding of varints.

Fixed-width integers are big-endian. A `varint` uses zigzag encoding, an `unsigned varint` does not;
both carry seven bits per byte, lowest first. Compact strings, bytes and arrays carry their length
plus one as an unsigned varint; zero is null.
"""

import base64
from functools import lru_cache
from typing import Annotated, NamedTuple
from uuid import UUID

__all__ = (
    "MAX_STRING_BYTES",
    "ZERO_UUID",
    "Buffer",
    "BufferOverrun",
    "Primitive",
    "RecordBytes",
    "check_string",
    "decode_unsigned_varint",
    "decode_varint",
    "decode_varlong",
    "encode_unsigned_varint",
    "encode_varint",
    "encode_varlong",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uuid_from_bytes",
    "uuid_from_text",
    "uuid_to_text",
)

Buffer = bytes | bytearray | memoryview

MAX_STRING_BYTES = 32_767
"""Kafka's limit for the size of any string, including compact ones."""

ZERO_UUID = UUID(int=0)
"""Kafka's `Uuid.ZERO_UUID`: the topic id for "none"."""

UUID_CACHE_ENTRIES = 4_096
"""Every response repeats the same topic ids; a cache lookup is faster than creating a `UUID`."""


class Primitive(NamedTuple):
    """A type by its name in Kafka's protocol guide, and its `struct` code if of fixed width."""

    name: str
    code: str = ""
    size_bytes: int = 0


int8 = Annotated[int, Primitive("int8", "b", 1)]
int16 = Annotated[int, Primitive("int16", "h", 2)]
int32 = Annotated[int, Primitive("int32", "i", 4)]
int64 = Annotated[int, Primitive("int64", "q", 8)]
uint16 = Annotated[int, Primitive("uint16", "H", 2)]
uint32 = Annotated[int, Primitive("uint32", "I", 4)]
float64 = Annotated[float, Primitive("float64", "d", 8)]
RecordBytes = Annotated[bytes | bytearray | memoryview, Primitive("records")]
"""Record batches or a message set, not interpreted here. Decoded as a memoryview, not copied."""


def check_string(text: object) -> None:
    """Raise `TypeError` or `ValueError` if `text` is not a valid string of the protocol."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r:.80} is not a string")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{text!r:.80} cannot be encoded as UTF-8: {error.reason}") from None
    if size > MAX_STRING_BYTES:
        raise ValueError(f"string of {size} bytes exceeds the limit of {MAX_STRING_BYTES}")


class BufferOverrun(ValueError):
    """A value exceeds the buffer, or is longer than its type allows."""


def encode_unsigned_varint(value: int) -> bytes:
    """Encode 0 … 2^32-1 in one to five bytes."""
    if value < 0x80:
        if value < 0:
            raise ValueError(f"an unsigned varint cannot hold {value}")
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value > 0xFFFF_FFFF:
        raise ValueError(f"an unsigned varint cannot hold {value}")
    return _encode_groups(value)


def encode_varint(value: int) -> bytes:
    """Encode a signed 32-bit integer, zigzag, in one to five bytes."""
    if not -0x8000_0000 <= value <= 0x7FFF_FFFF:
        raise ValueError(f"a varint cannot hold {value}")
    return _encode_groups((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    """Encode a signed 64-bit integer, zigzag, in one to ten bytes."""
    if not -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
        raise ValueError(f"a varlong cannot hold {value}")
    return _encode_groups((value << 1) ^ (value >> 63))


def decode_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the value at `position` and the position after it. Raises `BufferOverrun`."""
    return _decode_groups(buffer, position, 32)


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the signed 32-bit value and the position after it. Raises `BufferOverrun`."""
    value, position = _decode_groups(buffer, position, 32)
    return (value >> 1) ^ -(value & 1), position


def decode_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the signed 64-bit value and the position after it. Raises `BufferOverrun`."""
    value, position = _decode_groups(buffer, position, 64)
    return (value >> 1) ^ -(value & 1), position


def uuid_to_text(value: UUID) -> str:
    """Return Kafka's text of a UUID: URL-safe base64 of its 16 bytes, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes)[:22].decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """Parse Kafka's text of a UUID. Raises `ValueError`."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"not a Kafka id: {text!r}") from error
    if len(text) != 22 or len(raw) != 16:
        raise ValueError(f"not a Kafka id: {text!r}")
    return UUID(bytes=raw)


@lru_cache(maxsize=UUID_CACHE_ENTRIES)
def uuid_from_bytes(raw: bytes) -> UUID:
    """Return the UUID of 16 bytes, cached."""
    return UUID(bytes=raw)


_ONE_BYTE = tuple(bytes((n,)) for n in range(0x80))


def _encode_groups(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _decode_groups(buffer: Buffer, position: int, bits: int) -> tuple[int, int]:
    value = 0
    try:
        for shift in range(0, bits, 7):
            group = buffer[position]
            position += 1
            value |= (group & 0x7F) << shift
            if group < 0x80:
                if value >> bits:
                    raise BufferOverrun(f"varint holds more than {bits} bits")
                return value, position
    except IndexError:
        raise BufferOverrun("varint runs past the end") from None
    raise BufferOverrun(f"varint longer than {-(-bits // 7)} bytes")
