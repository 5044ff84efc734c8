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
from aiokafkawire.producer.batch_actions import BatchAction, action_for
from aiokafkawire.wire.error_codes import ErrorCode, error_for
from aiokafkawire.wire.messages.produce import BatchIndexAndErrorMessage

__all__ = ("NO_RECORD_ERRORS", "AttemptResult", "result_from_code", "result_from_failure")

NO_RECORD_ERRORS: Mapping[int, Exception] = MappingProxyType({})


class AttemptResult(NamedTuple):
    """What became of one attempt. `error` is there unless the verdict is APPENDED.

    `stale_metadata` tells that the leader may be another one. `record_errors` says of single
    records what is wrong with them. `closed_after_bytes` is the size of a request that is so large
    that the broker may have closed the connection for it, else 0.
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
    """What a partition of a Produce response says."""
    action = action_for(code)
    if action is BatchAction.APPENDED:
        # A repeated batch has no offset of its own.
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
        own = error_for(code, **context)
        _add_reason(own, entry.batch_index_error_message or message or "this record")
        single[entry.batch_index] = own
    if single:
        _add_reason(error, "another record of the same batch was refused")
    stale = action is not BatchAction.FAIL_UNKNOWN and ErrorCode(code).invalidates_metadata
    return AttemptResult(action, error, stale_metadata=stale, record_errors=single)


def _add_reason(error: KafkaError, more: str) -> None:
    error.reason = f"{error.reason}: {more}"
    error.args = (error.reason,)


def result_from_failure(error: KafkaError, size_bytes: int = 0) -> AttemptResult:
    """What a request of `size_bytes` that got no answer says of its batches."""
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
