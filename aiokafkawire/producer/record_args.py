"""Checks of the arguments of a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafkawire.errors import RecordTooLarge
from aiokafkawire.records.batch import BATCH_OVERHEAD_BYTES
from aiokafkawire.records.headers import to_bytes
from aiokafkawire.records.kernel import Headers

__all__ = ("RECORD_OVERHEAD_BYTES", "RecordArgs", "validate_record")

RECORD_OVERHEAD_BYTES = 36
"""Upper bound of a record's encoded size without key, value and headers."""

HEADER_OVERHEAD_BYTES = 10

MAX_INT64 = 2**63 - 1

RecordArgs = tuple[str, bytes | None, bytes | None, int | None, int | None, Headers, int]
"""Checked arguments: topic, value, key, partition, timestamp, headers, maximum size in bytes."""


def validate_record(  # noqa: PLR0917 - a hot call
    topic: str,
    value: Any,
    key: Any,
    partition: int | None,
    timestamp_ms: int | None,
    headers: Any,
    *,
    max_bytes: int,
) -> RecordArgs:
    """Check the arguments of a record, and copy bytes-like ones.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
        RecordTooLarge: The record may exceed `max_bytes`.
    """
    size = RECORD_OVERHEAD_BYTES
    if value is not None:
        if type(value) is not bytes:
            value = to_bytes(value, "value")
        size += len(value)
    if key is not None:
        if type(key) is not bytes:
            key = to_bytes(key, "key")
        size += len(key)
    if headers:
        headers = _validate_headers(headers)
        for name, content in headers:
            size += HEADER_OVERHEAD_BYTES + 3 * len(name) + (len(content) if content else 0)
    if partition is not None or timestamp_ms is not None or type(topic) is not str or not topic:
        _validate_destination(topic, partition, timestamp_ms)
    if size + BATCH_OVERHEAD_BYTES > max_bytes:
        raise RecordTooLarge(
            f"the record takes up to {size + BATCH_OVERHEAD_BYTES} bytes, more than the limit of"
            f" {max_bytes} (the smaller of max_request_size_bytes and buffer_memory_bytes)",
            size_bytes=size + BATCH_OVERHEAD_BYTES,
            topic=topic,
            partition=partition,
        )
    return topic, value, key, partition, timestamp_ms, headers or (), size


def _validate_destination(topic: Any, partition: Any, timestamp_ms: Any) -> None:
    """Validate the arguments for which `validate_record` has no fast path.

    Whether the partition exists is checked later, with the topic's metadata.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic must be a string, not {topic!r:.80}")
    if not topic:
        raise ValueError("topic must not be empty")
    for name, number in (("partition", partition), ("timestamp_ms", timestamp_ms)):
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name} must be a whole number or None, not {number!r:.80}")
        if not 0 <= number <= MAX_INT64:
            raise ValueError(f"{name} must not be negative or exceed 64 bits: {number}")


def _validate_headers(headers: Iterable[Any]) -> Headers:
    if isinstance(headers, Mapping):
        raise TypeError("headers must be pairs of name and value: pass the dictionary's items()")
    result = []
    for header in headers:
        try:
            name, content = header
        except (TypeError, ValueError):
            raise TypeError(
                f"headers must be pairs of name and value, not {header!r:.80}"
            ) from None
        if not isinstance(name, str):
            raise TypeError(f"a header name must be a string, not {name!r:.80}")
        if content is not None:
            content = to_bytes(content, f"value of header {name!r}")
        result.append((name, content))
    return tuple(result)
