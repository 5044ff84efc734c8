"""The protocol of Kafka 0.7, which has nothing in common with that of 0.8 and later.

A request consists of length, type, topic, partition and fields of the type; a response of length,
error code and fields. There are no versions, correlation ids or acknowledgements: PRODUCE has no
response, and the broker closes the connection on an error. Offsets are byte positions in the log
of the partition.

MULTIPRODUCE and MULTIFETCH contain requests without length and type. A MULTIFETCH response contains
responses with their lengths.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire.byte_reader import ByteReader, encode_string
from aiokafkawire.wire.primitives import Buffer

__all__ = (
    "EARLIEST",
    "LATEST",
    "MIN_FRAME_BYTES",
    "Kafka07ErrorCode",
    "Kafka07FetchRequest",
    "Kafka07FetchResponse",
    "Kafka07Message",
    "Kafka07MultiFetchRequest",
    "Kafka07MultiFetchResponse",
    "Kafka07MultiProducerRequest",
    "Kafka07OffsetRequest",
    "Kafka07OffsetResponse",
    "Kafka07ProducerRequest",
    "LogEntry",
    "Request",
    "RequestKey",
    "Response",
    "decode_fetch_response",
    "decode_multi_fetch_response",
    "decode_offsets_response",
    "decode_request",
    "encode_messages",
    "encode_request",
    "encode_response",
    "first_message_size",
    "iter_messages",
    "iter_payloads",
)

LATEST = -1
"""Time of an OFFSETS request for the end of the log."""

EARLIEST = -2
"""Time of an OFFSETS request for the start of the log."""

MIN_FRAME_BYTES = 2
"""Minimum size of a frame: a request type, or the error code of a response."""

MAX_NESTING = 2
"""Maximum nesting depth of compressed message sets."""

COMPRESSION_MASK = 0x03

_LENGTH = struct.Struct(">i")
_COUNT = struct.Struct(">h")
_PRODUCE = struct.Struct(">ii")
_FETCH = struct.Struct(">iqi")
_OFFSETS = struct.Struct(">iqi")
_RESPONSE = struct.Struct(">ih")
_MAGIC_0 = struct.Struct(">ibI")
_MAGIC_1 = struct.Struct(">ibBI")

# Length of the topic, and the fixed fields of the type.
_MIN_PRODUCE_BYTES = 2 + _PRODUCE.size
_MIN_FETCH_BYTES = 2 + _FETCH.size


class RequestKey(IntEnum):
    """The type of a request, the first field after its length (`RequestKeys` in Kafka 0.7)."""

    PRODUCE = 0
    FETCH = 1
    MULTIFETCH = 2
    MULTIPRODUCE = 3
    OFFSETS = 4


class Kafka07ErrorCode(IntEnum):
    """Error codes of responses. On other errors the broker closes the connection."""

    UNKNOWN = -1
    """Also the code for an invalid topic name."""
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    WRONG_PARTITION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka07Message:
    """One message of a log.

    Attributes:
        payload: Content; with compression, a compressed message set.
        magic: 0, or 1 with attributes.
        attributes: Compression codec in the lowest two bits; on the wire with magic 1 only.
        crc: CRC-32 of the payload. None: encoded with the correct value.
    """

    payload: bytes
    magic: int = 1
    attributes: int = 0
    crc: int | None = None

    @property
    def compression(self) -> int:
        """Codec: 0 none, 1 gzip, 2 snappy."""
        return self.attributes & COMPRESSION_MASK

    @property
    def crc_valid(self) -> bool:
        """True if the checksum matches the payload."""
        return self.crc is None or self.crc == zlib.crc32(self.payload)


class LogEntry(NamedTuple):
    """A message with its offset in the log and the offset of the next message."""

    offset: int
    next_offset: int
    message: Kafka07Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka07ProducerRequest:
    """Append messages (bytes of `encode_messages`). Partition -1: the broker chooses."""

    topic: str
    partition: int
    messages: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka07FetchRequest:
    """Read at most `max_size` bytes of a log, starting at `offset`."""

    topic: str
    partition: int
    offset: int
    max_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka07MultiFetchRequest:
    requests: tuple[Kafka07FetchRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka07MultiProducerRequest:
    requests: tuple[Kafka07ProducerRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka07OffsetRequest:
    """Request start offsets of segments last modified by `time`, newest first.

    `time` is in ms, or `LATEST` or `EARLIEST`.
    """

    topic: str
    partition: int
    time: int
    max_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka07FetchResponse:
    """Raw bytes of the log, which may start and end inside a message."""

    error: int = 0
    messages: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka07MultiFetchResponse:
    error: int = 0
    responses: tuple[Kafka07FetchResponse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka07OffsetResponse:
    error: int = 0
    offsets: tuple[int, ...] = ()


Request = (
    Kafka07ProducerRequest
    | Kafka07FetchRequest
    | Kafka07MultiFetchRequest
    | Kafka07MultiProducerRequest
    | Kafka07OffsetRequest
)
Response = Kafka07FetchResponse | Kafka07MultiFetchResponse | Kafka07OffsetResponse

Decompress = Callable[[int, bytes], bytes]
"""Decompresses bytes of a codec (1 gzip, 2 snappy); limits the size of its result itself."""


def encode_request(request: Request) -> bytes:
    """Encode a frame with its length. Raises `ValueError` for values out of range."""
    try:
        kind, body = _encode_request_body(request)
    except struct.error as error:
        raise ValueError(f"{type(request).__name__}: {error}") from None
    return _LENGTH.pack(_COUNT.size + len(body)) + _COUNT.pack(kind) + body


def decode_request(frame: Buffer) -> tuple[Request, int]:
    """Decode the request at the start of a frame (without length); return it and its end.

    A 0.7 broker ignores trailing bytes.

    Raises:
        MalformedMessage: The type is unknown or a field is invalid.
    """
    reader = ByteReader("kafka07 request", frame)
    number = reader.int16("request_type")
    if number not in _DECODERS:
        raise reader.malformed_error("request_type", f"unknown request type {number}", 0)
    reader.message = f"kafka07 {RequestKey(number).name}"
    return _DECODERS[RequestKey(number)](reader), reader.position


def encode_response(response: Response) -> bytes:
    """Encode a frame with its length. Raises `ValueError` for values out of range."""
    try:
        return _encode_response_frame(response)
    except struct.error as error:
        raise ValueError(f"{type(response).__name__}: {error}") from None


def decode_fetch_response(frame: Buffer) -> Kafka07FetchResponse:
    """Decode a FETCH response from a frame without length. Raises `MalformedMessage`."""
    reader = ByteReader("kafka07 FETCH response", frame)
    return Kafka07FetchResponse(
        error=reader.int16("error"), messages=reader.bytes("messages", reader.remaining)
    )


def decode_multi_fetch_response(frame: Buffer) -> Kafka07MultiFetchResponse:
    """Decode a MULTIFETCH response from a frame without length. Raises `MalformedMessage`."""
    reader = ByteReader("kafka07 MULTIFETCH response", frame)
    error = reader.int16("error")
    responses = []
    while reader.remaining:
        start = reader.position
        size = reader.int32("length")
        if size < MIN_FRAME_BYTES:
            raise reader.malformed_error("length", f"invalid length {size}", start)
        code = reader.int16("error")
        messages = reader.bytes("messages", size - MIN_FRAME_BYTES)
        responses.append(Kafka07FetchResponse(error=code, messages=messages))
    return Kafka07MultiFetchResponse(error=error, responses=tuple(responses))


def decode_offsets_response(frame: Buffer) -> Kafka07OffsetResponse:
    """Decode an OFFSETS response from a frame without length. Raises `MalformedMessage`."""
    reader = ByteReader("kafka07 OFFSETS response", frame)
    error = reader.int16("error")
    offsets = reader.numbers("offsets", "q", reader.int32("count"))
    reader.expect_end()
    return Kafka07OffsetResponse(error=error, offsets=offsets)


def encode_messages(messages: Iterable[Kafka07Message]) -> bytes:
    """Encode a message set. Raises `ValueError` for values out of range."""
    try:
        return b"".join(map(_encode_message, messages))
    except struct.error as error:
        raise ValueError(f"Message: {error}") from None


def first_message_size(data: Buffer) -> int | None:
    """Return the size of the first message of a set by its length field, None if incomplete."""
    if len(data) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(data)
    return _LENGTH.size + int(length)


def iter_messages(data: Buffer, offset: int = 0) -> Iterator[LogEntry]:
    """Yield the complete messages of a set that starts at `offset` in its log.

    An incomplete last message is skipped, because fetches may end inside a message.

    Raises:
        MalformedMessage: A length or a magic is invalid.
    """
    reader = ByteReader("kafka07 message", data)
    while reader.remaining >= _LENGTH.size:
        start = reader.position
        length = reader.int32("length")
        if length > reader.remaining:
            return
        message = _decode_message(reader, start, length)
        yield LogEntry(offset + start, offset + reader.position, message)


def iter_payloads(data: Buffer, offset: int, decompress: Decompress) -> Iterator[tuple[int, bytes]]:
    """Yield each payload, including those of compressed sets, with the offset to resume from.

    Within a compressed set, except after its last payload, that is the offset of the set, so that
    resuming skips no message. Exceptions of `decompress` propagate.

    Raises:
        MalformedMessage: As by `iter_messages`; or for a wrong checksum or sets nested too deep.
    """
    for entry in iter_messages(data, offset):
        payloads = _iter_payloads(entry.message, decompress, 0)
        last = next(payloads, None)
        for payload in payloads:
            assert last is not None
            yield entry.offset, last
            last = payload
        if last is not None:
            yield entry.next_offset, last


def _iter_payloads(message: Kafka07Message, decompress: Decompress, depth: int) -> Iterator[bytes]:
    if not message.crc_valid:
        raise MalformedMessage("wrong checksum", message="kafka07 message", field="checksum")
    if not message.compression:
        yield message.payload
        return
    if depth == MAX_NESTING:
        raise MalformedMessage(
            f"compressed sets nested more than {MAX_NESTING} deep", message="kafka07 message"
        )
    for entry in iter_messages(decompress(message.compression, message.payload)):
        yield from _iter_payloads(entry.message, decompress, depth + 1)


def _decode_message(reader: ByteReader, start: int, length: int) -> Kafka07Message:
    end = reader.position + length
    if length < _MAGIC_0.size - _LENGTH.size:
        raise reader.malformed_error("length", f"invalid length {length}", start)
    magic = reader.int8("magic")
    attributes = 0
    if magic == 1:
        if length < _MAGIC_1.size - _LENGTH.size:
            raise reader.malformed_error("length", f"invalid length {length} for magic 1", start)
        attributes = reader.int8("attributes") & 0xFF
    elif magic != 0:
        raise reader.malformed_error("magic", f"unknown magic {magic}", start + _LENGTH.size)
    crc = reader.int32("checksum") & 0xFFFF_FFFF
    payload = reader.bytes("payload", end - reader.position)
    return Kafka07Message(payload=payload, magic=magic, attributes=attributes, crc=crc)


def _encode_message(message: Kafka07Message) -> bytes:
    crc = zlib.crc32(message.payload) if message.crc is None else message.crc
    size = len(message.payload)
    if message.magic == 1:
        length = _MAGIC_1.size - _LENGTH.size + size
        return _MAGIC_1.pack(length, 1, message.attributes, crc) + message.payload
    if message.magic or message.attributes:
        raise ValueError(f"invalid message: magic {message.magic}, {message.attributes=}")
    return _MAGIC_0.pack(_MAGIC_0.size - _LENGTH.size + size, 0, crc) + message.payload


def _encode_request_body(request: Request) -> tuple[RequestKey, bytes]:
    match request:
        case Kafka07ProducerRequest():
            return RequestKey.PRODUCE, _encode_produce(request)
        case Kafka07FetchRequest():
            return RequestKey.FETCH, _encode_fetch(request)
        case Kafka07MultiProducerRequest():
            body = b"".join(map(_encode_produce, request.requests))
            return RequestKey.MULTIPRODUCE, _COUNT.pack(len(request.requests)) + body
        case Kafka07MultiFetchRequest():
            body = b"".join(map(_encode_fetch, request.requests))
            return RequestKey.MULTIFETCH, _COUNT.pack(len(request.requests)) + body
        case Kafka07OffsetRequest():
            body = _OFFSETS.pack(request.partition, request.time, request.max_number)
            return RequestKey.OFFSETS, encode_string(request.topic) + body


def _encode_produce(request: Kafka07ProducerRequest) -> bytes:
    sizes = _PRODUCE.pack(request.partition, len(request.messages))
    return encode_string(request.topic) + sizes + request.messages


def _encode_fetch(request: Kafka07FetchRequest) -> bytes:
    body = _FETCH.pack(request.partition, request.offset, request.max_size)
    return encode_string(request.topic) + body


def _encode_response_frame(response: Response) -> bytes:
    match response:
        case Kafka07FetchResponse():
            body = response.messages
        case Kafka07MultiFetchResponse():
            body = b"".join(map(_encode_response_frame, response.responses))
        case Kafka07OffsetResponse():
            count = len(response.offsets)
            body = struct.pack(f">i{count}q", count, *response.offsets)
    return _RESPONSE.pack(MIN_FRAME_BYTES + len(body), response.error) + body


def _decode_produce(reader: ByteReader) -> Kafka07ProducerRequest:
    topic, partition = reader.string("topic"), reader.int32("partition")
    return Kafka07ProducerRequest(
        topic=topic,
        partition=partition,
        messages=reader.bytes("messages", reader.int32("messages_length")),
    )


def _decode_fetch(reader: ByteReader) -> Kafka07FetchRequest:
    return Kafka07FetchRequest(
        topic=reader.string("topic"),
        partition=reader.int32("partition"),
        offset=reader.int64("offset"),
        max_size=reader.int32("max_size"),
    )


def _decode_multi_produce(reader: ByteReader) -> Kafka07MultiProducerRequest:
    count_at = reader.position
    count = reader.check_count("count", reader.int16("count"), _MIN_PRODUCE_BYTES, count_at)
    return Kafka07MultiProducerRequest(
        requests=tuple(_decode_produce(reader) for _ in range(count))
    )


def _decode_multi_fetch(reader: ByteReader) -> Kafka07MultiFetchRequest:
    count = reader.check_count(
        "count", reader.int16("count"), _MIN_FETCH_BYTES, reader.position - 2
    )
    return Kafka07MultiFetchRequest(requests=tuple(_decode_fetch(reader) for _ in range(count)))


def _decode_offsets(reader: ByteReader) -> Kafka07OffsetRequest:
    return Kafka07OffsetRequest(
        topic=reader.string("topic"),
        partition=reader.int32("partition"),
        time=reader.int64("time"),
        max_number=reader.int32("max_number"),
    )


_DECODERS: dict[int, Callable[[ByteReader], Request]] = {
    RequestKey.PRODUCE: _decode_produce,
    RequestKey.FETCH: _decode_fetch,
    RequestKey.MULTIFETCH: _decode_multi_fetch,
    RequestKey.MULTIPRODUCE: _decode_multi_produce,
    RequestKey.OFFSETS: _decode_offsets,
}
