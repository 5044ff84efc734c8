"""The action for each error code of a Produce response.

Protocol source: the error codes that Kafka's documentation lists for Produce, and the point of an
append at which a broker returns each. A response either proves that the batch is not in the log,
or leaves it open. That decides whether the batch may get a new sequence number, and whether its
expiry is a `DeliveryTimedOut` or a `DeliveryUnknown`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from aiokafkawire.wire.error_codes import ErrorCode

__all__ = ("BATCH_ACTIONS", "BatchAction", "action_for")


class BatchAction(enum.Enum):
    """Action on a batch after an attempt to send it."""

    APPENDED = "the records are in the log"
    RETRY = "not in the log; retry"
    RETRY_UNCERTAIN = "maybe in the log; retry, a broker drops a duplicate"
    SPLIT = "not in the log because it is too large; send its records in smaller batches"
    OUT_OF_ORDER = "not in the log because the broker expects another sequence number"
    STALE_EPOCH = "not in the log because the broker has seen a higher epoch"
    OLD_MESSAGE_FORMAT = "not in the log because its message format has no producer ids"
    FAIL = "not in the log; fail with the error"
    FAIL_UNKNOWN = "maybe in the log, and a retry would not show it; fail as unknown"
    FATAL = "the producer fails permanently"

    # Faster than Enum's hash of the name: members are looked up in tables for each batch.
    __hash__ = object.__hash__


BATCH_ACTIONS: Mapping[ErrorCode, BatchAction] = {
    ErrorCode.NONE: BatchAction.APPENDED,
    # The broker has the batch, but no longer knows its offset.
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: BatchAction.APPENDED,
    # The leader may have written the records before the replicas' acknowledgements timed out, too
    # few were in sync, the leader moved or its disk failed.
    # mutation: timed-out-append-counts-as-refused
    ErrorCode.REQUEST_TIMED_OUT: BatchAction.RETRY_UNCERTAIN,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: BatchAction.RETRY_UNCERTAIN,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: BatchAction.RETRY_UNCERTAIN,
    ErrorCode.FENCED_LEADER_EPOCH: BatchAction.RETRY_UNCERTAIN,
    ErrorCode.KAFKA_STORAGE_ERROR: BatchAction.RETRY_UNCERTAIN,
    ErrorCode.NETWORK_EXCEPTION: BatchAction.RETRY_UNCERTAIN,
    ErrorCode.MESSAGE_TOO_LARGE: BatchAction.SPLIT,
    ErrorCode.RECORD_LIST_TOO_LARGE: BatchAction.SPLIT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: BatchAction.OUT_OF_ORDER,
    ErrorCode.UNKNOWN_PRODUCER_ID: BatchAction.OUT_OF_ORDER,
    ErrorCode.INVALID_PRODUCER_EPOCH: BatchAction.STALE_EPOCH,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: BatchAction.OLD_MESSAGE_FORMAT,
    ErrorCode.UNKNOWN_SERVER_ERROR: BatchAction.FAIL_UNKNOWN,
    ErrorCode.PRODUCER_FENCED: BatchAction.FATAL,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: BatchAction.FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: BatchAction.FATAL,
}
"""Actions for particular codes. Other retriable codes are retried, all others fail."""


def action_for(code: int) -> BatchAction:
    """Return the action for the error code of a response; FAIL_UNKNOWN for an unknown code."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return BatchAction.FAIL_UNKNOWN
    action = BATCH_ACTIONS.get(known)
    if action is None:
        return BatchAction.RETRY if known.retriable else BatchAction.FAIL
    return action
