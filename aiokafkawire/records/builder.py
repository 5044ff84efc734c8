"""Open batches of a producer, and closed batches that are sent, possibly several times."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

import crc32c

from aiokafkawire.errors import UnsupportedVersion

from . import legacy
from .batch import (
    BATCH_OVERHEAD_BYTES,
    CONTROL_FLAG,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
)
from .columns import Columns
from .compression import Compression, compress
from .headers import encode_headers, to_bytes
from .kernel import Buffer, Headers, RecordBuffer, decode_records

__all__ = ("DEFAULT_BATCH_BYTES", "BatchBuilder", "ClosedBatch")

DEFAULT_BATCH_BYTES = 16 * 1024
NO_HEADERS = encode_headers(())

# The two parts of `BATCH_HEADER`: up to the checksum, and the part that it covers.
_UP_TO_CRC = Struct(">qiibI")
_AFTER_CRC = Struct(">hiqqqhii")


class BatchBuilder(RecordBuffer):
    """Builder of one batch of format 2, up to `max_bytes` before compression.

    The first record always fits; the producer limits the size of records itself. Timestamps are
    milliseconds since 1970. Keys and values are bytes-like or None; others raise `TypeError`.

    Attributes:
        has_user_timestamp: The application gave one of the records its timestamp.
    """

    __slots__ = ("compression", "compression_level", "has_user_timestamp", "max_bytes")

    def __init__(
        self,
        compression: int = Compression.NONE,
        compression_level: int | None = None,
        max_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> None:
        super().__init__(max_bytes - BATCH_OVERHEAD_BYTES)
        self.compression = (
            compression if isinstance(compression, Compression) else Compression(compression)
        )
        self.compression_level = compression_level
        self.has_user_timestamp = False
        self.max_bytes = max_bytes

    @property
    def size_bytes(self) -> int:
        """Size of the batch before compression, header included."""
        return BATCH_OVERHEAD_BYTES + self.body_bytes

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
    ) -> int | None:
        """Append a record; return its index in the batch, or None if it does not fit."""
        index = self.add(
            timestamp_ms,
            key if key is None or type(key) is bytes else to_bytes(key, "key"),
            value if value is None or type(value) is bytes else to_bytes(value, "value"),
            encode_headers(headers) if headers else NO_HEADERS,
        )
        return None if index < 0 else index

    def close(self) -> ClosedBatch:
        """Close the batch; the builder must not be used after that."""
        self.is_full = True
        return ClosedBatch(
            self.take_body(),
            self.count,
            self.base_timestamp,
            self.max_timestamp,
            compression=self.compression,
            compression_level=self.compression_level,
            has_user_timestamp=self.has_user_timestamp,
        )


class ClosedBatch:
    """A batch that accepts no more records.

    It is compressed once even if it is encoded several times: a retry may need another producer
    epoch or base sequence, and thus a new header, but the same records.

    Attributes:
        has_user_timestamp: The application gave one of the records its timestamp.
    """

    __slots__ = (
        "_body",
        "_compressed",
        "base_timestamp",
        "compression",
        "compression_level",
        "count",
        "has_user_timestamp",
        "max_timestamp",
        "size_bytes",
    )

    def __init__(
        self,
        body: bytes,
        count: int,
        base_timestamp: int,
        max_timestamp: int,
        *,
        compression: Compression = Compression.NONE,
        compression_level: int | None = None,
        has_user_timestamp: bool = False,
    ) -> None:
        """`body` holds `count` records of format 2, their offset deltas running from 0.

        `size_bytes` is that of the encoded batch (format 2) as it is known: compressed once it was.
        """
        self.size_bytes = BATCH_OVERHEAD_BYTES + len(body)
        self._body = body
        self._compressed: bytes | None = None if compression else body
        self.count = count
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.has_user_timestamp = has_user_timestamp
        self.compression = compression
        self.compression_level = compression_level

    @classmethod
    def single_record(
        cls, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers
    ) -> ClosedBatch:
        """Return an uncompressed batch of one record, faster than by a `BatchBuilder`."""
        records = RecordBuffer(0)
        records.add(
            timestamp_ms,
            key if key is None or type(key) is bytes else to_bytes(key, "key"),
            value if value is None or type(value) is bytes else to_bytes(value, "value"),
            encode_headers(headers) if headers else NO_HEADERS,
        )
        return cls(records.take_body(), 1, timestamp_ms, timestamp_ms)

    @property
    def ready(self) -> bool:
        """True if the records are compressed."""
        return self._compressed is not None

    def compress(self) -> None:
        """Compress the records; may run in a worker thread. Later calls do nothing."""
        if self._compressed is None:
            compressed = compress(self.compression, self._body, self.compression_level)
            self.size_bytes = BATCH_OVERHEAD_BYTES + len(compressed)
            self._compressed = compressed

    def encode(
        self,
        magic: int = MAGIC_V2,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
    ) -> list[Buffer]:
        """Encode the batch for a produce request, as buffers that need not be joined.

        Args:
            magic: Message format: 2, or 0 or 1 for a message set of the same records.
            producer_id: Producer id of an idempotent producer.
            producer_epoch: Producer epoch.
            base_sequence: Sequence of the first record.
            transactional: Set the transactional flag.
            control: Set the control flag.
            base_offset: Offset of the first record.
            leader_epoch: Partition leader epoch.

        Raises:
            UnsupportedVersion: Format 0 or 1 with headers, zstd, transactions or idempotence.
        """
        if magic != MAGIC_V2:
            if producer_id != NO_PRODUCER_ID or transactional or control:
                raise UnsupportedVersion(f"message format {magic} has no producer ids")
            codec, level = self.compression, self.compression_level
            return [legacy.encode_message_set(self.columns(), magic, codec, level)]
        if self._compressed is None:
            self.compress()
        body = self._compressed
        assert body is not None
        attributes: int = self.compression
        if transactional:
            attributes |= TRANSACTIONAL_FLAG
        if control:
            attributes |= CONTROL_FLAG
        count = self.count
        after_crc = _AFTER_CRC.pack(
            attributes,
            count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
        up_to_crc = _UP_TO_CRC.pack(
            base_offset,
            BATCH_OVERHEAD_BYTES - legacy.LOG_OVERHEAD_BYTES + len(body),
            leader_epoch,
            MAGIC_V2,
            crc32c.crc32c(body, crc32c.crc32c(after_crc)),
        )
        return [up_to_crc + after_crc, body]

    def columns(self) -> Columns:
        """Decode the records into columns, with offsets from 0."""
        columns = Columns(self._body, self.count)
        decode_records(columns, 0, self.count, 0, self.base_timestamp, 0, -1)
        return columns

    def split(self, max_bytes: int) -> list[ClosedBatch]:
        """Split the records into batches of at most `max_bytes` each, before compression.

        A larger record becomes a separate batch.
        """
        columns = self.columns()
        batches: list[ClosedBatch] = []
        builder = BatchBuilder(self.compression, self.compression_level, max_bytes)
        for index in range(self.count):
            record = (
                columns.timestamps[index],
                columns.key(index),
                columns.value(index),
                columns.headers(index),
            )
            if builder.append(*record) is None:
                batches.append(builder.close())
                builder = BatchBuilder(self.compression, self.compression_level, max_bytes)
                builder.append(*record)
        batches.append(builder.close())
        for batch in batches:
            batch.has_user_timestamp = self.has_user_timestamp
        return batches
