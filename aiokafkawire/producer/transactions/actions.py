"""What an error code in an answer to each transactional request means for the transaction.

Protocol source: KIP-98, KIP-360 (raising the epoch), KIP-447 (group metadata), KIP-588, KIP-890.
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
    """The requests that a transaction is made of, each under its API's name."""

    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS_TO_TXN = "AddPartitionsToTxn"
    ADD_OFFSETS_TO_TXN = "AddOffsetsToTxn"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"
    END_TXN = "EndTxn"


class TransactionAction(enum.Enum):
    """What to do after an answer; of several partitions' outcomes the last in this list counts."""

    DONE = "go on"
    RETRY = "the same request again, later"
    FIND_COORDINATOR = "the same request again, after the coordinator was looked up anew"
    ABORT = "the transaction can only be aborted (`TransactionFailed`)"
    ABORT_AND_BUMP = "only an abort, and a new epoch: the coordinator lost what it knew"
    BUMP_ONLY = "only a new epoch: the coordinator forgot the producer id, and has nothing to end"
    FATAL = "this producer cannot go on"
    FENCED = "this producer is fenced (`ProducerFenced`)"

    # By identity, not by name as Enum has it: looked up in tables for each answer.
    __hash__ = object.__hash__


_SEVERITY = {action: number for number, action in enumerate(TransactionAction)}

_COORDINATOR: Mapping[ErrorCode, TransactionAction] = {
    ErrorCode.NONE: TransactionAction.DONE,
    ErrorCode.NOT_COORDINATOR: TransactionAction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: TransactionAction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: TransactionAction.RETRY,
    ErrorCode.CONCURRENT_TRANSACTIONS: TransactionAction.RETRY,
    # Coordinators before Kafka 2.7 say the first where later ones say the second.
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
        # Another partition of the same request was refused, and none was added.
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
        # The consumer is not in that generation of its group any more.
        ErrorCode.UNKNOWN_MEMBER_ID: TransactionAction.ABORT,
        ErrorCode.ILLEGAL_GENERATION: TransactionAction.ABORT,
        ErrorCode.STALE_MEMBER_EPOCH: TransactionAction.ABORT,
        ErrorCode.REBALANCE_IN_PROGRESS: TransactionAction.ABORT,
        ErrorCode.FENCED_INSTANCE_ID: TransactionAction.ABORT,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: TransactionAction.FATAL,
    },
    RequestKind.END_TXN: {
        **_IN_TRANSACTION,
        # The coordinator has aborted it: with KIP-890 it says so after the timeout.
        ErrorCode.INVALID_TXN_STATE: TransactionAction.ABORT,
        # Whether the coordinator has written the end is open, and asking again tells.
        ErrorCode.UNKNOWN_SERVER_ERROR: TransactionAction.RETRY,
    },
}
"""The codes that need a word. Of the others, retriable ones are retried; see `DEFAULT_ACTIONS`."""

DEFAULT_ACTIONS: Mapping[RequestKind, TransactionAction] = {
    RequestKind.INIT_PRODUCER_ID: TransactionAction.FATAL,
    RequestKind.ADD_PARTITIONS_TO_TXN: TransactionAction.ABORT,
    RequestKind.ADD_OFFSETS_TO_TXN: TransactionAction.ABORT,
    RequestKind.TXN_OFFSET_COMMIT: TransactionAction.ABORT,
    RequestKind.END_TXN: TransactionAction.FATAL,
}
"""The outcome of a code that is neither listed nor retriable. What can be aborted is."""


def action_for(kind: RequestKind, code: int) -> TransactionAction:
    """The outcome of an error code as it stands in an answer."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return DEFAULT_ACTIONS[kind]
    action = TRANSACTION_ACTIONS[kind].get(known)
    if action is None:
        return TransactionAction.RETRY if known.retriable else DEFAULT_ACTIONS[kind]
    return action


def most_severe(kind: RequestKind, codes: Iterable[int]) -> tuple[TransactionAction, int]:
    """The outcome that decides among those of several partitions, and its code."""
    found = (TransactionAction.DONE, int(ErrorCode.NONE))
    for code in codes:
        action = action_for(kind, code)
        # Of equals, a partition that was not even attempted says less than the others.
        hollow = found[1] == ErrorCode.OPERATION_NOT_ATTEMPTED
        if (_SEVERITY[action], hollow) > (_SEVERITY[found[0]], False):
            found = (action, code)
    return found
