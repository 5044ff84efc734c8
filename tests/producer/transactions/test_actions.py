"""Every error code of every transactional API has an action."""

from __future__ import annotations

import pytest

from aiokafkawire.producer.transactions.actions import (
    DEFAULT_ACTIONS,
    TRANSACTION_ACTIONS,
    RequestKind,
    TransactionAction,
    action_for,
    most_severe,
)
from aiokafkawire.wire.error_codes import ErrorCode

FENCING = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
ELSEWHERE = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize("kind", RequestKind)
def test_every_request_has_actions_and_a_default(kind: RequestKind):
    assert kind in TRANSACTION_ACTIONS
    assert kind in DEFAULT_ACTIONS


@pytest.mark.parametrize("kind", RequestKind)
def test_every_code_of_every_request_has_an_action(kind: RequestKind):
    for code in ErrorCode:
        action = action_for(kind, code)
        assert (action is TransactionAction.DONE) == (code == ErrorCode.NONE), code
        assert (action is TransactionAction.FENCED) == (code in FENCING), code
        if code in ELSEWHERE:
            assert action is TransactionAction.FIND_COORDINATOR, code
        elif code.retriable:
            assert action in {TransactionAction.RETRY, TransactionAction.FIND_COORDINATOR}, code
        elif code not in TRANSACTION_ACTIONS[kind]:
            assert action is DEFAULT_ACTIONS[kind], code


@pytest.mark.parametrize("kind", RequestKind)
def test_an_unknown_code_has_the_default_action(kind: RequestKind):
    assert action_for(kind, 9_999) is DEFAULT_ACTIONS[kind]


@pytest.mark.parametrize(
    ("kind", "code", "action"),
    [
        (RequestKind.INIT_PRODUCER_ID, ErrorCode.CONCURRENT_TRANSACTIONS, TransactionAction.RETRY),
        (
            RequestKind.INIT_PRODUCER_ID,
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            TransactionAction.FATAL,
        ),
        (
            RequestKind.INIT_PRODUCER_ID,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            TransactionAction.FATAL,
        ),
        (
            RequestKind.INIT_PRODUCER_ID,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            TransactionAction.FATAL,
        ),
        (
            RequestKind.ADD_PARTITIONS_TO_TXN,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            TransactionAction.ABORT,
        ),
        (
            RequestKind.ADD_PARTITIONS_TO_TXN,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            TransactionAction.RETRY,
        ),
        (RequestKind.ADD_PARTITIONS_TO_TXN, ErrorCode.INVALID_TXN_STATE, TransactionAction.FATAL),
        (
            RequestKind.ADD_PARTITIONS_TO_TXN,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            TransactionAction.ABORT_AND_BUMP,
        ),
        (
            RequestKind.ADD_PARTITIONS_TO_TXN,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            TransactionAction.BUMP_ONLY,
        ),
        (
            RequestKind.ADD_PARTITIONS_TO_TXN,
            ErrorCode.TRANSACTION_ABORTABLE,
            TransactionAction.ABORT,
        ),
        (
            RequestKind.ADD_OFFSETS_TO_TXN,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            TransactionAction.ABORT,
        ),
        (
            RequestKind.ADD_OFFSETS_TO_TXN,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            TransactionAction.FATAL,
        ),
        (RequestKind.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, TransactionAction.ABORT),
        (RequestKind.TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID, TransactionAction.ABORT),
        (RequestKind.TXN_OFFSET_COMMIT, ErrorCode.FENCED_INSTANCE_ID, TransactionAction.ABORT),
        (
            RequestKind.TXN_OFFSET_COMMIT,
            ErrorCode.REQUEST_TIMED_OUT,
            TransactionAction.FIND_COORDINATOR,
        ),
        (
            RequestKind.TXN_OFFSET_COMMIT,
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            TransactionAction.FATAL,
        ),
        (RequestKind.END_TXN, ErrorCode.CONCURRENT_TRANSACTIONS, TransactionAction.RETRY),
        (RequestKind.END_TXN, ErrorCode.UNKNOWN_SERVER_ERROR, TransactionAction.RETRY),
        (RequestKind.END_TXN, ErrorCode.INVALID_TXN_STATE, TransactionAction.ABORT),
        (RequestKind.END_TXN, ErrorCode.INVALID_REQUEST, TransactionAction.FATAL),
    ],
)
def test_codes_with_an_action_of_their_own(
    kind: RequestKind, code: ErrorCode, action: TransactionAction
):
    assert action_for(kind, code) is action


def test_the_most_severe_action_of_several_partitions_counts():
    kind = RequestKind.ADD_PARTITIONS_TO_TXN
    denied, hollow = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED
    fenced, unknown = ErrorCode.PRODUCER_FENCED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert most_severe(kind, []) == (TransactionAction.DONE, 0)
    assert most_severe(kind, [0, unknown, 0]) == (TransactionAction.RETRY, unknown)
    assert most_severe(kind, [unknown, denied]) == (TransactionAction.ABORT, denied)
    assert most_severe(kind, [denied, fenced, unknown]) == (TransactionAction.FENCED, fenced)
    # The code of a partition that was not attempted gives no reason.
    assert most_severe(kind, [hollow, denied]) == (TransactionAction.ABORT, denied)
    assert most_severe(kind, [denied, hollow]) == (TransactionAction.ABORT, denied)
    assert most_severe(kind, [hollow]) == (TransactionAction.ABORT, hollow)
