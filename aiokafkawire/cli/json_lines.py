"""Records as JSON lines: the format of `consume --json` and `produce --json`.

    {"topic": "orders", "partition": 3, "offset": 17, "timestamp_ms": 1700000000000,
     "timestamp_type": "create_time", "key": "k", "value": "v",
     "headers": [{"name": "trace", "value": "1"}]}

Bytes that are not UTF-8 are base64 under `key_base64` or `value_base64`. Null is null. `produce`
needs only the fields to send; it ignores `offset` and `timestamp_type`, so it reads the output of
`consume`.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from dataclasses import dataclass
from typing import Any

from aiokafkawire.records import Record
from aiokafkawire.types import NO_TIMESTAMP, TimestampType, require_topic_name

__all__ = ("InputRecord", "InvalidLine", "from_json", "put_bytes", "to_json")

HEADER_NAMES = ("name", "value", "value_base64")
NAMES = (
    "topic",
    "partition",
    "offset",
    "timestamp_ms",
    "timestamp_type",
    "key",
    "key_base64",
    "value",
    "value_base64",
    "headers",
)


class InvalidLine(ValueError):
    """Raised when a line of the input is not a record; the text has the reason."""


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A record to send; fields that the line omits are None."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


def to_json(record: Record) -> bytes:
    """Return a record as one line of JSON in UTF-8, with a newline."""
    form: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": TimestampType(record.timestamp_type).name.lower(),
    }
    put_bytes(form, "key", record.key)
    put_bytes(form, "value", record.value)
    headers = []
    for name, value in record.headers:
        header: dict[str, Any] = {"name": name}
        put_bytes(header, "value", value)
        headers.append(header)
    form["headers"] = headers
    return json.dumps(form, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def from_json(line: bytes) -> InputRecord:
    """Parse one line. Raises `InvalidLine`."""
    try:
        form = json.loads(line)
    except ValueError as error:
        raise InvalidLine(f"not JSON: {error}") from None
    if not isinstance(form, dict):
        raise InvalidLine("not a JSON object")
    _check_names(form, NAMES)
    timestamp_ms = _get_int(form, "timestamp_ms", NO_TIMESTAMP)
    topic = form.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise InvalidLine("topic must be a string")
    if topic:
        try:
            require_topic_name(topic)
        except ValueError as error:
            raise InvalidLine(str(error)) from None
    return InputRecord(
        value=_get_bytes(form, "value"),
        key=_get_bytes(form, "key"),
        headers=tuple(_parse_header(header) for header in _get_list(form, "headers")),
        topic=topic,
        partition=_get_int(form, "partition", 0),
        timestamp_ms=None if timestamp_ms == NO_TIMESTAMP else timestamp_ms,
    )


def put_bytes(form: dict[str, Any], name: str, data: bytes | None) -> None:
    """Add bytes to an object: as text under `name`, or as base64 if they are not UTF-8."""
    if data is None:
        form[name] = None
        return
    try:
        form[name] = data.decode()
    except UnicodeDecodeError:
        form[f"{name}_base64"] = base64.b64encode(data).decode()


def _get_bytes(form: dict[str, Any], name: str) -> bytes | None:
    coded = form.get(f"{name}_base64")
    text = form.get(name)
    if coded is None:
        if text is None:
            return None
        if not isinstance(text, str):
            raise InvalidLine(f"{name} must be a string or null; {name}_base64 takes any bytes")
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise InvalidLine(f"{name} has a lone surrogate, which UTF-8 cannot encode") from None
    if text is not None:
        raise InvalidLine(f"{name} and {name}_base64 are both given")
    if not isinstance(coded, str):
        raise InvalidLine(f"{name}_base64 must be a string")
    try:
        return base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidLine(f"{name}_base64 is not base64") from None


def _parse_header(form: Any) -> tuple[str, bytes | None]:
    if not isinstance(form, dict) or not isinstance(form.get("name"), str):
        raise InvalidLine('a header must be an object such as {"name": "n", "value": "v"}')
    _check_names(form, HEADER_NAMES)
    return form["name"], _get_bytes(form, "value")


def _get_int(form: dict[str, Any], name: str, lowest: int) -> int | None:
    value = form.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise InvalidLine(f"{name} must be a whole number of at least {lowest}, not {value!r}")
    return value


def _get_list(form: dict[str, Any], name: str) -> list[Any]:
    value = form.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidLine(f"{name} must be a list")
    return value


def _check_names(form: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in form:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; fields: {', '.join(known)}"
            raise InvalidLine(f"unknown field {name!r}{hint}")
