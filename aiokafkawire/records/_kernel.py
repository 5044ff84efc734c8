"""The hot loops: varints, the layout of records, murmur2, `Record`, and the buffers of Arrow.

One source that runs interpreted and, with the widths of `_kernel.pxd`, compiled. Where C needs
another way a function stands there, and its twin in `_kernel_pure.py`. `data` is any contiguous
buffer when compiled, else `bytes`. Columns are of `array("q")`. Protocol source: "Record Batch" in
Kafka's documentation of its message format. A structure that lies raises `CorruptRecord`; an index
past the end `IndexError` and a number over 64 bits `OverflowError`, which callers turn into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index as exact
from types import GenericAlias, TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeAlias

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.types import TopicPartition, no_timestamp_text

if TYPE_CHECKING:
    from array import array

    from aiokafkawire.share.acknowledgements import Acknowledgement
    from aiokafkawire.share.record import HeldRecords

    from . import _kernel_pure as cython
    from .columns import Columns
else:
    try:
        import cython
    except ImportError:  # it is only there where the kernel is compiled
        from . import _kernel_pure as cython

if not cython.compiled:
    from ._kernel_pure import (
        KERNEL_HASH,
        beginning,
        blank,
        column_arrays,
        copy,
        cut,
        extend,
    )  # isort: skip
    from ._kernel_pure import failed, likely, low, numbers, pointers, put_bytes, put_varint  # isort: skip
    from ._kernel_pure import signed, text, varint, varint_size, whole, word  # isort: skip

Buffer: TypeAlias = bytes | bytearray | memoryview
Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = tuple[Header, ...]

COMPILED: bool = cython.compiled
SOURCE_HASH = KERNEL_HASH.decode()  # of the sources of the compiled kernel

RECORD_MIN_BYTES = 7  # length, attributes, two deltas, key length, value length, header count


def encode_varint(value: int) -> bytes:
    """Encode a signed 64-bit integer as a zigzag varint of one to ten bytes."""
    out = bytearray()
    size = varint_size(value)
    put_varint(extend(out, 0, size), value)
    return bytes(out[:size])


def decode_varint(data: Buffer, position: int, max_bytes: int = 5) -> tuple[int, int]:
    """Decode a zigzag varint of at most `max_bytes`; return its value and the position after it."""
    value, position = varint(whole(data), position, min(max(max_bytes, 0), 10))
    if position < 0:
        failed(position)
    return value, position


def too_long(max_bytes: int) -> CorruptRecord:
    return CorruptRecord(f"a varint is longer than {max_bytes} bytes")


def murmur2(data: Buffer) -> int:
    """Kafka's hash of a key, as a signed 32-bit integer (`Utils.murmur2` of the Java client)."""
    key = data if type(data) is bytes else bytes(data)
    return murmur2_hash(key, len(key))


def murmur2_hash(data: bytes, size: int) -> int:
    hashed = low(size ^ -0x68B84D74)  # the seed 0x9747B28C
    for at in range(0, size & ~3, 4):
        mixed = low(word(data, at) * 0x5BD1E995)
        mixed = low((mixed ^ mixed >> 24) * 0x5BD1E995)
        hashed = low(hashed * 0x5BD1E995) ^ mixed
    if size & 3:
        for at in range(size & ~3, size):
            hashed ^= data[at] << 8 * (at & 3)
        hashed = low(hashed * 0x5BD1E995)
    hashed = low((hashed ^ hashed >> 13) * 0x5BD1E995)
    return signed(hashed ^ hashed >> 15)


@cython.overflowcheck(True)
def decode_records(  # noqa: PLR0917
    columns: Columns, start: int, stop: int, base_offset: int, base_timestamp: int,
    position: int, previous: int,
) -> int:  # fmt: skip
    """Decode records of format 2 at `position` of the data into `columns[start:stop]`.

    Returns the position after them. Offset deltas must be larger than `previous` and increase.
    """
    data = columns.data
    source, arrays, has_headers = whole(data), column_arrays(columns), False
    fill = pointers(arrays, start, stop)
    for index in range(start, stop):
        size, position = varint(source, position, 5)
        end = position + size
        # Skip the attributes: one byte, unused so far.
        delta, position = varint(source, position + 1, 10)
        fill.timestamps[index] = base_timestamp + delta
        delta, position = varint(source, position, 5)
        if position < 0:
            failed(position)
        if delta <= previous:
            raise corrupt("offsets do not rise", base_offset, previous + 1)
        previous = delta
        fill.offsets[index] = base_offset + delta
        size, position = varint(source, position, 5)
        fill.key_start[index] = position
        fill.key_length[index] = size
        size, position = varint(source, position + size if size > 0 else position, 5)
        if position < 0:
            failed(position)
        fill.value_start[index] = position
        fill.value_length[index] = size
        position += size if size > 0 else 0
        if data[position]:
            position = skip_headers(source, position, min(end, len(data)))
            has_headers = True
        else:
            position += 1
        if position != end:
            raise corrupt("a record's length is wrong", base_offset, previous)
    if has_headers:
        columns.has_headers = True
    return position


def corrupt(what: str, base_offset: int, delta: int) -> CorruptRecord:
    return CorruptRecord(what, offset=base_offset + delta)


def skip_headers(source: Any, position: int, end: int) -> int:
    """Validate the headers of a record; return the position after them."""
    count, position = varint(source, position, 5)
    if position < 0:
        failed(position)
    if count < 0 or count > end - position:
        raise CorruptRecord(f"a record cannot have {count} headers")
    for _ in range(count):
        size, position = varint(source, position, 5)
        if size < 0:
            raise CorruptRecord("a header has no key")
        size, position = varint(source, position + size, 5)
        if position < 0:
            failed(position)
        position += size if size > 0 else 0
        if position > end:
            raise CorruptRecord("a header reaches past its record")
    return position


def decode_headers(data: Buffer, position: int) -> Headers:
    """Return the headers of a record that `decode_records` has validated.

    Invalid UTF-8 in keys becomes replacement characters, as in the Java client.
    """
    return headers_at(whole(data), position)


def headers_at(source: Any, position: int) -> Headers:
    count, position = varint(source, position, 5)
    if position < 0:
        failed(position)
    headers = []
    for _ in range(count):
        size, position = varint(source, position, 5)
        name = text(source, position, size)
        size, position = varint(source, position + size, 5)
        headers.append((name, cut(source, position, size)))
        position += size if size > 0 else 0
    return tuple(headers)


@cython.no_gc
@cython.freelist(512)
@cython.cclass
class Record:
    """One consumed record.

    Attributes:
        topic: Topic of the record.
        partition: Partition of the record.
        offset: Offset in the partition.
        timestamp_ms: Milliseconds since 1970; -1 for none.
        timestamp_type: A `TimestampType`.
        key: Key, or None.
        value: Value, or None for a tombstone.
        headers: Tuple of (name, value or None).
        leader_epoch: Leader epoch of the batch; -1 if unknown.
    """

    __slots__ = (
        "headers", "key", "leader_epoch", "offset", "partition", "timestamp_ms", "timestamp_type",
        "topic", "value",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, offset: int, *, timestamp_ms: int = -1,
        timestamp_type: int = 0, key: bytes | None = None, value: bytes | None = None,
        headers: Iterable[Header] = (), leader_epoch: int = -1,
    ) -> None:  # fmt: skip
        self.topic, self.key, self.value = topic, key, value
        self.partition, self.offset = exact(partition), exact(offset)
        self.timestamp_ms, self.leader_epoch = exact(timestamp_ms), exact(leader_epoch)
        self.timestamp_type, self.headers = timestamp_type, tuple(headers)

    @classmethod
    def __class_getitem__(cls, types: Any) -> GenericAlias:
        """Return the class for the types of keys and values: `Record[str, Order]`."""
        return GenericAlias(cls, types)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def timestamp(self: Never) -> Never:  # type: ignore[misc]
        """Raise an error that names `timestamp_ms`."""
        raise AttributeError(no_timestamp_text(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Record.__slots__)

    def __reduce__(self) -> tuple[Any, ...]:
        from .kernel import restore  # noqa: PLC0415 - may be unpickled with the other kernel

        kind = None if type(self) is Record else type(self)
        state = object.__getstate__(self)  # (dict, slots) if there is a `__dict__`
        own, slots = state if isinstance(state, tuple) else (None, state)
        return restore, (kind, {**(slots or {}), **(own or {})})

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"Record({self.topic}-{self.partition} offset {self.offset}, "
            f"timestamp_ms={self.timestamp_ms}, key={self.key!r:.80}, value={self.value!r:.80}, "
            f"headers={len(self.headers)})"
        )


@cython.no_gc
@cython.cclass
class ShareRecord(Record):
    """A record of a share group. The broker locks it for this consumer until it is acknowledged.

    Acknowledge it with one of `accept`, `release` and `reject`, or use it as a context manager,
    which accepts it, or releases it if the block raises or is cancelled::

        async with record:
            await handle(record.value)

    The methods return at once, and the acknowledgement is sent together with others. Await the
    returned `Acknowledgement` to wait for the broker's response. They raise `AcknowledgementFailed`
    if the record is not held any more. Until an acknowledgement is sent, a later one replaces it:
    do not await both.
    """

    __slots__ = ("_held",)  # set by `make_records`

    _held: HeldRecords

    @property
    def delivery_count(self) -> int:
        """Number of deliveries of the record, this one included."""
        return self._held.delivery_count

    @property
    def lock_expires_at(self) -> float | None:
        """Time of the event loop's clock at which the lock expires; None if it is not held."""
        return self._held.lock_expires_at(self.offset)

    def accept(self) -> Acknowledgement:
        """Mark the record as processed."""
        return self._held.accept(self.offset)

    def release(self) -> Acknowledgement:
        """Have the record delivered again, to any member."""
        return self._held.release(self.offset)

    def reject(self) -> Acknowledgement:
        """Have the record archived: it cannot be processed, and is not delivered again."""
        return self._held.reject(self.offset)

    def renew(self) -> Acknowledgement:
        """Restart the lock, to process the record for longer (KIP-1222).

        Raises:
            AcknowledgementFailed: The record is not held any more; or the broker is older than
                Kafka 4.2, and the lock stays as it is.
        """
        return self._held.renew(self.offset)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Accept the record, or release it after an exception, unless it is acknowledged."""
        if self._held.is_undecided(self.offset):
            self.accept() if error is None else self.release()


def make_records(  # noqa: PLR0917
    columns: Columns, start: int, stop: int, topic: str, partition: int, timestamp_type: int,
    leader_epoch: int, held: HeldRecords | None = None,
) -> list[Record]:  # fmt: skip
    """Return the record of each index from `start` to `stop`: a `ShareRecord` if it is `held`."""
    data, has_headers = columns.data, columns.has_headers
    source, arrays = whole(data), column_arrays(columns)
    pointed = pointers(arrays, start, stop)
    records = []
    for index in range(start, stop):
        record: Record = Record.__new__(Record) if likely(held is None) else acquired(held)
        record.topic, record.partition = topic, partition
        record.offset, record.timestamp_ms = pointed.offsets[index], pointed.timestamps[index]
        record.timestamp_type, record.leader_epoch = timestamp_type, leader_epoch
        record.key = cut(source, pointed.key_start[index], pointed.key_length[index])
        at, size = pointed.value_start[index], pointed.value_length[index]
        record.value = cut(source, at, size)
        at += size if size > 0 else 0
        record.headers = headers_at(source, at) if has_headers else ()
        records.append(record)
    return records


def acquired(held: Any) -> ShareRecord:
    """Return a record of a share group, whose fields are not set yet."""
    record: ShareRecord = ShareRecord.__new__(ShareRecord)
    record._held = held
    return record


def slices(
    data: bytes, starts: array[int], lengths: array[int], start: int, stop: int
) -> list[bytes | None]:
    """Return the slices of `data` given by two columns; None for a negative length."""
    source = whole(data)
    begins, sizes = numbers(starts, start, stop), numbers(lengths, start, stop)
    return [cut(source, begins[index], sizes[index]) for index in range(start, stop)]


def longest(column: Sequence[Any]) -> int:
    """Return the maximum length of `bytes` or None entries; -1 if there is any other type."""
    maximum = 0
    for entry in column:
        if type(entry) is bytes:
            maximum = max(maximum, len(entry))
        elif entry is not None:
            return -1
    return maximum


def total(lengths: array[int], start: int, stop: int) -> int:
    """Return the sum of the non-negative lengths."""
    sizes = numbers(lengths, start, stop)
    result = 0
    for index in range(start, stop):
        result += max(sizes[index], 0)
    return result


def fill_binary(  # noqa: PLR0917
    data: bytes, starts: array[int], lengths: array[int], start: int, stop: int,
    out: bytearray | memoryview, ends: array[int], valid: bytearray, row: int,
) -> None:  # fmt: skip
    """Append the result of `slices` to an Arrow binary column that has `row` rows so far.

    `ends[row]` is the end of the content of `out`. The caller allocates `out`, `ends` and `valid`
    for all rows.
    """
    source, target = whole(data), whole(out)
    begins, sizes = numbers(starts, start, stop), numbers(lengths, start, stop)
    position = ends[row]
    for index in range(start, stop):
        size = sizes[index]
        if size >= 0:
            valid[row >> 3] |= 1 << (row & 7)
            copy(target, position, source, begins[index], size)
            position += size
        row += 1
        ends[row] = position


class RecordHandle:
    """The place of a record: its batch (`future`) and its index in the batch."""

    __slots__ = ("future", "index", "timestamp_ms")

    def __init__(self, future: Any, index: int, timestamp_ms: int) -> None:
        self.future, self.index, self.timestamp_ms = future, index, timestamp_ms


class RecordBuffer:
    """The encoded records of an open batch, up to `limit_bytes`; the first record always fits.

    Attributes:
        limit_bytes: Maximum size of the records, without the batch header.
        is_full: Set by a record that does not fit or reaches the limit. Code that raises the limit
            must clear it.
        handle_class: Class of the handles that `put` returns.
        future: Value of their attribute `future`.
    """

    __slots__ = (
        "_body", "base_timestamp", "body_bytes", "count", "future", "handle_class", "is_full",
        "limit_bytes", "max_timestamp",
    )  # fmt: skip

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._body = bytearray()
        self.count = self.body_bytes = 0
        self.base_timestamp = self.max_timestamp = -1
        self.is_full = False
        self.future: Any = None
        self.handle_class: type[RecordHandle] = RecordHandle

    def take_body(self) -> bytes:
        """Return the encoded records; the buffer must not be used after that."""
        body = beginning(self._body, self.body_bytes)
        self._body = bytearray()
        self.limit_bytes = 0
        return body

    def add(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes) -> int:
        """Append a record with encoded headers; return its index, or -1 if it does not fit."""
        return self.place(timestamp_ms, key, value, headers)

    @cython.overflowcheck(True)
    def place(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes
    ) -> int:
        index, used = self.count, self.body_bytes
        delta = timestamp_ms - self.base_timestamp if index else 0
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        size = 1 + varint_size(delta) + varint_size(index) + len(headers)
        size += varint_size(key_size) + varint_size(value_size)
        size += max(key_size, 0) + max(value_size, 0)
        whole_size = size + varint_size(size)
        if index and used + whole_size > self.limit_bytes:
            self.is_full = True
            return -1
        at = put_varint(extend(self._body, used, whole_size), size)
        at = put_varint(at, 0)  # attributes
        at = put_varint(at, delta)
        at = put_varint(at, index)
        at = put_varint(at, key_size)
        at = put_bytes(at, key, key_size)
        at = put_varint(at, value_size)
        at = put_bytes(at, value, value_size)
        put_bytes(at, headers, len(headers))
        if not index:
            self.base_timestamp = self.max_timestamp = timestamp_ms
        # mutation: last-timestamp-taken-for-latest
        elif timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        self.count = index + 1
        self.body_bytes = used + whole_size
        self.is_full = self.is_full or self.body_bytes >= self.limit_bytes
        return index

    def put(self, timestamp_ms: int, key: bytes | None, value: bytes) -> Any:
        """Append a `bytes` record without headers that is not the first; return its handle.

        Returns None, and appends nothing, for other types, for the first record, or if the record
        does not fit. This is the fast path of `add`.
        """
        if not self.count or type(value) is not bytes or not (key is None or type(key) is bytes):
            return None
        placed: RecordHandle = blank(self.handle_class)
        index = self.place(timestamp_ms, key, value, b"\0")
        if index < 0:
            return None
        placed.future, placed.index, placed.timestamp_ms = self.future, index, timestamp_ms
        return placed

    def put_many(
        self, timestamp_ms: int, keys: Sequence[bytes | None] | None,
        values: Sequence[bytes | None], start: int, stop: int,
    ) -> int:  # fmt: skip
        """Append records of `bytes` or None from `start` to `stop`, with the same timestamp.

        Returns:
            The index of the first record that does not fit or has another type, else `stop`.
        """
        for index in range(start, stop):
            key = None if keys is None else keys[index]
            value = values[index]
            plain = (key is None or type(key) is bytes) and (value is None or type(value) is bytes)
            if not plain or self.place(timestamp_ms, key, value, b"\0") < 0:
                return index
        return stop
