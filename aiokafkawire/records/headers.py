"""Convert keys, values and headers of the application to bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .kernel import Buffer, encode_varint

__all__ = ("encode_headers", "to_bytes")


def to_bytes(data: Any, what: str) -> bytes:
    """Copy a bytes-like object. Raises a `TypeError` that names `what` for other types."""
    if not isinstance(data, bytes | bytearray | memoryview):
        advice = ": call its encode()" if isinstance(data, str) else ""
        raise TypeError(
            f"{what} must be bytes, bytearray, memoryview or None, not {data!r:.80}{advice}"
        )
    return bytes(data)


def encode_headers(headers: Iterable[tuple[str, Buffer | None]]) -> bytes:
    """Encode the header count and the headers of a record of format 2."""
    out = bytearray()
    count = 0
    for name, value in headers:
        if not isinstance(name, str):
            raise TypeError(f"header name must be str, not {name!r:.80}")
        key = name.encode()
        out += encode_varint(len(key))
        out += key
        if value is None:
            out += encode_varint(-1)
        else:
            content = to_bytes(value, "header value")
            out += encode_varint(len(content))
            out += content
        count += 1
    return encode_varint(count) + bytes(out)
