"""The hot loops: varints, the layout of records, murmur2, and `Record` itself.

Plain functions over buffers, integers and `array('q')`, so that the same source runs interpreted
and compiled. What a caller passes as `data` is only indexed and sliced. Protocol source: "Record
Batch" and "Old Message Format" in Kafka's documentation of its message format.

A structure that lies raises `CorruptRecords`; an index past the end raises `IndexError` and a
number over 64 bits `OverflowError`, which callers turn into `CorruptRecords` too.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, TypeAlias

from aiokafkawire.errors import CorruptRecords
from aiokafkawire.types import TopicPartition

Buffer: TypeAlias = bytes | bytearray | memoryview
Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = tuple[Header, ...]

COMPILED = False

VARINT_MAX_BYTES = 10
SMALL_VARINTS = 8192  # all that fit in two bytes and are not negative
RECORD_MIN_BYTES = 7  # length, attributes, two deltas, key length, value length, header count

_MURMUR_WORDS = 0x5BD1E995


def encode_varint(value: int) -> bytes:
    """The zigzag varint of a signed 64-bit integer: one to ten bytes."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint: its value and the position after it."""
    raw = 0
    shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift == VARINT_MAX_BYTES * 7:
            raise CorruptRecords("a varint is longer than 10 bytes")
    return raw >> 1 ^ -(raw & 1), position


_VARINTS = [encode_varint(n) for n in range(SMALL_VARINTS)]
_NULL_LENGTH = encode_varint(-1)


def murmur2(data: Buffer) -> int:
    """Kafka's hash of a key, as a signed 32-bit integer (`Utils.murmur2` of the Java client)."""
    size = len(data)
    tail = size & 3
    hashed = 0x9747B28C ^ size
    for word in Struct(f"<{size >> 2}I").unpack_from(data):
        mixed = word * _MURMUR_WORDS & 0xFFFFFFFF
        mixed = (mixed ^ mixed >> 24) * _MURMUR_WORDS & 0xFFFFFFFF
        hashed = hashed * _MURMUR_WORDS & 0xFFFFFFFF ^ mixed
    if tail:
        rest = size - tail
        if tail == 3:
            hashed ^= data[rest + 2] << 16
        if tail >= 2:
            hashed ^= data[rest + 1] << 8
        hashed = (hashed ^ data[rest]) * _MURMUR_WORDS & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * _MURMUR_WORDS & 0xFFFFFFFF
    hashed ^= hashed >> 15
    return hashed - 0x100000000 if hashed & 0x80000000 else hashed


# --- reading ---------------------------------------------------------------------------------


class Columns:
    """The records of one batch as parallel columns over one buffer.

    `key_length` and `value_length` are -1 for null. `has_headers` says whether any record has
    headers: they begin where its value ends.
    """

    __slots__ = (
        "data",
        "has_headers",
        "key_length",
        "key_start",
        "offsets",
        "timestamps",
        "value_length",
        "value_start",
    )

    def __init__(self, data: bytes, count: int) -> None:
        blank = bytes(8 * count)
        self.data = data
        self.has_headers = False
        self.offsets = array("q", blank)
        self.timestamps = array("q", blank)
        self.key_start = array("q", blank)
        self.key_length = array("q", blank)
        self.value_start = array("q", blank)
        self.value_length = array("q", blank)

    def __len__(self) -> int:
        return len(self.offsets)

    def set_timestamps(self, timestamp_ms: int) -> None:
        """Give all records the same timestamp, as log-append time does."""
        self.timestamps = array("q", (timestamp_ms,)) * len(self.offsets)

    def key(self, index: int) -> bytes | None:
        start = self.key_start[index]
        size = self.key_length[index]
        return None if size < 0 else self.data[start : start + size]

    def value(self, index: int) -> bytes | None:
        start = self.value_start[index]
        size = self.value_length[index]
        return None if size < 0 else self.data[start : start + size]

    def headers_position(self, index: int) -> int:
        """Where the header count of a record stands in `data`, if `has_headers`."""
        size = self.value_length[index]
        return self.value_start[index] + (size if size > 0 else 0)

    def headers(self, index: int) -> Headers:
        return decode_headers(self.data, self.headers_position(index)) if self.has_headers else ()


def decode_records(
    columns: Columns, count: int, base_offset: int, base_timestamp: int, last_offset_delta: int
) -> int:
    """Fill `columns` with `count` records of format 2 that begin at the start of its data.

    Returns the position after the last one. Offset deltas must rise and end at or before
    `last_offset_delta`, and each record must fill its length exactly.
    """
    data = columns.data
    offsets = columns.offsets
    timestamps = columns.timestamps
    key_starts = columns.key_start
    key_lengths = columns.key_length
    value_starts = columns.value_start
    value_lengths = columns.value_length
    position = 0
    previous = -1
    for index in range(count):
        # Each varint is read in place when it has one or two bytes: a call costs more than both.
        raw = data[position]
        position += 1
        if raw > 127:
            more = data[position]
            position += 1
            if more < 128:
                size = (raw + (more << 7) >> 1) - 64 if not raw & 1 else -1
            else:
                size, position = decode_varint(data, position - 2)
        else:
            size = raw >> 1 if not raw & 1 else -1
        if size < 0:
            raise CorruptRecords("a record's length is negative", offset=base_offset + previous + 1)
        end = position + size

        raw = data[position + 1]  # the byte before holds attributes, of which none is in use
        position += 2
        if raw > 127:
            more = data[position]
            if more < 128:
                position += 1
                raw += (more << 7) - 128
                timestamps[index] = base_timestamp + (raw >> 1 ^ -(raw & 1))
            else:
                delta, position = decode_varint(data, position - 1)
                timestamps[index] = base_timestamp + delta
        else:
            timestamps[index] = base_timestamp + (raw >> 1 ^ -(raw & 1))

        raw = data[position]
        position += 1
        if raw > 127:
            delta, position = decode_varint(data, position - 1)
        else:
            delta = raw >> 1 if not raw & 1 else -1
        if delta <= previous:
            raise CorruptRecords("offsets do not rise", offset=base_offset + previous + 1)
        previous = delta
        offsets[index] = base_offset + delta

        raw = data[position]
        position += 1
        if raw > 127:
            size, position = decode_varint(data, position - 1)
        else:
            size = raw >> 1 ^ -(raw & 1)
        key_starts[index] = position
        if size < 0:
            key_lengths[index] = -1
        else:
            key_lengths[index] = size
            position += size

        raw = data[position]
        position += 1
        if raw > 127:
            more = data[position]
            if more < 128:
                position += 1
                raw += (more << 7) - 128
                size = raw >> 1 ^ -(raw & 1)
            else:
                size, position = decode_varint(data, position - 1)
        else:
            size = raw >> 1 ^ -(raw & 1)
        value_starts[index] = position
        if size < 0:
            value_lengths[index] = -1
        else:
            value_lengths[index] = size
            position += size

        if data[position]:
            position = skip_headers(data, position, end)
            columns.has_headers = True
        else:
            position += 1
        if position != end:
            raise CorruptRecords("a record's length is wrong", offset=base_offset + previous)
    if previous > last_offset_delta:
        raise CorruptRecords("an offset is past the batch's last", offset=base_offset + previous)
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
    for index in range(start, stop):
        record = new(Record)
        record.topic = topic
        record.partition = partition
        record.offset = columns.offsets[index]
        record.timestamp_ms = columns.timestamps[index]
        record.timestamp_type = timestamp_type
        record.leader_epoch = leader_epoch
        at = columns.key_start[index]
        size = columns.key_length[index]
        record.key = data[at : at + size] if size >= 0 else None
        at = columns.value_start[index]
        size = columns.value_length[index]
        if size >= 0:
            record.value = data[at : at + size]
            at += size
        else:
            record.value = None
        record.headers = decode_headers(data, at) if has_headers and data[at] else ()
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
