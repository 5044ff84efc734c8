"""From the bytes of a fetch to messages, and what to fetch next."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.errors import (
    BrokerError,
    CorruptRecords,
    KafkaError,
    MalformedMessage,
    RecordTooLarge,
    UnknownServerError,
)
from aiokafkawire.records.compression import Compression, decompress
from aiokafkawire.runtime import copy_of
from aiokafkawire.wire import kafka07
from aiokafkawire.wire.kafka07 import ErrorCode

__all__ = ("FetchResult", "MessageAndOffset", "PartitionReader", "ReadStatus", "broker_error")

SUPPORTED_CODECS = (Compression.GZIP, Compression.SNAPPY)

_ERROR_MESSAGES = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log has no such offset; offsets() tells what it has",
    ErrorCode.WRONG_PARTITION: "the topic has no such partition at this broker",
    ErrorCode.UNKNOWN: "the broker failed inside, or no topic can have that name",
}


class MessageAndOffset(NamedTuple):
    """A payload, and the offset to read from after it.

    After a message of a compressed set that is the offset of the set itself, save after its last
    one: whoever begins there anew gets the set again, and misses nothing.
    """

    payload: bytes
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult:
    """What one fetch brought, or `error`. `data` are the bytes of the log from `offset` on.

    Iterating gives the whole messages in it and unpacks one compressed set at a time; a message
    that is cut off at the end is passed over. Raises `error`, and `CorruptRecords` at damage.
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
        """The offset of the next fetch, after the whole messages, which are not looked into.

        Raises as iterating does for what makes no sense as a set of messages.
        """
        if self.error is not None:
            raise copy_of(self.error)
        end = self.offset
        try:
            for entry in kafka07.iter_messages(self.data, self.offset):
                end = entry.next_offset
        except MalformedMessage as error:
            raise self._corrupt(error, end) from error
        return end

    def iter_with_positions(self) -> Iterator[tuple[int, MessageAndOffset | None]]:
        """The messages, each with the offset at which a fetch goes on if it was the last one taken.

        None stands for no message: a compressed set that is empty.
        """
        if self.error is not None:
            raise copy_of(self.error)
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
        except (MalformedMessage, CorruptRecords) as error:
            raise self._corrupt(error, position, following) from error

    def _iter_payloads(self, entry: kafka07.Entry) -> Iterator[tuple[int, bytes]]:
        start = entry.offset - self.offset
        entry_bytes = memoryview(self.data)[start : entry.next_offset - self.offset]
        return kafka07.iter_payloads(entry_bytes, entry.offset, self._decompress)

    def _decompress(self, codec: int, data: bytes) -> bytes:
        if codec not in SUPPORTED_CODECS:
            raise CorruptRecords(f"0.7 has no codec {codec}")
        return bytes(decompress(codec, data, self.max_decompressed_bytes))

    def _corrupt(
        self, error: KafkaError, offset: int, next_offset: int | None = None
    ) -> CorruptRecords:
        return CorruptRecords(
            f"{error}; or a message does not begin at the offset asked for",
            next_offset=next_offset,
            topic=self.topic,
            partition=self.partition,
            offset=offset,
        )


class ReadStatus(enum.Enum):
    """What an answer meant to the loop."""

    MESSAGES = "there are messages to take"
    END_OF_LOG = "the log ends here"
    INCOMPLETE_MESSAGE = "the message is larger than what was asked for: ask for more"


class PartitionReader:
    """Decides what to fetch of one partition, and gives the messages in order.

    Take all that there is, then send `request`, then tell the answer with `handle`. What raises
    changes nothing: the loop stands where it stood.
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
    def next_request(self) -> kafka07.FetchRequest:
        """What to ask for next."""
        return kafka07.FetchRequest(
            topic=self.topic, partition=self.partition, offset=self.offset, max_size=self._size
        )

    def next_message(self) -> MessageAndOffset | None:
        """The next message of what was fetched; None when it is used up.

        Raises `CorruptRecords`; what was fetched is then forgotten.
        """
        for offset, message in self._messages:
            self.offset = offset
            if message is not None:
                return message
        return None

    def handle_response(self, fetched: FetchResult) -> ReadStatus:
        """Take note of the answer to `request`.

        Raises its error, `RecordTooLarge` for a message beyond the largest size, and
        `CorruptRecords` for what cannot be a message.
        """
        if fetched.error is not None:
            raise copy_of(fetched.error)
        data = fetched.data
        if not data:
            return ReadStatus.END_OF_LOG
        needed = kafka07.first_message_bytes(data)
        if needed is not None and needed <= len(data):
            self._size = self._initial_size
            self._messages = fetched.iter_with_positions()
            return ReadStatus.MESSAGES
        return self._grow_fetch_size(needed, len(data))

    def _grow_fetch_size(self, needed: int | None, received: int) -> ReadStatus:
        if received < self._size:
            raise CorruptRecords(
                "the log's segment ends inside of a message, so none begins at this offset",
                topic=self.topic,
                partition=self.partition,
                offset=self.offset,
            )
        if self._size == self._max_size or (needed is not None and needed > self._max_size):
            raise RecordTooLarge(
                f"the message is over fetch_size_max_bytes ({self._max_size});"
                " or none begins at this offset",
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
    """The error for a code of 0.7, whose numbers mean other things in later versions."""
    try:
        known = ErrorCode(code)
    except ValueError:
        reason, name = "an error that this client does not know", f"ERROR_{code}"
        error: BrokerError = UnknownServerError(f"{reason}: {code}", code=code, name=name)
    else:
        kind = UnknownServerError if known is ErrorCode.UNKNOWN else BrokerError
        error = kind(f"{known.name}: {_ERROR_MESSAGES[known]}", code=known, name=known.name)
    error.broker, error.api = broker, api
    error.topic, error.partition, error.offset = topic, partition, offset
    return error
