"""An answer to a batch that was sent: from a response, or from a connection that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from aiokafkawire.connection import LARGE_REQUEST_BYTES
from aiokafkawire.errors import (
    ConnectionLost,
    KafkaError,
    ProducerFenced,
    ProtocolError,
    RecordTooLarge,
    RequestTimedOut,
)
from aiokafkawire.producer.outcomes import Verdict, verdict_of
from aiokafkawire.wire.error_codes import ErrorCode, error_for
from aiokafkawire.wire.messages.produce import BatchIndexAndErrorMessage

__all__ = ("NO_ERRORS", "Answer", "from_code", "from_failure")

NO_ERRORS: Mapping[int, Exception] = MappingProxyType({})


class Answer(NamedTuple):
    """What became of one attempt. `error` is there unless the verdict is APPENDED.

    `stale_metadata` tells that the leader may be another one. `record_errors` says of single
    records what is wrong with them. `closed_after_bytes` is the size of a request that is so large
    that the broker may have closed the connection for it, else 0.
    """

    verdict: Verdict
    error: Exception | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    stale_metadata: bool = False
    record_errors: Mapping[int, Exception] = NO_ERRORS
    closed_after_bytes: int = 0


def from_code(
    code: int,
    *,
    topic: str,
    partition: int,
    broker: str,
    attempt: int,
    base_offset: int = -1,
    log_append_time_ms: int = -1,
    message: str | None = None,
    record_errors: Sequence[BatchIndexAndErrorMessage] = (),
) -> Answer:
    """What a partition of a Produce response says."""
    verdict = verdict_of(code)
    if verdict is Verdict.APPENDED:
        # A repeated batch has no offset of its own.
        offset = base_offset if code == ErrorCode.NONE else -1
        return Answer(verdict, None, offset, log_append_time_ms)
    context: dict[str, Any] = {
        "broker": broker,
        "api": "Produce",
        "topic": topic,
        "partition": partition,
        "attempt": attempt,
    }
    error: KafkaError = error_for(code, **context)
    if verdict is Verdict.SPLIT:
        error = RecordTooLarge(error.reason, **context)
    elif code == ErrorCode.PRODUCER_FENCED:
        error = ProducerFenced(error.reason, **context)
    if message:
        _add_reason(error, message)
    single: dict[int, Exception] = {}
    for entry in record_errors:
        own = error_for(code, **context)
        _add_reason(own, entry.batch_index_error_message or message or "this record")
        single[entry.batch_index] = own
    if single:
        _add_reason(error, "another record of the same batch was refused")
    stale = verdict is not Verdict.UNKNOWN and ErrorCode(code).invalidates_metadata
    return Answer(verdict, error, stale_metadata=stale, record_errors=single)


def _add_reason(error: KafkaError, more: str) -> None:
    error.reason = f"{error.reason}: {more}"
    error.args = (error.reason,)


def from_failure(error: KafkaError, size_bytes: int = 0) -> Answer:
    """What a request of `size_bytes` that got no answer says of its batches."""
    suspect = 0
    if isinstance(error, ConnectionLost) and error.sent and size_bytes >= LARGE_REQUEST_BYTES:
        suspect = size_bytes
    if isinstance(error, ConnectionLost | RequestTimedOut):
        verdict = Verdict.RETRY_UNCERTAIN if error.sent else Verdict.RETRY
    elif isinstance(error, ProtocolError):
        verdict = Verdict.RETRY_UNCERTAIN
    else:
        verdict = Verdict.RETRY if error.retriable else Verdict.FAIL
    stale = verdict is not Verdict.FAIL
    return Answer(verdict, error, stale_metadata=stale, closed_after_bytes=suspect)
