"""The action for each error code in the response to a transactional request.

Protocol source: KIP-98, KIP-360 (epoch bump), KIP-447 (group metadata), KIP-588, KIP-890.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from aiokafkawire.wire.error_codes import ErrorCode

__all__ = (
    "DEFAULT_ACTIONS",
    "TRANSACTION_ACTIONS",
    "RequestKind",
    "TransactionAction",
    "action_for",
    "most_severe",
)


class RequestKind(enum.Enum):
    """The requests of a transaction; each value is the name of its API."""

    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS_TO_TXN = "AddPartitionsToTxn"
    ADD_OFFSETS_TO_TXN = "AddOffsetsToTxn"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"
    END_TXN = "EndTxn"


class TransactionAction(enum.Enum):
    """The reaction to a response; for several partitions, the last one in this list wins."""

    DONE = "succeeded"
    RETRY = "retry the request after a backoff"
    FIND_COORDINATOR = "find the coordinator again, then retry the request"
    ABORT = "the transaction can only be aborted (`TransactionFailed`)"
    ABORT_AND_BUMP = "abort and bump the epoch: a broker lost the producer's state"
    BUMP_ONLY = "bump the epoch without EndTxn: the coordinator no longer knows the producer id"
    FATAL = "fail the producer permanently"
    FENCED = "fail the producer permanently (`ProducerFenced`)"

    # Hash by identity instead of by name, which is slower: a lookup for every response.
    __hash__ = object.__hash__


_SEVERITY = {action: number for number, action in enumerate(TransactionAction)}

_COORDINATOR: Mapping[ErrorCode, TransactionAction] = {
    ErrorCode.NONE: TransactionAction.DONE,
    ErrorCode.NOT_COORDINATOR: TransactionAction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: TransactionAction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: TransactionAction.RETRY,
    ErrorCode.CONCURRENT_TRANSACTIONS: TransactionAction.RETRY,
    # Coordinators before Kafka 2.7 return the first code instead of the second.
    ErrorCode.INVALID_PRODUCER_EPOCH: TransactionAction.FENCED,
    ErrorCode.PRODUCER_FENCED: TransactionAction.FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TransactionAction.FATAL,
}

_IN_TRANSACTION: Mapping[ErrorCode, TransactionAction] = {
    **_COORDINATOR,
    ErrorCode.INVALID_TXN_STATE: TransactionAction.FATAL,
    ErrorCode.UNKNOWN_PRODUCER_ID: TransactionAction.ABORT_AND_BUMP,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: TransactionAction.BUMP_ONLY,
    ErrorCode.TRANSACTION_ABORTABLE: TransactionAction.ABORT,
}

TRANSACTION_ACTIONS: Mapping[RequestKind, Mapping[ErrorCode, TransactionAction]] = {
    RequestKind.INIT_PRODUCER_ID: {
        **_COORDINATOR,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: TransactionAction.FATAL,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: TransactionAction.FATAL,
    },
    RequestKind.ADD_PARTITIONS_TO_TXN: {
        **_IN_TRANSACTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: TransactionAction.RETRY,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: TransactionAction.ABORT,
        # Another partition of the request was rejected, so none was added.
        ErrorCode.OPERATION_NOT_ATTEMPTED: TransactionAction.ABORT,
    },
    RequestKind.ADD_OFFSETS_TO_TXN: {
        **_IN_TRANSACTION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: TransactionAction.ABORT,
    },
    RequestKind.TXN_OFFSET_COMMIT: {
        **_IN_TRANSACTION,
        ErrorCode.REQUEST_TIMED_OUT: TransactionAction.FIND_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: TransactionAction.RETRY,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: TransactionAction.ABORT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: TransactionAction.ABORT,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: TransactionAction.ABORT,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: TransactionAction.ABORT,
        ErrorCode.INVALID_GROUP_ID: TransactionAction.ABORT,
        # The consumer's membership or generation is outdated.
        ErrorCode.UNKNOWN_MEMBER_ID: TransactionAction.ABORT,
        ErrorCode.ILLEGAL_GENERATION: TransactionAction.ABORT,
        ErrorCode.STALE_MEMBER_EPOCH: TransactionAction.ABORT,
        ErrorCode.GROUP_ID_NOT_FOUND: TransactionAction.ABORT,
        ErrorCode.REBALANCE_IN_PROGRESS: TransactionAction.ABORT,
        ErrorCode.FENCED_INSTANCE_ID: TransactionAction.ABORT,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: TransactionAction.FATAL,
    },
    RequestKind.END_TXN: {
        **_IN_TRANSACTION,
        # The coordinator aborted it; with KIP-890 it returns this after the timeout.
        ErrorCode.INVALID_TXN_STATE: TransactionAction.ABORT,
        # The coordinator may have written the end; the retry finds out.
        ErrorCode.UNKNOWN_SERVER_ERROR: TransactionAction.RETRY,
    },
}
"""The codes that have an action; other retriable codes are retried, see also `DEFAULT_ACTIONS`."""

DEFAULT_ACTIONS: Mapping[RequestKind, TransactionAction] = {
    RequestKind.INIT_PRODUCER_ID: TransactionAction.FATAL,
    RequestKind.ADD_PARTITIONS_TO_TXN: TransactionAction.ABORT,
    RequestKind.ADD_OFFSETS_TO_TXN: TransactionAction.ABORT,
    RequestKind.TXN_OFFSET_COMMIT: TransactionAction.ABORT,
    RequestKind.END_TXN: TransactionAction.FATAL,
}
"""The action for codes that are neither listed nor retriable: abort where that is possible."""


def action_for(kind: RequestKind, code: int) -> TransactionAction:
    """Return the action for an error code of a response."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return DEFAULT_ACTIONS[kind]
    action = TRANSACTION_ACTIONS[kind].get(known)
    if action is None:
        return TransactionAction.RETRY if known.retriable else DEFAULT_ACTIONS[kind]
    return action


def most_severe(kind: RequestKind, codes: Iterable[int]) -> tuple[TransactionAction, int]:
    """Return the most severe action among the codes of several partitions, and its code."""
    worst = (TransactionAction.DONE, int(ErrorCode.NONE))
    for code in codes:
        action = action_for(kind, code)
        # Among equal actions, a code of an attempted partition explains more.
        not_attempted = worst[1] == ErrorCode.OPERATION_NOT_ATTEMPTED
        if (_SEVERITY[action], not_attempted) > (_SEVERITY[worst[0]], False):
            worst = (action, code)
    return worst
