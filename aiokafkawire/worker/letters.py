"""Copies of failed records, in retry topics and dead letter topics: names and headers."""

from __future__ import annotations

import os
import re
import struct
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from aiokafkawire.errors import DeserializationFailed
from aiokafkawire.records import Record
from aiokafkawire.worker.outcomes import DeadLetter

__all__ = (
    "HEADER_FORMATS",
    "DeadLetterContent",
    "FailedRecord",
    "HeaderFormat",
    "Origin",
    "RetryState",
    "dead_letter_headers",
    "origin_headers",
    "read_dead_letter",
    "read_origin",
    "read_retry_state",
    "retry_headers",
    "retry_topic",
    "retry_topic_delay",
)

Header = tuple[str, bytes | None]

HeaderFormat = Literal["kafka", "spring", "connect", "streams"]

MAX_MESSAGE = 1_000
"""Limit of the text of an exception, in characters."""

MAX_STACKTRACE = 8_192
"""Limit of a stack trace, in characters; its end is kept."""

PACKAGE_FOLDER = f"{Path(__file__).parent.parent}{os.sep}"
"""Beginning of the file names of this package."""

RETRY_PREFIX = "aiokafkawire.retry."

UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


class Origin(NamedTuple):
    """The place where a record was written first."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class RetryState(NamedTuple):
    """State of a record in a retry topic.

    Attributes:
        origin: The place where it was written first.
        attempts: Failed attempts.
        tier: Retry topics that it has passed, including this one.
        not_before_ms: Wall-clock time of its next attempt.
        first_failure_ms: Wall-clock time of its first failure.
    """

    origin: Origin
    attempts: int
    tier: int
    not_before_ms: int
    first_failure_ms: int


class DeadLetterContent(NamedTuple):
    """Content of a dead letter.

    Attributes:
        origin: The place where the record was written first.
        error: Class of the exception; empty if unknown.
        message: Its text.
        stacktrace: Its stack trace.
        headers: Headers of the record.
    """

    origin: Origin
    error: str
    message: str
    stacktrace: str
    headers: list[Header]


class ErrorFields(NamedTuple):
    """Names of the headers with the exception."""

    error: str
    message: str
    stacktrace: str


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A failed record and its last failure."""

    record: Record
    origin: Origin
    group_id: str
    attempts: int
    reason: str
    error: BaseException

    @property
    def message(self) -> str:
        """The reason and the text of the exception; that of `DeadLetter` is the reason."""
        text = "" if isinstance(self.error, DeadLetter) else _error_text(self.error)
        return f"{self.reason}: {text}" if text else self.reason


def retry_topic(group_id: str, delay_ms: int) -> str:
    """Return the name of a retry topic: `billing.retry.10s`."""
    for unit, size_ms in UNITS_MS:
        if delay_ms % size_ms == 0:
            return f"{group_id}.retry.{delay_ms // size_ms}{unit}"
    raise AssertionError(delay_ms)


def retry_topic_delay(group_id: str, topic: str) -> int | None:
    """Return the delay of a retry topic in milliseconds; None if it is another topic."""
    match = re.fullmatch(re.escape(group_id) + r"\.retry\.([1-9][0-9]{0,14})(d|h|m|s|ms)", topic)
    return None if match is None else int(match[1]) * dict(UNITS_MS)[match[2]]


# --- retry topics ---


def retry_headers(record: Record, state: RetryState) -> list[Header]:
    """Return the headers of a record in a retry topic."""
    values = {
        "topic": state.origin.topic,
        "partition": state.origin.partition,
        "offset": state.origin.offset,
        "timestamp-ms": state.origin.timestamp_ms,
        "attempts": state.attempts,
        "tier": state.tier,
        "not-before-ms": state.not_before_ms,
        "first-failure-ms": state.first_failure_ms,
    }
    return [
        *_without(record.headers, (RETRY_PREFIX,)),
        *((RETRY_PREFIX + name, _text(value)) for name, value in values.items()),
    ]


def read_retry_state(record: Record) -> RetryState:
    """Return the state of a record of a retry topic.

    Raises:
        ValueError: Headers are missing or invalid: no worker wrote the record.
    """
    values = {
        name.removeprefix(RETRY_PREFIX): value.decode()
        for name, value in record.headers
        if name.startswith(RETRY_PREFIX) and value is not None
    }
    try:
        numbers = {name: int(value) for name, value in values.items() if name != "topic"}
        state = RetryState(
            Origin(
                values["topic"], numbers["partition"], numbers["offset"], numbers["timestamp-ms"]
            ),
            numbers["attempts"],
            numbers["tier"],
            numbers["not-before-ms"],
            numbers["first-failure-ms"],
        )
    except KeyError as error:
        raise ValueError(f"header {RETRY_PREFIX}{error.args[0]} is missing") from None
    counts = (state.attempts, state.not_before_ms, state.first_failure_ms)
    if not _is_possible(state.origin) or state.tier < 1 or not all(0 <= n < 2**63 for n in counts):
        raise ValueError("headers of the retry topic are out of range")
    return state


# --- dead letters ---


def dead_letter_headers(failed: FailedRecord, header_format: HeaderFormat) -> list[Header]:
    """Return the headers of a dead letter: those of the record, and what failed."""
    fields = HEADER_FORMATS[header_format]
    return [
        *_without(failed.record.headers, (RETRY_PREFIX, *fields)),
        *((name, value(failed)) for name, value in fields.items()),
    ]


def origin_headers(failed: FailedRecord, header_format: HeaderFormat) -> list[Header]:
    """Return the headers of a dead letter that is too large with all of them: its origin alone."""
    return [
        (name, value(failed))
        for name, value in HEADER_FORMATS[header_format].items()
        if name.endswith(("topic", "partition", "offset"))
    ]


def read_origin(record: Record, header_format: HeaderFormat) -> Origin | None:
    """Return where the record of a dead letter was written first; None without headers."""
    fields, headers = HEADER_FORMATS[header_format], dict(record.headers)
    places = [name for name in fields if name.endswith(("topic", "partition", "offset"))]
    values = [headers.get(name) for name in places]
    if len(values) < 3 or None in values:
        return None
    topic, partition, offset = (value or b"" for value in values)
    read = _read_binary if header_format == "spring" else int
    try:
        origin = Origin(topic.decode(), read(partition), read(offset), record.timestamp_ms)
    except ValueError:
        return None  # another program wrote them
    return origin if _is_possible(origin) else None


def read_dead_letter(record: Record) -> DeadLetterContent | None:
    """Return what the headers of a dead letter say, in any format; None if they are no such."""
    for header_format in HEADER_FORMATS:
        origin = read_origin(record, header_format)
        if origin is not None:
            break
    else:
        return None
    texts = {
        name: value.decode(errors="replace") for name, value in record.headers if value is not None
    }
    names = ERROR_FIELDS[header_format]
    return DeadLetterContent(
        origin,
        error=texts.get(names.error, ""),
        message=texts.get(names.message, ""),
        stacktrace=texts.get(names.stacktrace, ""),
        headers=_without(record.headers, tuple(HEADER_FORMATS[header_format])),
    )


def _is_possible(origin: Origin) -> bool:
    return 0 <= origin.partition < 2**31 and 0 <= origin.offset < 2**63


def _read_binary(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _without(headers: Iterable[Header], prefixes: tuple[str, ...]) -> list[Header]:
    return [header for header in headers if not header[0].startswith(prefixes)]


def _text(value: object) -> bytes:
    # An exception may quote text that has no UTF-8 form, as "\ud800".
    return str(value).encode(errors="backslashreplace")


def _class_name(failed: FailedRecord) -> bytes:
    kind = type(failed.error)
    return _text(f"{kind.__module__}.{kind.__qualname__}")


def _cause_name(failed: FailedRecord) -> bytes:
    cause = failed.error.__cause__ or failed.error
    return _text(f"{type(cause).__module__}.{type(cause).__qualname__}")


def _message(failed: FailedRecord) -> bytes:
    return _text(_error_text(failed.error)[:MAX_MESSAGE])


def _error_text(error: BaseException) -> str:
    try:
        if isinstance(error, DeserializationFailed) and error.__cause__ is not None:
            # It may quote the value, which the dead letter has, too.
            return f"{error}: {error.__cause__}"
        return str(error)
    except Exception:
        return f"<the text of {type(error).__qualname__} raises>"


def _stacktrace(failed: FailedRecord) -> bytes:
    trace = traceback.TracebackException.from_exception(failed.error)
    _forget_callers(trace)
    return _text("".join(trace.format())[-MAX_STACKTRACE:])


def _forget_callers(trace: traceback.TracebackException) -> None:
    """Remove the frames of this package that called the handler, also from causes."""
    left = [trace]
    while left:
        each = left.pop()
        own = takewhile(lambda frame: frame.filename.startswith(PACKAGE_FOLDER), each.stack)
        del each.stack[: sum(1 for _ in own)]
        chained = (each.__cause__, each.__context__, *(each.exceptions or ()))
        left += [other for other in chained if other is not None]


_Fields = Mapping[str, Callable[[FailedRecord], bytes]]


def _fields(prefix: str, values: _Fields) -> _Fields:
    return MappingProxyType({prefix + name: value for name, value in values.items()})


_ORIGIN: _Fields = {
    "topic": lambda failed: _text(failed.origin.topic),
    "partition": lambda failed: _text(failed.origin.partition),
    "offset": lambda failed: _text(failed.origin.offset),
}

HEADER_FORMATS: Mapping[HeaderFormat, _Fields] = MappingProxyType(
    {
        # KIP-1191, and the exception.
        "kafka": _fields(
            "__dlq.errors.",
            {
                **_ORIGIN,
                "group": lambda failed: _text(failed.group_id),
                "delivery.count": lambda failed: _text(failed.attempts),
                "message": lambda failed: _text(failed.message[:MAX_MESSAGE]),
                "exception": _class_name,
                "stacktrace": _stacktrace,
            },
        ),
        # DeadLetterPublishingRecoverer of Spring for Apache Kafka; numbers are big-endian.
        "spring": _fields(
            "kafka_dlt-",
            {
                "original-topic": lambda failed: _text(failed.origin.topic),
                "original-partition": lambda failed: struct.pack(">i", failed.origin.partition),
                "original-offset": lambda failed: struct.pack(">q", failed.origin.offset),
                "original-timestamp": lambda failed: struct.pack(">q", failed.origin.timestamp_ms),
                "original-timestamp-type": lambda failed: _text(
                    "LogAppendTime" if failed.record.timestamp_type == 1 else "CreateTime"
                ),
                "original-consumer-group": lambda failed: _text(failed.group_id),
                "exception-fqcn": _class_name,
                "exception-cause-fqcn": _cause_name,
                "exception-message": _message,
                "exception-stacktrace": _stacktrace,
            },
        ),
        # DeadLetterQueueReporter of Kafka Connect.
        "connect": _fields(
            "__connect.errors.",
            {
                **_ORIGIN,
                "connector.name": lambda failed: _text(failed.group_id),
                "task.id": lambda failed: _text(0),
                "stage": lambda failed: _text("TASK_PUT"),
                "class.name": _class_name,
                "exception.class.name": _class_name,
                "exception.message": _message,
                "exception.stacktrace": _stacktrace,
            },
        ),
        # KIP-1034.
        "streams": _fields(
            "__streams.errors.",
            {
                "exception": _class_name,
                "message": _message,
                "stacktrace": _stacktrace,
                **_ORIGIN,
            },
        ),
    }
)
"""Headers of dead letters, by format."""

ERROR_FIELDS: Mapping[HeaderFormat, ErrorFields] = MappingProxyType(
    {
        "kafka": ErrorFields(
            "__dlq.errors.exception", "__dlq.errors.message", "__dlq.errors.stacktrace"
        ),
        "spring": ErrorFields(
            "kafka_dlt-exception-fqcn",
            "kafka_dlt-exception-message",
            "kafka_dlt-exception-stacktrace",
        ),
        "connect": ErrorFields(
            "__connect.errors.exception.class.name",
            "__connect.errors.exception.message",
            "__connect.errors.exception.stacktrace",
        ),
        "streams": ErrorFields(
            "__streams.errors.exception", "__streams.errors.message", "__streams.errors.stacktrace"
        ),
    }
)
"""Headers with the exception, by format."""
