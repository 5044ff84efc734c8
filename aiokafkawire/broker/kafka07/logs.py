"""What a broker of 0.7 does with a request."""

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
"""Partitions that may be written to."""

MAX_TOPIC_UNITS = 255
"""The longest name of a topic, counted as Java does, in units of UTF-16."""

ANY_PARTITION = -1

_HEADER = struct.Struct(">ih")
_ERROR_BYTES = 2

_ILLEGAL = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


class Reply(NamedTuple):
    """What is sent, and whether the connection ends after it."""

    data: bytes
    closes: bool = False


class _TooLarge(Exception):
    """A message is over max_message_bytes: its set is dropped, which nobody is told."""


class _Part(NamedTuple):
    """The answer to one fetch. `broken`: it was asked for a negative size, `size`."""

    error: int
    data: bytes = b""
    size: int = 0
    broken: bool = False

    @property
    def header(self) -> bytes:
        return _HEADER.pack(_ERROR_BYTES + self.size, self.error)


class Logs:
    """The logs of all topics, made by the first request that writes to them.

    Each topic has `default_partitions`. What Kafka 0.7 calls num.partitions, max.message.size,
    max.socket.request.bytes and log.file.size are `default_partitions`, `max_message_bytes`,
    `max_request_bytes` and `segment_bytes`.
    """

    def __init__(self, options: BrokerConfig, rng: random.Random) -> None:
        self._options = options
        self._rng = rng
        self._logs: dict[tuple[str, int], Log] = {}

    def end_offset(self, topic: str, partition: int) -> int:
        """Where a partition ends; 0 if it was never written to."""
        log = self._logs.get((topic, partition))
        return 0 if log is None else log.end

    def answer(self, frame: Buffer, now_ms: int) -> Reply | None:
        """Carry out a request; None if it has no answer.

        Raises `Disconnect` for whatever 0.7 answers by closing the connection. What follows a
        request in its frame is ignored.
        """
        try:
            request, _ = kafka07.decode_request(frame)
            return self._carry_out(request, now_ms)
        except (MalformedMessage, CorruptRecord) as error:
            raise Disconnect(str(error)) from error

    def _carry_out(self, request: kafka07.Request, now_ms: int) -> Reply | None:
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
                return _several([self._read(each) for each in request.requests])
            case kafka07.Kafka07OffsetRequest():
                return Reply(kafka07.encode_response(self._offsets(request, now_ms)))

    def _append(self, request: kafka07.Kafka07ProducerRequest, now_ms: int) -> None:
        topic, partition = request.topic, request.partition
        if partition == ANY_PARTITION:
            partition = self._rng.randrange(self._options.default_partitions)
        log = self._log(topic, partition)
        if log is None:
            if len(self._logs) >= MAX_LOGS:
                raise Disconnect(f"there are {MAX_LOGS} partitions already")
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
        """How many bytes the whole messages take, and how many they are, unpacked.

        Raises `MalformedMessage` or `CorruptRecord` unless each is right; what is cut off at the
        end is passed over. Sizes are looked at before compressed sets.
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
            raise CorruptRecord(f"compressed sets lie more than {depth} deep")
        if message.compression not in {1, 2}:
            raise CorruptRecord(f"there is no codec {message.compression}")
        limit = self._options.max_decompressed_bytes
        inner = bytes(decompress(message.compression, message.payload, limit))
        return sum(self._count(entry.message, depth + 1) for entry in _entries(inner))

    def _read(self, request: kafka07.Kafka07FetchRequest) -> _Part:
        if not _is_name(request.topic):
            return _Part(Kafka07ErrorCode.UNKNOWN)
        if not 0 <= request.partition < self._options.default_partitions:
            return _Part(Kafka07ErrorCode.WRONG_PARTITION)
        log = self._logs.get((request.topic, request.partition))
        if log is None:
            return _Part(Kafka07ErrorCode.NONE)
        try:
            data = log.read(request.offset, max(0, request.max_size))
        except OffsetOutOfRange:
            return _Part(Kafka07ErrorCode.OFFSET_OUT_OF_RANGE)
        if request.max_size < 0 and request.offset != log.end:
            return _Part(Kafka07ErrorCode.NONE, size=request.max_size, broken=True)
        return _Part(Kafka07ErrorCode.NONE, data, len(data))

    def _offsets(
        self, request: kafka07.Kafka07OffsetRequest, now_ms: int
    ) -> kafka07.Kafka07OffsetResponse:
        log = self._log(request.topic, request.partition)
        if log is None:
            ends = request.time in {kafka07.LATEST, kafka07.EARLIEST}
            return kafka07.Kafka07OffsetResponse(offsets=(0,) if ends else ())
        if request.max_number < 0:
            raise Disconnect(f"{request.max_number} offsets are asked for")
        return kafka07.Kafka07OffsetResponse(
            offsets=log.offsets(request.time, request.max_number, now_ms)
        )

    def _log(self, topic: str, partition: int) -> Log | None:
        if not _is_name(topic):
            raise Disconnect(f"no topic can be called {topic!r}")
        if not 0 <= partition < self._options.default_partitions:
            raise Disconnect(f"there is no partition {partition} of {topic!r}")
        return self._logs.get((topic, partition))


def _entries(messages: bytes) -> Iterator[kafka07.LogEntry]:
    """The whole messages of a set, with right checksums.

    A set that begins with a part of a message is refused; one that ends with a part is not.
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
        raise MalformedMessage("the first message is cut off", message="kafka07 message")


def _several(parts: list[_Part]) -> Reply:
    """The answer to a MULTIFETCH; a part that is broken is the last."""
    data = bytearray()
    for part in parts:
        data += part.header + part.data
        if part.broken:
            break
    size = sum(_HEADER.size + part.size for part in parts)
    return Reply(_HEADER.pack(_ERROR_BYTES + size, 0) + data, any(p.broken for p in parts))


def _is_name(topic: str) -> bool:
    units = len(topic.encode("utf-16-le", "surrogatepass")) // 2
    return (
        topic not in {"", ".", ".."} and units <= MAX_TOPIC_UNITS and _ILLEGAL.search(topic) is None
    )
