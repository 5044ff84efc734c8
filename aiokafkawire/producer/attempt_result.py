"""The result of an attempt to send a batch: from a response, or from a failed request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from aiokafkawire.connection import LARGE_REQUEST_BYTES
from aiokafkawire.errors import (
    BrokerError,
    ConnectionLost,
    KafkaError,
    ProducerFenced,
    ProtocolError,
    RecordTooLarge,
    RequestTimedOut,
)
from aiokafkawire.producer.batch_actions import BatchAction, action_for
from aiokafkawire.wire.error_codes import ErrorCode, error_for
from aiokafkawire.wire.messages.produce import BatchIndexAndErrorMessage

__all__ = ("NO_RECORD_ERRORS", "AttemptResult", "result_from_code", "result_from_failure")

NO_RECORD_ERRORS: Mapping[int, Exception] = MappingProxyType({})


class AttemptResult(NamedTuple):
    """Result of one attempt to send a batch.

    Attributes:
        action: What to do with the batch.
        error: None if the action is APPENDED.
        base_offset: Offset of the first record; -1 if unknown.
        log_append_time_ms: Timestamp from the broker; -1 if the records keep their own.
        stale_metadata: The leader may have changed.
        record_errors: Errors of single records, by their index in the batch (KIP-467).
        closed_after_bytes: Size of the request, if the broker may have closed the connection
            because of it; else 0.
    """

    action: BatchAction
    error: Exception | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    stale_metadata: bool = False
    record_errors: Mapping[int, Exception] = NO_RECORD_ERRORS
    closed_after_bytes: int = 0


def result_from_code(
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
) -> AttemptResult:
    """Return the result for a partition of a Produce response."""
    action = action_for(code)
    if action is BatchAction.APPENDED:
        # The response for a duplicate has no offset.
        offset = base_offset if code == ErrorCode.NONE else -1
        return AttemptResult(action, None, offset, log_append_time_ms)
    context: dict[str, Any] = {
        "broker": broker,
        "api": "Produce",
        "topic": topic,
        "partition": partition,
        "attempt": attempt,
    }
    error: KafkaError = error_for(code, **context)
    if action is BatchAction.SPLIT:
        error = RecordTooLarge(error.reason, **context)
    elif code == ErrorCode.PRODUCER_FENCED:
        error = ProducerFenced(error.reason, **context)
    if message:
        _add_reason(error, message)
    single: dict[int, Exception] = {}
    for entry in record_errors:
        record_error = error_for(code, **context)
        _add_reason(record_error, entry.batch_index_error_message or message or "this record")
        single[entry.batch_index] = record_error
    if single:
        _add_reason(error, "another record of the same batch was rejected")
        if isinstance(error, BrokerError):
            error.is_of_other_record = True
    stale = action is not BatchAction.FAIL_UNKNOWN and ErrorCode(code).invalidates_metadata
    return AttemptResult(action, error, stale_metadata=stale, record_errors=single)


def _add_reason(error: KafkaError, reason: str) -> None:
    error.reason = f"{error.reason}: {reason}"
    error.args = (error.reason,)


def result_from_failure(error: KafkaError, size_bytes: int = 0) -> AttemptResult:
    """Return the result for the batches of a request of `size_bytes` without a response."""
    suspect = 0
    if isinstance(error, ConnectionLost) and error.sent and size_bytes >= LARGE_REQUEST_BYTES:
        suspect = size_bytes
    if isinstance(error, ConnectionLost | RequestTimedOut):
        action = BatchAction.RETRY_UNCERTAIN if error.sent else BatchAction.RETRY
    elif isinstance(error, ProtocolError):
        action = BatchAction.RETRY_UNCERTAIN
    else:
        action = BatchAction.RETRY if error.retriable else BatchAction.FAIL
    stale = action is not BatchAction.FAIL
    return AttemptResult(action, error, stale_metadata=stale, closed_after_bytes=suspect)
