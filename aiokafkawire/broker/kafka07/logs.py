"""Request handling of a 0.7 broker."""

from __future__ import annotations

import logging
import random
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from aiokafkawire.broker.kafka07.log import Log, OffsetOutOfRange
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.request_context import Disconnect
from aiokafkawire.errors import CorruptRecord, MalformedMessage
from aiokafkawire.records.compression import decompress
from aiokafkawire.runtime import Buffer
from aiokafkawire.wire import kafka07
from aiokafkawire.wire.kafka07 import Kafka07ErrorCode

__all__ = ("MAX_LOGS", "Logs", "Reply")

logger = logging.getLogger("aiokafkawire.broker")

MAX_LOGS = 10_000
"""Limit of partitions with a log."""

MAX_TOPIC_UNITS = 255
"""Maximum length of a topic name in UTF-16 code units, as Java counts."""

ANY_PARTITION = -1

_HEADER = struct.Struct(">ih")
_ERROR_BYTES = 2

_ILLEGAL = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


class Reply(NamedTuple):
    """Bytes of a response; with `closes` the connection closes after it."""

    data: bytes
    closes: bool = False


class _TooLarge(Exception):
    """A message exceeds max_message_bytes; its set is dropped without an error response."""


class _FetchResult(NamedTuple):
    """Response to one fetch; `broken` if the requested `size` was negative."""

    error: int
    data: bytes = b""
    size: int = 0
    broken: bool = False

    @property
    def header(self) -> bytes:
        return _HEADER.pack(_ERROR_BYTES + self.size, self.error)


class Logs:
    """Logs of all topics, created on the first write.

    Kafka 0.7's num.partitions, max.message.size, max.socket.request.bytes and log.file.size are
    `default_partitions`, `max_message_bytes`, `max_request_bytes` and `segment_bytes`.
    """

    def __init__(self, options: BrokerConfig, rng: random.Random) -> None:
        self._options = options
        self._rng = rng
        self._logs: dict[tuple[str, int], Log] = {}

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the end offset of a partition; 0 if it was never written to."""
        log = self._logs.get((topic, partition))
        return 0 if log is None else log.end

    def handle(self, frame: Buffer, now_ms: int) -> Reply | None:
        """Handle a request and return its response; None if it has no response.

        Bytes after the request in its frame are ignored.

        Raises:
            Disconnect: A 0.7 broker closes the connection on this request.
        """
        try:
            request, _ = kafka07.decode_request(frame)
            return self._dispatch(request, now_ms)
        except (MalformedMessage, CorruptRecord) as error:
            raise Disconnect(str(error)) from error

    def _dispatch(self, request: kafka07.Request, now_ms: int) -> Reply | None:
        match request:
            case kafka07.Kafka07ProducerRequest():
                self._append(request, now_ms)
                return None
            case kafka07.Kafka07MultiProducerRequest():
                for each in request.requests:
                    self._append(each, now_ms)
                return None
            case kafka07.Kafka07FetchRequest():
                part = self._read(request)
                return Reply(part.header + part.data, part.broken)
            case kafka07.Kafka07MultiFetchRequest():
                return _encode_multi_fetch([self._read(each) for each in request.requests])
            case kafka07.Kafka07OffsetRequest():
                return Reply(kafka07.encode_response(self._offsets(request, now_ms)))

    def _append(self, request: kafka07.Kafka07ProducerRequest, now_ms: int) -> None:
        topic, partition = request.topic, request.partition
        if partition == ANY_PARTITION:
            partition = self._rng.randrange(self._options.default_partitions)
        log = self._log(topic, partition)
        if log is None:
            if len(self._logs) >= MAX_LOGS:
                raise Disconnect(f"the limit of {MAX_LOGS} partitions is reached")
            log = Log(self._options.segment_bytes, self._options.retention_bytes, now_ms)
            self._logs[topic, partition] = log
        try:
            size, count = self._check(request.messages)
        except _TooLarge:
            logger.warning(
                "0.7 port: a message for partition %d of %r is over max_message_bytes (%d):"
                " its set is dropped",
                partition,
                topic,
                self._options.max_message_bytes,
            )
            return
        log.append(request.messages[:size], count, now_ms)

    def _check(self, messages: bytes) -> tuple[int, int]:
        """Return the size of the complete messages, and their number including compressed ones.

        A partial message at the end is skipped. Sizes are checked before compressed sets.

        Raises:
            MalformedMessage: A message is malformed or its checksum is wrong.
            CorruptRecord: A compressed set is corrupt.
        """
        entries = []
        for entry in _entries(messages):
            if len(entry.message.payload) > self._options.max_message_bytes:
                raise _TooLarge
            entries.append(entry)
        count = sum(self._count(entry.message, 0) for entry in entries)
        return (entries[-1].next_offset if entries else 0), count

    def _count(self, message: kafka07.Kafka07Message, depth: int) -> int:
        if not message.compression:
            return 1
        if depth == kafka07.MAX_NESTING:
            raise CorruptRecord(f"compressed sets are nested more than {depth} deep")
        if message.compression not in {1, 2}:
            raise CorruptRecord(f"unknown compression codec {message.compression}")
        limit = self._options.max_decompressed_bytes
        inner = bytes(decompress(message.compression, message.payload, limit))
        return sum(self._count(entry.message, depth + 1) for entry in _entries(inner))

    def _read(self, request: kafka07.Kafka07FetchRequest) -> _FetchResult:
        if not _is_name(request.topic):
            return _FetchResult(Kafka07ErrorCode.UNKNOWN)
        if not 0 <= request.partition < self._options.default_partitions:
            return _FetchResult(Kafka07ErrorCode.WRONG_PARTITION)
        log = self._logs.get((request.topic, request.partition))
        if log is None:
            return _FetchResult(Kafka07ErrorCode.NONE)
        try:
            data = log.read(request.offset, max(0, request.max_size))
        except OffsetOutOfRange:
            return _FetchResult(Kafka07ErrorCode.OFFSET_OUT_OF_RANGE)
        if request.max_size < 0 and request.offset != log.end:
            return _FetchResult(Kafka07ErrorCode.NONE, size=request.max_size, broken=True)
        return _FetchResult(Kafka07ErrorCode.NONE, data, len(data))

    def _offsets(
        self, request: kafka07.Kafka07OffsetRequest, now_ms: int
    ) -> kafka07.Kafka07OffsetResponse:
        log = self._log(request.topic, request.partition)
        if log is None:
            ends = request.time in {kafka07.LATEST, kafka07.EARLIEST}
            return kafka07.Kafka07OffsetResponse(offsets=(0,) if ends else ())
        if request.max_number < 0:
            raise Disconnect(f"invalid number of offsets: {request.max_number}")
        return kafka07.Kafka07OffsetResponse(
            offsets=log.offsets(request.time, request.max_number, now_ms)
        )

    def _log(self, topic: str, partition: int) -> Log | None:
        if not _is_name(topic):
            raise Disconnect(f"invalid topic name {topic!r}")
        if not 0 <= partition < self._options.default_partitions:
            raise Disconnect(f"topic {topic!r} has no partition {partition}")
        return self._logs.get((topic, partition))


def _entries(messages: bytes) -> Iterator[kafka07.LogEntry]:
    """Yield the complete messages of a set and verify their checksums.

    A set may end with a partial message, but not begin with one.
    """
    first = True
    for entry in kafka07.iter_messages(messages):
        first = False
        if not entry.message.crc_valid:
            raise MalformedMessage(
                "the checksum is wrong", message="kafka07 message", position=entry.offset
            )
        yield entry
    if first and kafka07.first_message_size(messages) is not None:
        raise MalformedMessage("the first message is incomplete", message="kafka07 message")


def _encode_multi_fetch(parts: list[_FetchResult]) -> Reply:
    """Return the response to a MULTIFETCH; a broken part ends it."""
    data = bytearray()
    for part in parts:
        data += part.header + part.data
        if part.broken:
            break
    size = sum(_HEADER.size + part.size for part in parts)
    return Reply(_HEADER.pack(_ERROR_BYTES + size, 0) + data, any(part.broken for part in parts))


def _is_name(topic: str) -> bool:
    units = len(topic.encode("utf-16-le", "surrogatepass")) // 2
    return (
        topic not in {"", ".", ".."} and units <= MAX_TOPIC_UNITS and _ILLEGAL.search(topic) is None
    )
