"""Requests and responses with their headers, as frames carry them."""

import struct
from typing import Any, NamedTuple, TypeVar

from aiokafkawire.errors import MalformedFrame, MalformedMessage, UnsupportedVersion
from aiokafkawire.wire.api import APIS, ApiKey
from aiokafkawire.wire.codec import decode, decode_prefix, encode_onto, join_small
from aiokafkawire.wire.messages.headers import RequestHeaderData, ResponseHeaderData
from aiokafkawire.wire.primitives import Buffer
from aiokafkawire.wire.schema import Message, Request, Response

__all__ = (
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
_KEY_AND_VERSION = struct.Struct(">hh")


class RequestHeader(NamedTuple):
    """What stands before a request; the body begins at `header_size` in its frame."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    header_size: int


def encode_request(
    message: Request[Any], version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """A whole frame: length, request header, body. Raises as `encode` does.

    Large records are buffers of their own, not copied: keep them unchanged until they are sent.
    """
    header = RequestHeaderData(
        request_api_key=message.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return _frame(header, message.header_version(version), message, version)


def encode_response(message: Response, version: int, correlation_id: int) -> list[Buffer]:
    """A whole frame: length, response header, body. Raises as `encode` does."""
    header = ResponseHeaderData(correlation_id=correlation_id)
    return _frame(header, message.header_version(version), message, version)


def decode_response(cls: type[ResponseT], version: int, frame: memoryview) -> tuple[int, ResponseT]:
    """The correlation id and the message of a response to a request of `version`.

    An ApiVersions response with error 35 is read in the layout of version 0, in which it comes;
    if that fails, its error is all that is taken from it. Raises as `decode` does.
    """
    header, size = decode_prefix(ResponseHeaderData, cls.header_version(version), frame)
    body = frame[size:]
    try:
        return header.correlation_id, decode(cls, cls.layout_version(version, body), body)
    except MalformedMessage:
        found = cls.despite_its_layout(version, body)
        if found is None:
            raise
        return header.correlation_id, found


def decode_request_header(frame: memoryview) -> RequestHeader:
    """The header of a request, whose version may be one that this package does not know.

    Raises `UnsupportedVersion` for an API key without messages here, and `MalformedMessage`.
    """
    if len(frame) < _KEY_AND_VERSION.size:
        raise MalformedMessage(
            "the frame ends inside the header", message="RequestHeader", position=len(frame)
        )
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    api = APIS.get(key)
    if api is None:
        raise UnsupportedVersion(f"API key {key} is not known", api=str(key))
    header, size = decode_prefix(RequestHeaderData, api.request.header_version(version), frame)
    return RequestHeader(api.key, version, header.correlation_id, header.client_id, size)


def decode_request(frame: memoryview) -> tuple[RequestHeader, Request[Any]]:
    """The header and the message of a request. Raises as `decode` does."""
    header = decode_request_header(frame)
    cls = APIS[header.api_key].request
    return header, decode(cls, header.api_version, frame[header.header_size :])


def peek_correlation_id(frame: memoryview) -> int:
    """The correlation id of a response, which comes first in every version of its header."""
    if len(frame) < _LENGTH.size:
        raise MalformedFrame(f"a response of {len(frame)} bytes has no correlation id")
    correlation_id: int = _LENGTH.unpack_from(frame)[0]
    return correlation_id


def _frame(header: Message, header_version: int, message: Message, version: int) -> list[Buffer]:
    parts: list[Buffer] = [b""]
    encode_onto(parts, header, header_version)
    encode_onto(parts, message, version)
    size = sum(map(len, parts))
    if size > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {size} bytes is over what a frame can hold")
    parts[0] = _LENGTH.pack(size)
    return join_small(parts)
