"""The hot loops: varints, the layout of records, murmur2, and `Record` itself.

Plain functions over buffers, integers and `array('q')`, so that the same source runs interpreted
and compiled. What a caller passes as `data` is only indexed and sliced. Protocol source: "Record
Batch" and "Old Message Format" in Kafka's documentation of its message format.

A structure that lies raises `CorruptRecords`; an index past the end raises `IndexError` and a
number over 64 bits `OverflowError`, which callers turn into `CorruptRecords` too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias

from aiokafkawire.errors import CorruptRecords
from aiokafkawire.types import TopicPartition

if TYPE_CHECKING:
    from .columns import Columns

    AIOKAFKAWIRE_KERNEL_HASH: bytes  # _kernel.pxd has what is not defined here

try:
    import cython
except ImportError:  # it is only there where the kernel is compiled
    from . import _uncompiled as cython

Buffer: TypeAlias = bytes | bytearray | memoryview
Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = tuple[Header, ...]

COMPILED: bool = cython.compiled
SOURCE_HASH = AIOKAFKAWIRE_KERNEL_HASH.decode() if COMPILED else ""  # noqa: F821 - see _kernel.pxd

VARLONG_MAX_BYTES = 10
VARINT_MAX_BYTES = 5
SMALL_VARINTS = 8192  # all that fit in two bytes and are not negative
RECORD_MIN_BYTES = 7  # length, attributes, two deltas, key length, value length, header count

_MURMUR_FACTOR = 0x5BD1E995
_MURMUR_SEED = 0x9747B28C
_WORD = Struct("<I").unpack_from


def encode_varint(value: int) -> bytes:
    """The zigzag varint of a signed 64-bit integer: one to ten bytes."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def decode_varint(data: bytes, position: int, max_bytes: int = VARINT_MAX_BYTES) -> tuple[int, int]:
    """Read a zigzag varint of at most `max_bytes`: its value and the position after it."""
    raw = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return raw >> 1 ^ -(raw & 1), position
    raise CorruptRecords(f"a varint is longer than {max_bytes} bytes")


_VARINTS = [encode_varint(n) for n in range(SMALL_VARINTS)]
_TWO_BYTES = [n >> 1 ^ -(n & 1) for n in range(2 * SMALL_VARINTS)]
_ONE_BYTE = [*_TWO_BYTES[:128], *[None] * 128]  # None where more bytes follow
_NULL_LENGTH = encode_varint(-1)


def murmur2(data: Buffer) -> int:
    """Kafka's hash of a key, as a signed 32-bit integer (`Utils.murmur2` of the Java client)."""
    size = len(data)
    whole = size & ~3
    hashed = _MURMUR_SEED ^ size
    for start in range(0, whole, 4):
        mixed = _WORD(data, start)[0] * _MURMUR_FACTOR & 0xFFFFFFFF
        mixed = (mixed ^ mixed >> 24) * _MURMUR_FACTOR
        hashed = (hashed * _MURMUR_FACTOR ^ mixed) & 0xFFFFFFFF
    if whole != size:
        tail = int.from_bytes(data[whole:], "little")
        hashed = (hashed ^ tail) * _MURMUR_FACTOR & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * _MURMUR_FACTOR & 0xFFFFFFFF
    hashed ^= hashed >> 15
    return hashed - 0x100000000 if hashed & 0x80000000 else hashed


# --- reading ---------------------------------------------------------------------------------


def decode_records(  # noqa: PLR0917 - a hot call
    columns: Columns,
    start: int,
    stop: int,
    base_offset: int,
    base_timestamp: int,
    position: int,
    previous: int,
) -> int:
    """Fill `columns` from index `start` up to `stop` with records of format 2, which stand in its
    data from `position` on.

    Returns the position after the last one. Offset deltas must rise from `previous` on, and each
    record must fill its length. Varints of two bytes are read in place where they are common.
    """
    data = columns.data
    offsets, timestamps = columns.offsets, columns.timestamps
    key_start, key_length = columns.key_start, columns.key_length
    value_start, value_length = columns.value_start, columns.value_length
    small, wide = _ONE_BYTE, _TWO_BYTES
    for index in range(start, stop):
        if (size := small[data[position]]) is not None:
            position += 1
        elif data[position + 1] < 128:
            size = wide[data[position] + (data[position + 1] << 7) - 128]
            position += 2
        else:
            size, position = decode_varint(data, position)
        end = position + size
        position += 1  # attributes, of which none is in use
        if (delta := small[data[position]]) is not None:
            position += 1
        else:
            delta, position = decode_varint(data, position, VARLONG_MAX_BYTES)
        timestamps[index] = base_timestamp + delta

        if (delta := small[data[position]]) is not None:
            position += 1
        elif data[position + 1] < 128:
            delta = wide[data[position] + (data[position + 1] << 7) - 128]
            position += 2
        else:
            delta, position = decode_varint(data, position)
        if delta <= previous:
            raise CorruptRecords("offsets do not rise", offset=base_offset + previous + 1)
        previous = delta
        offsets[index] = base_offset + delta

        if (size := small[data[position]]) is not None:
            position += 1
        else:
            size, position = decode_varint(data, position)
        key_start[index], key_length[index] = position, size
        position += size if size > 0 else 0

        if (size := small[data[position]]) is not None:
            position += 1
        elif data[position + 1] < 128:
            size = wide[data[position] + (data[position + 1] << 7) - 128]
            position += 2
        else:
            size, position = decode_varint(data, position)
        value_start[index], value_length[index] = position, size
        position += size if size > 0 else 0
        if data[position]:
            position = skip_headers(data, position, end)
            columns.has_headers = True
        else:
            position += 1
        if position != end:
            raise CorruptRecords("a record's length is wrong", offset=base_offset + previous)
    return position


def skip_headers(data: bytes, position: int, end: int) -> int:
    """Check the headers of a record; returns the position after them."""
    count, position = decode_varint(data, position)
    if count < 0 or count > end - position:
        raise CorruptRecords(f"a record cannot have {count} headers")
    for _ in range(count):
        size, position = decode_varint(data, position)
        if size < 0:
            raise CorruptRecords("a header has no key")
        size, position = decode_varint(data, position + size)
        if size > 0:
            position += size
        if position > end:
            raise CorruptRecords("a header reaches past its record")
    return position


def decode_headers(data: bytes, position: int) -> Headers:
    """The headers of a record that `decode_records` has checked. Keys that are not UTF-8 are shown
    with replacement characters, as the Java client does."""
    count, position = decode_varint(data, position)
    if not count:
        return ()
    headers: list[Header] = []
    for _ in range(count):
        size, position = decode_varint(data, position)
        key = str(data[position : position + size], "utf-8", "replace")
        size, position = decode_varint(data, position + size)
        if size < 0:
            headers.append((key, None))
        else:
            headers.append((key, data[position : position + size]))
            position += size
    return tuple(headers)


class Record:
    """One record as the application sees it.

    `timestamp_ms` counts from 1970 (-1: none), `timestamp_type` is a `TimestampType`, `headers` a
    tuple of (name, value or None); `leader_epoch` is -1 where it is not known.
    """

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp_ms",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        timestamp_ms: int = -1,
        timestamp_type: int = 0,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[Header] = (),
        leader_epoch: int = -1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = tuple(headers)
        self.leader_epoch = leader_epoch

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"Record({self.topic}-{self.partition} offset {self.offset}, "
            f"timestamp_ms={self.timestamp_ms}, key={self.key!r:.80}, value={self.value!r:.80}, "
            f"headers={len(self.headers)})"
        )


def iterate(  # noqa: PLR0917 - a hot call
    columns: Columns,
    start: int,
    stop: int,
    topic: str,
    partition: int,
    timestamp_type: int,
    leader_epoch: int,
) -> Iterator[Record]:
    """Make the `Record` of each index from `start` to `stop`, when it is asked for."""
    data = columns.data
    has_headers = columns.has_headers
    new = Record.__new__
    for offset, timestamp_ms, key_at, key_size, value_at, size in zip(
        columns.offsets[start:stop],
        columns.timestamps[start:stop],
        columns.key_start[start:stop],
        columns.key_length[start:stop],
        columns.value_start[start:stop],
        columns.value_length[start:stop],
        strict=True,
    ):
        record = new(Record)
        record.topic = topic
        record.partition = partition
        record.offset = offset
        record.timestamp_ms = timestamp_ms
        record.timestamp_type = timestamp_type
        record.leader_epoch = leader_epoch
        record.key = data[key_at : key_at + key_size] if key_size >= 0 else None
        if size >= 0:
            headers_at = value_at + size
            record.value = data[value_at:headers_at]
        else:
            headers_at = value_at
            record.value = None
        record.headers = (
            decode_headers(data, headers_at) if has_headers and data[headers_at] else ()
        )
        yield record


# --- writing ---------------------------------------------------------------------------------


def as_bytes(data: Any, what: str) -> bytes:
    """A copy of a bytes-like object; anything else is a `TypeError` that names `what`."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"{what} must be bytes, bytearray, memoryview or None, not {data!r:.80}")
    return bytes(data)


def encode_record(  # noqa: PLR0917 - a hot call
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Iterable[tuple[str, Buffer | None]],
    room_bytes: int,
) -> bool:
    """Append one record of format 2 to `out`, unless it takes more than `room_bytes`."""
    small = _VARINTS
    if key is None:
        key = b""
        key_length = _NULL_LENGTH
    else:
        if type(key) is not bytes:
            key = as_bytes(key, "key")
        size = len(key)
        key_length = small[size] if size < SMALL_VARINTS else encode_varint(size)
    if value is None:
        value = b""
        value_length = _NULL_LENGTH
    else:
        if type(value) is not bytes:
            value = as_bytes(value, "value")
        size = len(value)
        value_length = small[size] if size < SMALL_VARINTS else encode_varint(size)
    body = b"".join(
        (
            b"\0",
            small[timestamp_delta]
            if 0 <= timestamp_delta < SMALL_VARINTS
            else encode_varint(timestamp_delta),
            small[offset_delta] if offset_delta < SMALL_VARINTS else encode_varint(offset_delta),
            key_length,
            key,
            value_length,
            value,
            encode_headers(headers) if headers else b"\0",
        )
    )
    size = len(body)
    length = small[size] if size < SMALL_VARINTS else encode_varint(size)
    if size + len(length) > room_bytes:
        return False
    out += length
    out += body
    return True


def encode_headers(headers: Iterable[tuple[str, Buffer | None]]) -> bytes:
    """The header count and headers of a record of format 2."""
    out = bytearray()
    count = 0
    for name, value in headers:
        if not isinstance(name, str):
            raise TypeError(f"header name must be str, not {name!r:.80}")
        key = name.encode()
        out += encode_varint(len(key))
        out += key
        if value is None:
            out += _NULL_LENGTH
        else:
            content = as_bytes(value, "header value")
            out += encode_varint(len(content))
            out += content
        count += 1
    return encode_varint(count) + bytes(out)
