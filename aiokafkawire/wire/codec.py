"""Messages to bytes and back.

The encoder and the decoder of a (class, version) are made apart, on first use, and kept.
"""

import struct
from typing import TypeVar

from aiokafkawire.errors import UnsupportedVersion
from aiokafkawire.wire.decoder import DECODE_ERRORS, Decoder, make_decoder
from aiokafkawire.wire.diagnostics import (
    diagnose_decode_error,
    diagnose_encode_error,
    trailing_bytes_error,
)
from aiokafkawire.wire.encoder import Encoder, make_encoder
from aiokafkawire.wire.primitives import Buffer
from aiokafkawire.wire.schema import Message, schema_for

__all__ = (
    "MIN_SEPARATE_BUFFER_BYTES",
    "check_version",
    "decode",
    "decode_prefix",
    "encode",
    "encode_into",
    "encode_parts",
    "join_small_buffers",
)

M = TypeVar("M", bound=Message)

MIN_SEPARATE_BUFFER_BYTES = 4_096
"""Buffers of this size or more are sent as they are; below it, joining them costs less."""

# As many entries as there are classes and versions, at most.
_ENCODERS: dict[tuple[type[Message], int], Encoder] = {}
_DECODERS: dict[tuple[type[Message], int], Decoder] = {}

ENCODE_ERRORS = (struct.error, TypeError, AttributeError, ValueError, OverflowError)


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message, without header and frame length.

    Raises `UnsupportedVersion` for a version that the message does not have, or one that lacks a
    field that is set (and is not ignorable); `TypeError` or `ValueError` for a value that does not
    fit its field. Each names class, version and field.
    """
    parts: list[Buffer] = []
    encode_into(parts, message, version)
    return b"".join(parts)


def encode_parts(message: Message, version: int) -> list[Buffer]:
    """Like `encode`, in several buffers: large records are not copied.

    The caller keeps the records unchanged until the buffers are sent.
    """
    parts: list[Buffer] = []
    encode_into(parts, message, version)
    return join_small_buffers(parts)


def encode_into(parts: list[Buffer], message: Message, version: int) -> None:
    """Append a message's bytes to `parts`, in many small buffers."""
    encoder = _ENCODERS.get((type(message), version)) or _encoder(type(message), version)
    try:
        encoder(message, parts.append)
    except ENCODE_ERRORS as error:
        raise diagnose_encode_error(message, version, error) from error


def join_small_buffers(parts: list[Buffer]) -> list[Buffer]:
    """The same bytes in few buffers: runs of small ones joined, large ones kept as they are."""
    if parts and max(map(len, parts)) < MIN_SEPARATE_BUFFER_BYTES:
        return [b"".join(parts)]
    joined: list[Buffer] = []
    run: list[Buffer] = []
    for part in parts:
        if len(part) < MIN_SEPARATE_BUFFER_BYTES:
            run.append(part)
            continue
        if run:
            joined.append(b"".join(run))
            run.clear()
        joined.append(part)
    if run:
        joined.append(b"".join(run))
    return joined


def decode(cls: type[M], version: int, data: Buffer) -> M:
    """The message that `data` is, to its last byte.

    `bytes` fields are copied out; `records` fields are memoryviews of `data`. All is checked here;
    a long array of numbers is made into objects when somebody looks at it. Raises
    `MalformedMessage` with class, version, field path and byte offset, and `UnsupportedVersion`
    for a version that the class does not have.
    """
    decoder = _DECODERS.get((cls, version)) or _decoder(cls, version)
    size = len(data)
    try:
        message, end = decoder(memoryview(data), 0, size)
    except DECODE_ERRORS as error:
        raise diagnose_decode_error(cls, version, data) from error
    if end != size:
        raise trailing_bytes_error(cls, version, data, end)
    found: M = message
    return found


def decode_prefix(cls: type[M], version: int, data: Buffer) -> tuple[M, int]:
    """The message that `data` begins with, and where it ends. Raises as `decode` does."""
    decoder = _DECODERS.get((cls, version)) or _decoder(cls, version)
    view = memoryview(data)
    try:
        message, end = decoder(view, 0, len(view))
    except DECODE_ERRORS as error:
        raise diagnose_decode_error(cls, version, data) from error
    return message, end


def check_version(cls: type[Message], version: int) -> None:
    """Raise `UnsupportedVersion` unless the message was ever released in `version`."""
    if not cls.min_version <= version <= cls.max_version:
        raise UnsupportedVersion(
            f"{schema_for(cls).name} has versions {cls.min_version} to {cls.max_version},"
            f" not {version}"
        )


def _encoder(cls: type[Message], version: int) -> Encoder:
    check_version(cls, version)
    made = _ENCODERS[cls, version] = make_encoder(cls, version)
    return made


def _decoder(cls: type[Message], version: int) -> Decoder:
    check_version(cls, version)
    made = _DECODERS[cls, version] = make_decoder(cls, version)
    return made
