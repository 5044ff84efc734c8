"""The wire format that was proposed between 0.7 and 0.8: its four messages as specified.

No broker ever implemented it; the protocol of 0.8 has its ideas in another form. Arrays have an
int16 count. This module decides what the proposal leaves open: PRODUCE is request type 0 and FETCH
type 1, as in 0.7; an int32 length precedes each message set; the fields of a FetchRequest have the
order of its diagram, with the version after the correlation id; a ProduceResponse has one error
and one offset per message set, in the order of the request.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from aiokafkawire.wire.byte_reader import ByteReader, encode_string
from aiokafkawire.wire.primitives import Buffer

__all__ = (
    "NO_ERROR",
    "ProposedFetchRequest",
    "ProposedFetchResponse",
    "ProposedOffsetData",
    "ProposedPartitionData",
    "ProposedProduceRequest",
    "ProposedProduceResponse",
    "ProposedRequestType",
    "ProposedTopicData",
    "Request",
    "Response",
    "decode_fetch_response",
    "decode_produce_response",
    "decode_request",
    "encode_request",
    "encode_response",
)

NO_ERROR = -1
"""Value in `ProposedProduceResponse.errors` for a message set that was appended."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_HEADER = struct.Struct(">hhi")
_FETCH_HEADER = struct.Struct(">hih")
_RESPONSE = struct.Struct(">ihh")

# Minimum size of one element of each array.
_MIN_TOPIC_BYTES = 4
_MIN_PARTITION_BYTES = 8
_MIN_OFFSET_DATA_BYTES = 6

T = TypeVar("T")


class ProposedRequestType(IntEnum):
    """The type of a request, the first field after its length."""

    PRODUCE = 0
    FETCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedPartitionData:
    """A message set of one partition, in the format of 0.7 or any other."""

    partition: int
    messages: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedTopicData:
    topic: str
    partition_data: tuple[ProposedPartitionData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedProduceRequest:
    """Append message sets. `required_acks` is the number of brokers to acknowledge them (int8)."""

    version_id: int = 0
    correlation_id: int
    client_id: str = ""
    required_acks: int
    ack_timeout: int
    data: tuple[ProposedTopicData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedProduceResponse:
    """The result: `errors` and `offsets` have one entry per message set of the request."""

    correlation_id: int
    version_id: int = 0
    error: int = 0
    errors: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedOffsetData:
    """Positions in the partitions of a topic: one int32 offset per partition."""

    topic: str
    partitions: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedFetchRequest:
    """Fetch; the broker waits for `min_bytes`, at most `max_wait` ms. Replica id -1: a client."""

    correlation_id: int
    version_id: int = 0
    client_id: str = ""
    replica_id: int = -1
    max_wait: int
    min_bytes: int
    topic_offsets: tuple[ProposedOffsetData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedFetchResponse:
    """The fetched message sets, in the structure of `ProposedProduceRequest`."""

    correlation_id: int
    version_id: int = 0
    error: int = 0
    data: tuple[ProposedTopicData, ...]


Request = ProposedProduceRequest | ProposedFetchRequest
Response = ProposedProduceResponse | ProposedFetchResponse


def encode_request(request: Request) -> bytes:
    """Encode a frame with its length. Raises `ValueError` for values out of range."""
    return _encode_frame(request, _encode_request_body)


def decode_request(frame: Buffer) -> Request:
    """Decode the request of a frame without length. Raises `MalformedMessage`."""
    reader = ByteReader("proposed request", frame)
    number = reader.int16("request_type_id")
    if number not in _DECODERS:
        raise reader.malformed_error("request_type_id", f"unknown request type {number}", 0)
    reader.message = f"proposed {ProposedRequestType(number).name}"
    request = _DECODERS[number](reader)
    reader.expect_end()
    return request


def encode_response(response: Response) -> bytes:
    """Encode a frame with its length. Raises `ValueError` for values out of range."""
    return _encode_frame(response, _encode_response_body)


def decode_produce_response(frame: Buffer) -> ProposedProduceResponse:
    """Decode a ProduceResponse from a frame without length. Raises `MalformedMessage`."""
    reader = ByteReader("proposed ProduceResponse", frame)
    response = ProposedProduceResponse(
        correlation_id=reader.int32("correlation_id"),
        version_id=reader.int16("version_id"),
        error=reader.int16("error"),
        errors=reader.numbers("errors", "h", reader.int16("errors")),
        offsets=reader.numbers("offsets", "q", reader.int16("offsets")),
    )
    reader.expect_end()
    return response


def decode_fetch_response(frame: Buffer) -> ProposedFetchResponse:
    """Decode a FetchResponse from a frame without length. Raises `MalformedMessage`."""
    reader = ByteReader("proposed FetchResponse", frame)
    response = ProposedFetchResponse(
        correlation_id=reader.int32("correlation_id"),
        version_id=reader.int16("version_id"),
        error=reader.int16("error"),
        data=_decode_topics(reader),
    )
    reader.expect_end()
    return response


def _encode_frame(message: T, encode: Callable[[T], bytes]) -> bytes:
    try:
        body = encode(message)
    except struct.error as error:
        raise ValueError(f"{type(message).__name__}: {error}") from None
    return _INT32.pack(len(body)) + body


def _encode_request_body(request: Request) -> bytes:
    client_id = encode_string(request.client_id)
    if isinstance(request, ProposedProduceRequest):
        header = _HEADER.pack(
            ProposedRequestType.PRODUCE, request.version_id, request.correlation_id
        )
        acks = struct.pack(">bi", request.required_acks, request.ack_timeout)
        return header + client_id + acks + _encode_topics(request.data)
    header = _FETCH_HEADER.pack(
        ProposedRequestType.FETCH, request.correlation_id, request.version_id
    )
    bounds = struct.pack(">iii", request.replica_id, request.max_wait, request.min_bytes)
    count = _INT16.pack(len(request.topic_offsets))
    return (
        header
        + client_id
        + bounds
        + count
        + b"".join(map(_encode_offset_data, request.topic_offsets))
    )


def _encode_response_body(response: Response) -> bytes:
    header = _RESPONSE.pack(response.correlation_id, response.version_id, response.error)
    if isinstance(response, ProposedFetchResponse):
        return header + _encode_topics(response.data)
    return header + _encode_numbers("h", response.errors) + _encode_numbers("q", response.offsets)


def _encode_numbers(code: str, numbers: tuple[int, ...]) -> bytes:
    return struct.pack(f">h{len(numbers)}{code}", len(numbers), *numbers)


def _encode_offset_data(item: ProposedOffsetData) -> bytes:
    return (
        encode_string(item.topic)
        + _encode_numbers("i", item.partitions)
        + _encode_numbers("i", item.offsets)
    )


def _encode_topics(topics: tuple[ProposedTopicData, ...]) -> bytes:
    parts = [_INT16.pack(len(topics))]
    for topic in topics:
        parts += encode_string(topic.topic), _INT16.pack(len(topic.partition_data))
        for item in topic.partition_data:
            parts += struct.pack(">ii", item.partition, len(item.messages)), item.messages
    return b"".join(parts)


def _decode_array(
    reader: ByteReader, field: str, min_bytes: int, read: Callable[[ByteReader], T]
) -> tuple[T, ...]:
    start = reader.position
    count = reader.check_count(field, reader.int16(field), min_bytes, start)
    return tuple(read(reader) for _ in range(count))


def _decode_topics(reader: ByteReader) -> tuple[ProposedTopicData, ...]:
    return _decode_array(reader, "data", _MIN_TOPIC_BYTES, _decode_topic)


def _decode_topic(reader: ByteReader) -> ProposedTopicData:
    topic = reader.string("topic")
    partitions = _decode_array(reader, "partition_data", _MIN_PARTITION_BYTES, _decode_partition)
    return ProposedTopicData(topic=topic, partition_data=partitions)


def _decode_partition(reader: ByteReader) -> ProposedPartitionData:
    return ProposedPartitionData(
        partition=reader.int32("partition"),
        messages=reader.bytes("messages", reader.int32("messages")),
    )


def _decode_offset_data(reader: ByteReader) -> ProposedOffsetData:
    return ProposedOffsetData(
        topic=reader.string("topic"),
        partitions=reader.numbers("partitions", "i", reader.int16("partitions")),
        offsets=reader.numbers("offsets", "i", reader.int16("offsets")),
    )


def _decode_produce(reader: ByteReader) -> ProposedProduceRequest:
    return ProposedProduceRequest(
        version_id=reader.int16("version_id"),
        correlation_id=reader.int32("correlation_id"),
        client_id=reader.string("client_id"),
        required_acks=reader.int8("required_acks"),
        ack_timeout=reader.int32("ack_timeout"),
        data=_decode_topics(reader),
    )


def _decode_fetch(reader: ByteReader) -> ProposedFetchRequest:
    return ProposedFetchRequest(
        correlation_id=reader.int32("correlation_id"),
        version_id=reader.int16("version_id"),
        client_id=reader.string("client_id"),
        replica_id=reader.int32("replica_id"),
        max_wait=reader.int32("max_wait"),
        min_bytes=reader.int32("min_bytes"),
        topic_offsets=_decode_array(
            reader, "topic_offsets", _MIN_OFFSET_DATA_BYTES, _decode_offset_data
        ),
    )


_DECODERS: dict[int, Callable[[ByteReader], Request]] = {
    ProposedRequestType.PRODUCE: _decode_produce,
    ProposedRequestType.FETCH: _decode_fetch,
}
