"""What an error code in an answer to each transactional request means for the transaction.

Protocol source: KIP-98, KIP-360 (raising the epoch), KIP-447 (group metadata), KIP-588, KIP-890.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from aiokafkawire.wire.error_codes import ErrorCode

__all__ = ("OTHERWISE", "OUTCOMES", "Outcome", "RequestKind", "outcome_of", "worst")


class RequestKind(enum.Enum):
    """The requests that a transaction is made of, each under its API's name."""

    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"


class Outcome(enum.Enum):
    """What to do after an answer; of several partitions' outcomes the last in this list counts."""

    DONE = "go on"
    RETRY = "the same request again, later"
    FIND = "the same request again, after the coordinator was looked up anew"
    ABORT = "the transaction can only be aborted (`TransactionFailed`)"
    BUMP = "only an abort, and a new epoch: the coordinator lost what it knew"
    FORGOTTEN = "only a new epoch: the coordinator forgot the producer id, and has nothing to end"
    FATAL = "this producer cannot go on"
    FENCED = "this producer is fenced (`ProducerFenced`)"

    # By identity, not by name as Enum has it: looked up in tables for each answer.
    __hash__ = object.__hash__


_SEVERITY = {outcome: number for number, outcome in enumerate(Outcome)}

_COORDINATOR: Mapping[ErrorCode, Outcome] = {
    ErrorCode.NONE: Outcome.DONE,
    ErrorCode.NOT_COORDINATOR: Outcome.FIND,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Outcome.FIND,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Outcome.RETRY,
    ErrorCode.CONCURRENT_TRANSACTIONS: Outcome.RETRY,
    # Coordinators before Kafka 2.7 say the first where later ones say the second.
    ErrorCode.INVALID_PRODUCER_EPOCH: Outcome.FENCED,
    ErrorCode.PRODUCER_FENCED: Outcome.FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Outcome.FATAL,
}

_IN_TRANSACTION: Mapping[ErrorCode, Outcome] = {
    **_COORDINATOR,
    ErrorCode.INVALID_TXN_STATE: Outcome.FATAL,
    ErrorCode.UNKNOWN_PRODUCER_ID: Outcome.BUMP,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Outcome.FORGOTTEN,
    ErrorCode.TRANSACTION_ABORTABLE: Outcome.ABORT,
}

OUTCOMES: Mapping[RequestKind, Mapping[ErrorCode, Outcome]] = {
    RequestKind.INIT: {
        **_COORDINATOR,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Outcome.FATAL,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: Outcome.FATAL,
    },
    RequestKind.ADD_PARTITIONS: {
        **_IN_TRANSACTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Outcome.RETRY,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Outcome.ABORT,
        # Another partition of the same request was refused, and none was added.
        ErrorCode.OPERATION_NOT_ATTEMPTED: Outcome.ABORT,
    },
    RequestKind.ADD_OFFSETS: {
        **_IN_TRANSACTION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Outcome.ABORT,
    },
    RequestKind.COMMIT_OFFSETS: {
        **_IN_TRANSACTION,
        ErrorCode.REQUEST_TIMED_OUT: Outcome.FIND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Outcome.RETRY,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Outcome.ABORT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Outcome.ABORT,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: Outcome.ABORT,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Outcome.ABORT,
        ErrorCode.INVALID_GROUP_ID: Outcome.ABORT,
        # The consumer is not in that generation of its group any more.
        ErrorCode.UNKNOWN_MEMBER_ID: Outcome.ABORT,
        ErrorCode.ILLEGAL_GENERATION: Outcome.ABORT,
        ErrorCode.STALE_MEMBER_EPOCH: Outcome.ABORT,
        ErrorCode.REBALANCE_IN_PROGRESS: Outcome.ABORT,
        ErrorCode.FENCED_INSTANCE_ID: Outcome.ABORT,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Outcome.FATAL,
    },
    RequestKind.END: {
        **_IN_TRANSACTION,
        # The coordinator has aborted it: with KIP-890 it says so after the timeout.
        ErrorCode.INVALID_TXN_STATE: Outcome.ABORT,
        # Whether the coordinator has written the end is open, and asking again tells.
        ErrorCode.UNKNOWN_SERVER_ERROR: Outcome.RETRY,
    },
}
"""The codes that need a word. Of the others, retriable ones are retried; see `OTHERWISE`."""

OTHERWISE: Mapping[RequestKind, Outcome] = {
    RequestKind.INIT: Outcome.FATAL,
    RequestKind.ADD_PARTITIONS: Outcome.ABORT,
    RequestKind.ADD_OFFSETS: Outcome.ABORT,
    RequestKind.COMMIT_OFFSETS: Outcome.ABORT,
    RequestKind.END: Outcome.FATAL,
}
"""The outcome of a code that is neither listed nor retriable. What can be aborted is."""


def outcome_of(kind: RequestKind, code: int) -> Outcome:
    """The outcome of an error code as it stands in an answer."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return OTHERWISE[kind]
    outcome = OUTCOMES[kind].get(known)
    if outcome is None:
        return Outcome.RETRY if known.retriable else OTHERWISE[kind]
    return outcome


def worst(kind: RequestKind, codes: Iterable[int]) -> tuple[Outcome, int]:
    """The outcome that decides among those of several partitions, and its code."""
    found = (Outcome.DONE, int(ErrorCode.NONE))
    for code in codes:
        outcome = outcome_of(kind, code)
        # Of equals, a partition that was not even attempted says less than the others.
        hollow = found[1] == ErrorCode.OPERATION_NOT_ATTEMPTED
        if (_SEVERITY[outcome], hollow) > (_SEVERITY[found[0]], False):
            found = (outcome, code)
    return found
