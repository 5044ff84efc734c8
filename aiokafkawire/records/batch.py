"""Record batches and message sets of every format, without decoding their records.

Protocol source: "Record Batch" in Kafka's documentation of its message format.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from struct import Struct

import crc32c

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.types import TimestampType

from . import fixed_stride, legacy
from .columns import RECORD_COLUMN_BYTES, Columns
from .compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Compression,
    DecompressionLimitExceeded,
    declared_size,
    decompress,
)
from .kernel import RECORD_MIN_BYTES, Buffer

__all__ = (
    "BATCH_HEADER",
    "BATCH_OVERHEAD_BYTES",
    "MAGIC_V2",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "BatchView",
    "batch_at",
    "batch_crc",
    "iter_batches",
)

MAGIC_V2 = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

BATCH_HEADER = Struct(">qiibIhiqqqhii")
"""Base offset, length, partition leader epoch, magic, CRC, attributes, last offset delta, base
timestamp, max timestamp, producer id, producer epoch, base sequence, record count."""

BATCH_OVERHEAD_BYTES = BATCH_HEADER.size
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAGIC_POSITION = 16
CHUNK_RECORDS = 4096  # decoded at a time for a consumer, in a few milliseconds
MAX_OFFSET = (1 << 63) - 1
MIN_BATCH_SIZE = BATCH_OVERHEAD_BYTES - legacy.LOG_OVERHEAD_BYTES  # and of a batch without records

CODEC_MASK = 7
TIMESTAMP_TYPE_FLAG = 8
TRANSACTIONAL_FLAG = 16
CONTROL_FLAG = 32
DELETE_HORIZON_FLAG = 64

_CODECS = tuple(Compression)
_LEGACY_HEADER = Struct(">qiIbb")
_OFFSET_AND_SIZE = Struct(">qi")
_TIMESTAMP = Struct(">q")


def batch_crc(buffer: Buffer) -> int:
    """Compute the CRC-32C of a batch of format 2, over all bytes after the CRC field."""
    return crc32c.crc32c(memoryview(buffer)[ATTRIBUTES_POSITION:])


class BatchView:
    """A batch of format 2, or a message of format 0 or 1 (a wrapper with its inner messages).

    Nothing is copied: `buffer` is a slice of the bytes that hold the batch. Fields that the format
    does not have are -1 or False.
    """

    __slots__ = (
        "_base_offset",
        "_columns",
        "_count",
        "_payload",
        "attributes",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "crc",
        "last_offset",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
    )

    attributes: int
    base_sequence: int
    base_timestamp: int
    crc: int
    last_offset: int
    max_timestamp: int
    partition_leader_epoch: int
    producer_epoch: int
    producer_id: int

    def __init__(self, buffer: memoryview) -> None:
        """`buffer` holds exactly one batch; `iter_batches` finds them."""
        self.buffer = buffer
        self.magic = int.from_bytes(buffer[MAGIC_POSITION : MAGIC_POSITION + 1], signed=True)
        self._columns: Columns | None = None
        self._payload: Buffer | None = None  # decompressed
        self._base_offset: int | None = None
        self._count: int | None = None
        if self.magic == MAGIC_V2:
            self._read_header()
        else:
            self._read_legacy_header()

    def _read_header(self) -> None:
        if len(self.buffer) < BATCH_OVERHEAD_BYTES:
            raise CorruptRecord(f"a batch cannot have {len(self.buffer)} bytes")
        (
            self._base_offset,
            _,
            self.partition_leader_epoch,
            _,
            self.crc,
            self.attributes,
            last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self._count,
        ) = BATCH_HEADER.unpack_from(self.buffer)
        self.last_offset = self._base_offset + last_offset_delta

    def _read_legacy_header(self) -> None:
        if len(self.buffer) < legacy.overhead_bytes(self.magic):
            raise CorruptRecord(f"a message cannot have {len(self.buffer)} bytes")
        self.last_offset, _, self.crc, _, self.attributes = _LEGACY_HEADER.unpack_from(self.buffer)
        timestamp = _TIMESTAMP.unpack_from(self.buffer, 18)[0] if self.magic else -1
        self.partition_leader_epoch = NO_LEADER_EPOCH
        self.base_timestamp = self.max_timestamp = timestamp
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        if not self.attributes & CODEC_MASK:
            self._base_offset = self.last_offset
            self._count = 1

    @property
    def size_bytes(self) -> int:
        return len(self.buffer)

    @property
    def compression(self) -> Compression:
        codec = self.attributes & CODEC_MASK
        if codec > Compression.ZSTD:
            raise CorruptRecord(f"there is no compression codec {codec}", offset=self.last_offset)
        return _CODECS[codec]

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NONE
        appended = self.attributes & TIMESTAMP_TYPE_FLAG
        return TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME

    @property
    def is_uncompressed_legacy_message(self) -> bool:
        """True for a message of format 0 or 1 that is not a wrapper."""
        return self.magic < MAGIC_V2 and not self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.magic == MAGIC_V2 and bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return self.magic == MAGIC_V2 and bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Delete horizon in ms since 1970, if the log cleaner has set it (KIP-534)."""
        if self.magic == MAGIC_V2 and self.attributes & DELETE_HORIZON_FLAG:
            return self.base_timestamp
        return None

    @property
    def base_offset(self) -> int:
        """First offset. Reading it decompresses a wrapper."""
        if self._base_offset is None:
            self._base_offset = self.columns().offsets[0]
        return self._base_offset

    @property
    def count(self) -> int:
        """Number of records by the header. Reading it decompresses a wrapper."""
        if self._count is None:
            self._count = len(self.columns())
        return self._count

    @property
    def next_offset(self) -> int:
        """Offset after the batch, whose last records may have been removed by compaction."""
        return self.last_offset + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap to 0 after 2^31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset - self.base_offset) & 0x7FFFFFFF

    def check_crc(self) -> None:
        """Raise `CorruptRecord` if the stored checksum does not match."""
        if self.magic == MAGIC_V2:
            computed = batch_crc(self.buffer)
        else:
            computed = zlib.crc32(self.buffer[MAGIC_POSITION:])
        if computed != self.crc:
            raise CorruptRecord(
                f"checksum is {computed:#010x}, not {self.crc:#010x} as stored",
                offset=self.last_offset if self._base_offset is None else self._base_offset,
            )

    def decompress(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> None:
        """Decompress the records and keep them for `chunks`; also decode a wrapper."""
        if self.magic != MAGIC_V2:
            if not self.is_uncompressed_legacy_message:
                self.columns(max_decompressed_bytes)
        elif self._payload is None:
            try:
                self._payload = self._decompressed(max_decompressed_bytes)
            except CorruptRecord as error:
                error.offset = self._first_known_offset()
                raise

    def try_decompress(self, limit_bytes: int) -> bool:
        """Decompress unless the result exceeds `limit_bytes`; return True once decompressed."""
        if (
            not self.attributes & CODEC_MASK
            or self._payload is not None
            or self._columns is not None
        ):
            return True
        codec = self.compression
        if self.magic == MAGIC_V2:
            declared = declared_size(codec, self.buffer[BATCH_OVERHEAD_BYTES:])
            if declared is not None and declared > limit_bytes:
                return False
        try:
            self.decompress(limit_bytes)
        except DecompressionLimitExceeded:
            return False
        return True

    def _decompressed(self, max_bytes: int) -> Buffer:
        payload = self.buffer[BATCH_OVERHEAD_BYTES:]
        return decompress(self.compression, payload, max_bytes) if payload else b""

    def columns(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Columns:
        """Decode all records at once.

        Args:
            max_decompressed_bytes: Limit for the decompressed bytes, and for the columns.

        Raises:
            CorruptRecord: The error names the offset at which decoding failed.
        """
        if self._columns is not None:
            return self._columns
        chunks = self.chunks(max_decompressed_bytes, max_records=sys.maxsize)
        return next(chunks, None) or Columns(b"", 0)

    def chunks(
        self,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        max_records: int = CHUNK_RECORDS,
    ) -> Iterator[Columns]:
        """Decompress, and decode `max_records` at a time; a wrapper is one chunk.

        Thus a batch of millions of tiny records neither blocks for long nor takes much memory.
        """
        pieces = (
            self._decode(max_decompressed_bytes, max_records)
            if self.magic == MAGIC_V2
            else self._decode_legacy(max_decompressed_bytes)
        )
        try:
            yield from pieces
        except CorruptRecord as error:
            if error.offset is None:
                error.offset = self._first_known_offset()
            raise
        except (IndexError, OverflowError) as error:
            raise CorruptRecord(
                "a record reaches past the end of its batch", offset=self._first_known_offset()
            ) from error

    def _first_known_offset(self) -> int:
        return self.last_offset if self._base_offset is None else self._base_offset

    def _decode(self, max_decompressed_bytes: int, max_records: int) -> Iterator[Columns]:
        count, base_offset = self.count, self.base_offset
        if count < 0:
            raise CorruptRecord(f"a batch cannot have {count} records")
        if base_offset < 0 or not base_offset <= self.last_offset < MAX_OFFSET:
            raise CorruptRecord(f"offsets cannot run from {base_offset} to {self.last_offset}")
        data = self._payload
        if data is None:
            data = self._decompressed(max_decompressed_bytes)
        if count * RECORD_MIN_BYTES > len(data):
            raise CorruptRecord(f"{len(data)} bytes cannot hold {count} records")
        if min(count, max_records) > max(
            CHUNK_RECORDS, max_decompressed_bytes // RECORD_COLUMN_BYTES
        ):
            raise DecompressionLimitExceeded(
                f"the columns of {count} records take more than {max_decompressed_bytes} bytes"
            )
        position = 0
        previous = -1
        for start in range(0, count, max_records):
            size = min(count - start, max_records)
            columns = Columns(data, size)
            position = fixed_stride.decode(
                columns, 0, size, base_offset, self.base_timestamp, position, previous
            )
            previous = columns.offsets[-1] - base_offset
            if base_offset + previous > self.last_offset:
                raise CorruptRecord("a record has an offset after the last offset of its batch")
            if start + size == count and position != len(data):
                raise CorruptRecord(f"{len(data) - position} bytes follow the last record")
            self._set_append_time(columns)
            yield columns
        if not count and data:
            raise CorruptRecord(f"{len(data)} bytes in a batch without records")

    def _decode_legacy(self, max_decompressed_bytes: int) -> Iterator[Columns]:
        if self._columns is None:
            data = bytes(self.buffer)
            if self.compression is Compression.NONE:
                yield legacy.read_message(data, self.magic)
                return
            columns = legacy.read_wrapper(
                data, self.magic, self.last_offset, self.compression, max_decompressed_bytes
            )
            self._set_append_time(columns)
            self._columns = columns  # `base_offset` and `count` need them
        yield self._columns

    def _set_append_time(self, columns: Columns) -> None:
        if self.attributes & TIMESTAMP_TYPE_FLAG and self.magic:
            columns.set_timestamps(self.max_timestamp)


def batch_at(view: memoryview, position: int) -> BatchView | None:
    """Return the batch at `position`, None if it is incomplete or there is none."""
    left = len(view) - position
    if left < legacy.LOG_OVERHEAD_BYTES:
        return None
    offset, size = _OFFSET_AND_SIZE.unpack_from(view, position)
    if size < legacy.MIN_MESSAGE_SIZE:
        raise CorruptRecord(f"a batch cannot have the size {size}", offset=offset)
    if left <= MAGIC_POSITION:
        return None
    magic = view[position + MAGIC_POSITION]
    if magic > MAGIC_V2:
        raise CorruptRecord(f"there is no message format {magic}", offset=offset)
    if legacy.LOG_OVERHEAD_BYTES + size > left:
        return None
    try:
        return BatchView(view[position : position + legacy.LOG_OVERHEAD_BYTES + size])
    except CorruptRecord as error:
        error.offset = offset
        raise


def iter_batches(buffer: Buffer, *, allow_partial: bool = True) -> Iterator[BatchView]:
    """Yield the batches of a fetch response, a produce request or a log segment, in order.

    An incomplete last batch ends the iteration, because brokers fill fetch responses to their
    limit. Without `allow_partial` it raises `CorruptRecord`. Checksums are not verified.
    """
    view = memoryview(buffer)
    position = 0
    next_offset: int | None = None
    while (batch := batch_at(view, position)) is not None:
        position += batch.size_bytes
        next_offset = batch.next_offset
        yield batch
    if position < len(view) and not allow_partial:
        raise CorruptRecord("the last batch is cut off", offset=next_offset)
