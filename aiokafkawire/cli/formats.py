"""Record formatters of `consume`: `-f` format strings as in kcat."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from aiokafkawire.cli.arguments import unescape
from aiokafkawire.errors import InvalidOption
from aiokafkawire.records import Record

__all__ = ("TOKENS", "RecordFormatter", "compile_format", "default_formatter")

RecordFormatter = Callable[[Record], bytes]
"""Returns the printed bytes of a record, including the delimiter."""

NULL = b"NULL"

TOKENS = {
    "s": "value",
    "S": "size of the value in bytes, -1 for null",
    "R": "size of the value as 4 bytes, big-endian",
    "k": "key",
    "K": "size of the key in bytes, -1 for null",
    "h": "headers, name=value separated by commas",
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "T": "timestamp in milliseconds since 1970, -1 for none",
    "%": "a percent sign",
}


def compile_format(text: str, *, null: bytes = b"") -> RecordFormatter:
    """Compile a format string into a formatter; `null` replaces null keys and values.

    Raises `InvalidOption` for an unknown token.
    """
    parts: list[bytes | RecordFormatter] = []
    rest = text
    while rest:
        before, percent, rest = rest.partition("%")
        if before:
            parts.append(unescape(before))
        if not percent:
            break
        token, rest = rest[:1], rest[1:]
        if token == "%":
            parts.append(b"%")
        elif token in TOKENS:
            parts.append(_field(token, null))
        else:
            known = " ".join(f"%{name}" for name in TOKENS)
            raise InvalidOption(f"-f: unknown token {'%' + token!r}; valid tokens are {known}")
    return _join(parts)


def default_formatter(
    delimiter: bytes, key_delimiter: bytes | None, null: bytes
) -> RecordFormatter:
    """Return a formatter of the value and its delimiter, preceded by the key if delimited."""
    value, key = _field("s", null), _field("k", null)
    if key_delimiter is None:
        return _join([value, delimiter])
    return _join([key, key_delimiter, value, delimiter])


def _join(parts: Sequence[bytes | RecordFormatter]) -> RecordFormatter:
    def format_record(record: Record) -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(record) for part in parts])

    return format_record


def _field(token: str, null: bytes) -> RecordFormatter:
    def headers(record: Record) -> bytes:
        return b",".join(
            name.encode() + b"=" + (null if value is None else value)
            for name, value in record.headers
        )

    fields: dict[str, RecordFormatter] = {
        "s": lambda record: null if record.value is None else record.value,
        "S": lambda record: b"%d" % _size(record.value),
        "R": lambda record: struct.pack(">i", _size(record.value)),
        "k": lambda record: null if record.key is None else record.key,
        "K": lambda record: b"%d" % _size(record.key),
        "h": headers,
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp_ms,
    }
    return fields[token]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
