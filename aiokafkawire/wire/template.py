"""Templates of frequent messages, in which only a few adjacent numbers change.

All other bytes come from examples that the general codec has encoded. A template finds the numbers
by comparing two examples, so it has no layout of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from aiokafkawire.wire.codec import encode
from aiokafkawire.wire.header import CORRELATION_ID_BYTES, encode_response
from aiokafkawire.wire.primitives import Buffer, encode_unsigned_varint
from aiokafkawire.wire.schema import Request, Response

__all__ = ("RequestTemplate", "ResponseTemplate")

_LENGTH_BYTES = 4

_EMPTY_RECORDS = b"\x01"
"""Empty records in a flexible version: their length plus one, as a varint."""


class _Split(NamedTuple):
    """An encoded example without its numbers."""

    prefix: bytes
    numbers: Struct
    suffix: bytes


def _split(encode_example: Callable[..., bytes], numbers: str) -> _Split:
    """Split an example where its encoding depends on the numbers.

    Args:
        encode_example: Encodes an example with these numbers.
        numbers: Their types, in the format of `struct`.

    Raises:
        ValueError: The numbers are not adjacent fields of these types.
    """
    layout = Struct(f">{numbers}")
    # Numbers whose bytes are all zero, and numbers whose bytes all differ.
    zeros, others = (
        layout.unpack(bytes(i * step for i in range(1, layout.size + 1))) for step in (0, 1)
    )
    example, other = encode_example(*zeros), encode_example(*others)
    start = next((i for i, byte in enumerate(example) if byte != other[i]), len(example))
    prefix, suffix = example[:start], example[start + layout.size :]
    if prefix + layout.pack(*others) + suffix != other:
        raise ValueError(f"the numbers are not adjacent fields of types {numbers!r}")
    return _Split(prefix, layout, suffix)


class RequestTemplate:
    """Encodes the body of a request.

    Args:
        make: Returns the request with these numbers.
        version: API version of the request.
        numbers: Types of the numbers, in the format of `struct`.
    """

    __slots__ = ("_after_records", "_pack", "_prefix", "_suffix")

    def __init__(self, make: Callable[..., Request[Any]], version: int, numbers: str) -> None:
        def encode_example(*values: Any) -> bytes:
            return encode(make(*values), version)

        self._prefix, layout, self._suffix = _split(encode_example, numbers)
        self._pack = layout.pack
        self._after_records = self._suffix.removeprefix(_EMPTY_RECORDS)

    def encode(self, *numbers: Any) -> tuple[Buffer, ...]:
        """Return the parts of the encoded request."""
        return self._prefix, self._pack(*numbers), self._suffix

    def encode_with_records(
        self, records: Sequence[Buffer], size_bytes: int, *numbers: Any
    ) -> tuple[Buffer, ...]:
        """Return the parts of the encoded request with records.

        The version must be flexible. The records follow the numbers; those of `make` are empty.

        Args:
            records: The parts of the encoded records.
            size_bytes: Size of all parts.
            numbers: The numbers.
        """
        size = _encode_size(size_bytes)
        return self._prefix, self._pack(*numbers), size, *records, self._after_records


class ResponseTemplate:
    """Reads the numbers of a response frame whose other bytes are those of an example.

    Args:
        make: Returns the response with these numbers.
        version: API version of the response.
        numbers: Types of the numbers, in the format of `struct`.
    """

    __slots__ = ("_prefix", "_size", "_suffix", "_unpack")

    def __init__(self, make: Callable[..., Response], version: int, numbers: str) -> None:
        def encode_example(*values: Any) -> bytes:
            frame = b"".join(encode_response(make(*values), version, 0))
            return frame[_LENGTH_BYTES + CORRELATION_ID_BYTES :]

        self._prefix, _, self._suffix = _split(encode_example, numbers)
        layout = Struct(
            f">{CORRELATION_ID_BYTES}x{len(self._prefix)}s{numbers}{len(self._suffix)}s"
        )
        self._size = layout.size
        self._unpack = layout.unpack

    def match(self, frame: memoryview) -> tuple[Any, ...] | None:
        """Return the numbers, or None if any other byte differs from the example."""
        if len(frame) != self._size:
            return None
        values = self._unpack(frame)
        if values[0] != self._prefix or values[-1] != self._suffix:
            return None
        return values[1:-1]


@lru_cache(maxsize=1024)
def _encode_size(size_bytes: int) -> bytes:
    """Encode the length prefix of records in a flexible version."""
    return encode_unsigned_varint(size_bytes + 1)
