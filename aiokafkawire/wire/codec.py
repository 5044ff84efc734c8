"""Encode and decode messages.

The encoder and the decoder of a (class, version) pair are compiled on first use and cached.
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
"""Buffers of at least this size are sent without a copy. Joining smaller ones costs less."""

# Bounded by the number of message classes and versions.
_ENCODERS: dict[tuple[type[Message], int], Encoder] = {}
_DECODERS: dict[tuple[type[Message], int], Decoder] = {}

ENCODE_ERRORS = (struct.error, TypeError, AttributeError, ValueError, OverflowError)


def encode(message: Message, version: int) -> bytes:
    """Encode a message, without header and frame length.

    Raises:
        UnsupportedVersion: The message does not have that version, or the version lacks a
            non-ignorable field that is set.
        TypeError: A field has a value of a wrong type. The text names class, version and field.
        ValueError: A field has a value out of range. The text names class, version and field.
    """
    parts: list[Buffer] = []
    encode_into(parts, message, version)
    return b"".join(parts)


def encode_parts(message: Message, version: int) -> list[Buffer]:
    """Encode a message into a list of buffers, without copying large records.

    The caller must not change the records until the buffers are sent. Raises as `encode` does.
    """
    parts: list[Buffer] = []
    encode_into(parts, message, version)
    return join_small_buffers(parts)


def encode_into(parts: list[Buffer], message: Message, version: int) -> None:
    """Append the bytes of a message to `parts`, in many small buffers."""
    encoder = _ENCODERS.get((type(message), version)) or _encoder(type(message), version)
    try:
        encoder(message, parts.append)
    except ENCODE_ERRORS as error:
        raise diagnose_encode_error(message, version, error) from error


def join_small_buffers(parts: list[Buffer]) -> list[Buffer]:
    """Join adjacent small buffers; keep large ones as they are."""
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
    """Decode a message that spans all of `data`.

    `bytes` fields are copied; `records` fields are memoryviews of `data`. All bytes are validated
    now, but a long array of structs of numbers becomes objects on first access.

    Raises:
        MalformedMessage: `data` is invalid. The text names class, version, field path and byte
            offset.
        UnsupportedVersion: The message does not have that version.
    """
    decoder = _DECODERS.get((cls, version)) or _decoder(cls, version)
    size = len(data)
    try:
        message, end = decoder(memoryview(data) if cls.decoded_in_place else bytes(data), 0, size)
    except DECODE_ERRORS as error:
        raise diagnose_decode_error(cls, version, data) from error
    if end != size:
        raise trailing_bytes_error(cls, version, data, end)
    result: M = message
    return result


def decode_prefix(cls: type[M], version: int, data: Buffer) -> tuple[M, int]:
    """Decode the message at the start of `data`; return it and its end. Raises as `decode` does."""
    decoder = _DECODERS.get((cls, version)) or _decoder(cls, version)
    try:
        message, end = decoder(
            memoryview(data) if cls.decoded_in_place else bytes(data), 0, len(data)
        )
    except DECODE_ERRORS as error:
        raise diagnose_decode_error(cls, version, data) from error
    return message, end


def check_version(cls: type[Message], version: int) -> None:
    """Raise `UnsupportedVersion` if the message does not have `version` in any release."""
    if not cls.min_version <= version <= cls.max_version:
        raise UnsupportedVersion(
            f"{schema_for(cls).name} has no version {version}, only {cls.min_version} to"
            f" {cls.max_version}"
        )


def _encoder(cls: type[Message], version: int) -> Encoder:
    check_version(cls, version)
    made = _ENCODERS[cls, version] = make_encoder(cls, version)
    return made


def _decoder(cls: type[Message], version: int) -> Decoder:
    check_version(cls, version)
    made = _DECODERS[cls, version] = make_decoder(cls, version)
    return made
