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


def observed() -> dict[tuple[str, str], str]:
    """Return the action for each request and error code, if it is not the default."""
    actions = {(kind, code): action_for(kind, code) for kind in RequestKind for code in ErrorCode}
    return {
        (kind.name, code.name): action.name
        for (kind, code), action in actions.items()
        if action is not DEFAULT_ACTIONS[kind]
    }


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
