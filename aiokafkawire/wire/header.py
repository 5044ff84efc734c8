"""Encode and decode whole frames: requests and responses with their headers."""

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from aiokafkawire.errors import MalformedFrame, MalformedMessage, UnsupportedVersion
from aiokafkawire.wire.api import APIS, ApiKey
from aiokafkawire.wire.codec import (
    MIN_SEPARATE_BUFFER_BYTES,
    decode,
    decode_prefix,
    encode,
    encode_into,
    join_small_buffers,
)
from aiokafkawire.wire.messages.headers import RequestHeaderData, ResponseHeaderData
from aiokafkawire.wire.primitives import Buffer
from aiokafkawire.wire.schema import Request, Response

__all__ = (
    "CORRELATION_ID_BYTES",
    "EncodedRequest",
    "RequestHeader",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
    "peek_correlation_id",
)

ResponseT = TypeVar("ResponseT", bound=Response)

MAX_FRAME_BYTES = 2**31 - 1

_LENGTH = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")
CORRELATION_ID_BYTES = _CORRELATION_ID.size  # a global, because every frame uses it
_KEY_AND_VERSION = struct.Struct(">hh")
_KEY_VERSION_AND_ID = struct.Struct(">hhi")
_KEY_VERSION_AND_ID_BYTES = _KEY_VERSION_AND_ID.size
_LENGTH_AND_HEADER_START = struct.Struct(">ihhi")  # with the length before it


class RequestHeader(NamedTuple):
    """The header of a request; the body starts at offset `header_size` of the frame."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    header_size: int


class EncodedRequest(NamedTuple):
    """A request whose body is encoded already.

    Attributes:
        api_key: API key of the request.
        body: Encoded body, in parts.
        match_response: Called with the frame of the response. Returns the result, or None if the
            frame must be decoded by `decode_response`.
    """

    api_key: int
    body: Sequence[Buffer]
    match_response: Callable[[memoryview], object]


def encode_request(
    message: Request[Any] | EncodedRequest, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """Encode a frame: length, request header and body. Raises as `encode` does.

    Large records are not copied: the caller must not change them until the buffers are sent.
    """
    api_key = message.api_key
    parts: list[Buffer] = [b"", _encode_header_tail(api_key, version, client_id)]
    if type(message) is EncodedRequest:
        parts += message.body
    else:
        encode_into(parts, message, version)  # type: ignore[arg-type]
    size = _KEY_VERSION_AND_ID_BYTES + sum(map(len, parts))
    if size > MAX_FRAME_BYTES:
        raise _too_large(size)
    parts[0] = _LENGTH_AND_HEADER_START.pack(size, api_key, version, correlation_id)
    return [b"".join(parts)] if size < MIN_SEPARATE_BUFFER_BYTES else join_small_buffers(parts)


def encode_response(message: Response, version: int, correlation_id: int) -> list[Buffer]:
    """Encode a frame: length, response header and body. Raises as `encode` does."""
    parts: list[Buffer] = [b""]
    header = ResponseHeaderData(correlation_id=correlation_id)
    encode_into(parts, header, message.header_version(version))
    encode_into(parts, message, version)
    size = sum(map(len, parts))
    if size > MAX_FRAME_BYTES:
        raise _too_large(size)
    parts[0] = _LENGTH.pack(size)
    return [b"".join(parts)] if size < MIN_SEPARATE_BUFFER_BYTES else join_small_buffers(parts)


def decode_response(cls: type[ResponseT], version: int, frame: memoryview) -> tuple[int, ResponseT]:
    """Decode the response to a request of `version`; return its correlation id and message.

    An ApiVersions response with UNSUPPORTED_VERSION (35) has the layout of version 0. If even that
    cannot be decoded, only its error code is used. Raises as `decode` does.
    """
    header_version = _response_header_version(cls, version)  # type: ignore[arg-type]
    if len(frame) > CORRELATION_ID_BYTES and not (header_version and frame[CORRELATION_ID_BYTES]):
        # Fast path: the header is a correlation id without tagged fields.
        correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
        size = CORRELATION_ID_BYTES + header_version
    else:
        header, size = decode_prefix(ResponseHeaderData, header_version, frame)
        correlation_id = header.correlation_id
    body = frame[size:]
    try:
        return correlation_id, decode(cls, cls.layout_version(version, body), body)
    except MalformedMessage:
        fallback = cls.decode_fallback(version, body)
        if fallback is None:
            raise
        return correlation_id, fallback


def decode_request_header(frame: memoryview) -> RequestHeader:
    """Decode the header of a request, whose version may be unknown to this package.

    Raises:
        UnsupportedVersion: The API key is unknown.
        MalformedMessage: The header is invalid.
    """
    if len(frame) < _KEY_AND_VERSION.size:
        raise MalformedMessage(
            "the frame ends inside the header", message="RequestHeader", position=len(frame)
        )
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    api = APIS.get(key)
    if api is None:
        raise UnsupportedVersion(f"unknown API key {key}", api=str(key))
    header, size = decode_prefix(RequestHeaderData, api.request.header_version(version), frame)
    return RequestHeader(api.key, version, header.correlation_id, header.client_id, size)


def decode_request(frame: memoryview) -> tuple[RequestHeader, Request[Any]]:
    """Decode the header and the message of a request. Raises as `decode` does."""
    header = decode_request_header(frame)
    cls = APIS[header.api_key].request
    return header, decode(cls, header.api_version, frame[header.header_size :])


def peek_correlation_id(frame: memoryview) -> int:
    """Return the correlation id of a response: the first field in every header version."""
    if len(frame) < CORRELATION_ID_BYTES:
        raise MalformedFrame(f"response of {len(frame)} bytes is too short for a correlation id")
    correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
    return correlation_id


@functools.lru_cache(maxsize=1024)
def _response_header_version(cls: type[Response], version: int) -> int:
    return cls.header_version(version)


@functools.lru_cache(maxsize=1024)
def _encode_header_tail(api_key: int, version: int, client_id: str | None) -> bytes:
    """Encode the part of a request header after the correlation id."""
    header = RequestHeaderData(
        request_api_key=0, request_api_version=0, correlation_id=0, client_id=client_id
    )
    header_version = APIS[ApiKey(api_key)].request.header_version(version)
    return encode(header, header_version)[_KEY_VERSION_AND_ID.size :]


def _too_large(size_bytes: int) -> ValueError:
    return ValueError(f"message of {size_bytes} bytes exceeds the frame limit ({MAX_FRAME_BYTES})")
