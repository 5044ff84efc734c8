"""Decode fetched bytes into messages and decide the next FETCH of a partition."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.errors import (
    BrokerError,
    CorruptRecord,
    KafkaError,
    MalformedMessage,
    RecordTooLarge,
    UnknownServerError,
)
from aiokafkawire.records.compression import Compression, decompress
from aiokafkawire.runtime import copy_error
from aiokafkawire.wire import kafka07
from aiokafkawire.wire.kafka07 import Kafka07ErrorCode

__all__ = ("FetchResult", "MessageAndOffset", "PartitionReader", "ReadStatus", "broker_error")

SUPPORTED_CODECS = (Compression.GZIP, Compression.SNAPPY)

_ERROR_MESSAGES = {
    Kafka07ErrorCode.OFFSET_OUT_OF_RANGE: "the log has no such offset; offsets() returns its range",
    Kafka07ErrorCode.WRONG_PARTITION: "the topic has no such partition on this broker",
    Kafka07ErrorCode.UNKNOWN: "internal error of the broker, or an invalid topic name",
}


class MessageAndOffset(NamedTuple):
    """The payload of a message and the offset to resume from after it.

    Attributes:
        payload: The message, decompressed.
        next_offset: Byte offset of the next message in the log. Within a compressed set, except
            after its last message, this is the offset of the set: resuming there repeats the set
            and skips no message.
    """

    payload: bytes
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult:
    """The result of fetching one partition.

    Iterate over it for its messages. One compressed set is decompressed at a time. An incomplete
    message at the end is skipped. Iterating raises `error` if it is set, and `CorruptRecord` for
    corrupt data.

    Attributes:
        topic: Topic of the fetch.
        partition: Partition of the fetch.
        offset: Byte offset of the first byte of `data`.
        data: Bytes of the log, starting at `offset`.
        max_decompressed_bytes: Limit for the decompressed size of one compressed set.
        error: Error code of the broker as an exception, or None.
    """

    topic: str
    partition: int
    offset: int
    data: bytes
    max_decompressed_bytes: int
    error: KafkaError | None = None

    def __iter__(self) -> Iterator[MessageAndOffset]:
        for _, message in self.iter_with_positions():
            if message is not None:
                yield message

    @property
    def next_offset(self) -> int:
        """Offset after the last complete message, without decompressing messages.

        Raises:
            KafkaError: `error`, if it is set.
            CorruptRecord: `data` is not a valid message set.
        """
        if self.error is not None:
            raise copy_error(self.error)
        end = self.offset
        try:
            for entry in kafka07.iter_messages(self.data, self.offset):
                end = entry.next_offset
        except MalformedMessage as error:
            raise self._corrupt(error, end) from error
        return end

    def iter_with_positions(self) -> Iterator[tuple[int, MessageAndOffset | None]]:
        """Yield pairs of the offset to resume from and a message, or None for an empty set."""
        if self.error is not None:
            raise copy_error(self.error)
        position, following = self.offset, None
        try:
            for entry in kafka07.iter_messages(self.data, self.offset):
                position, following = entry.offset, entry.next_offset
                payload_offset = position
                for payload_offset, payload in self._iter_payloads(entry):
                    yield payload_offset, MessageAndOffset(payload, payload_offset)
                if payload_offset != following:
                    yield following, None
                position, following = entry.next_offset, None
        except (MalformedMessage, CorruptRecord) as error:
            raise self._corrupt(error, position, following) from error

    def _iter_payloads(self, entry: kafka07.LogEntry) -> Iterator[tuple[int, bytes]]:
        start = entry.offset - self.offset
        entry_bytes = memoryview(self.data)[start : entry.next_offset - self.offset]
        return kafka07.iter_payloads(entry_bytes, entry.offset, self._decompress)

    def _decompress(self, codec: int, data: bytes) -> bytes:
        if codec not in SUPPORTED_CODECS:
            raise CorruptRecord(f"unknown codec {codec}: Kafka 0.7 has 1 (gzip) and 2 (snappy)")
        return bytes(decompress(codec, data, self.max_decompressed_bytes))

    def _corrupt(
        self, error: KafkaError, offset: int, next_offset: int | None = None
    ) -> CorruptRecord:
        return CorruptRecord(
            f"{error}; or the requested offset is not the start of a message",
            next_offset=next_offset,
            topic=self.topic,
            partition=self.partition,
            offset=offset,
        )


class ReadStatus(enum.Enum):
    """Result of `PartitionReader.handle_response`."""

    MESSAGES = "next_message() returns the fetched messages"
    END_OF_LOG = "the position is the end of the log"
    INCOMPLETE_MESSAGE = "the message exceeds the fetch size, which was increased"


class PartitionReader:
    """State of reading one partition: position, fetch size and fetched messages. Does no I/O.

    Call `next_message` until it returns None, then send `next_request` and pass its result to
    `handle_response`. A method that raises leaves the position unchanged.
    """

    def __init__(
        self, topic: str, partition: int, offset: int, *, size_bytes: int, max_size_bytes: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self._initial_size = size_bytes
        self._max_size = max_size_bytes
        self._size = size_bytes
        self._messages: Iterator[tuple[int, MessageAndOffset | None]] = iter(())

    @property
    def next_request(self) -> kafka07.Kafka07FetchRequest:
        """The FETCH to send once `next_message` has returned None."""
        return kafka07.Kafka07FetchRequest(
            topic=self.topic, partition=self.partition, offset=self.offset, max_size=self._size
        )

    def next_message(self) -> MessageAndOffset | None:
        """Return the next fetched message, or None if there is none.

        Raises:
            CorruptRecord: The message is corrupt. The rest of the fetched data is discarded.
        """
        for offset, message in self._messages:
            self.offset = offset
            if message is not None:
                return message
        return None

    def handle_response(self, fetched: FetchResult) -> ReadStatus:
        """Process the result of `next_request`.

        Raises:
            KafkaError: The error of `fetched`.
            RecordTooLarge: The message exceeds `max_size_bytes`.
            CorruptRecord: The log ends inside the message.
        """
        if fetched.error is not None:
            raise copy_error(fetched.error)
        data = fetched.data
        if not data:
            return ReadStatus.END_OF_LOG
        needed = kafka07.first_message_size(data)
        if needed is not None and needed <= len(data):
            self._size = self._initial_size
            self._messages = fetched.iter_with_positions()
            return ReadStatus.MESSAGES
        return self._grow_fetch_size(needed, len(data))

    def _grow_fetch_size(self, needed: int | None, received: int) -> ReadStatus:
        if received < self._size:
            raise CorruptRecord(
                "the log segment ends inside a message: the offset is not the start of a message",
                topic=self.topic,
                partition=self.partition,
                offset=self.offset,
            )
        if self._size == self._max_size or (needed is not None and needed > self._max_size):
            raise RecordTooLarge(
                f"the message exceeds fetch_size_max_bytes ({self._max_size}),"
                " or the offset is not the start of a message",
                size_bytes=needed,
                topic=self.topic,
                partition=self.partition,
                offset=self.offset,
            )
        self._size = min(2 * self._size, self._max_size) if needed is None else needed
        return ReadStatus.INCOMPLETE_MESSAGE


def broker_error(
    code: int, *, broker: str, api: str, topic: str, partition: int, offset: int | None = None
) -> BrokerError:
    """Return the exception for an error code of Kafka 0.7; later releases use other codes."""
    try:
        known = Kafka07ErrorCode(code)
    except ValueError:
        error: BrokerError = UnknownServerError(
            f"unknown error code {code}", code=code, name=f"ERROR_{code}"
        )
    else:
        kind = UnknownServerError if known is Kafka07ErrorCode.UNKNOWN else BrokerError
        error = kind(f"{known.name}: {_ERROR_MESSAGES[known]}", code=known, name=known.name)
    error.broker, error.api = broker, api
    error.topic, error.partition, error.offset = topic, partition, offset
    return error
