"""Each error code of each API has its row."""

from __future__ import annotations

import pytest

from aiokafkawire.producer.transactions.outcomes import (
    OTHERWISE,
    OUTCOMES,
    Outcome,
    RequestKind,
    outcome_of,
    worst,
)
from aiokafkawire.wire.error_codes import ErrorCode

FENCING = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
ELSEWHERE = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize("kind", RequestKind)
def test_every_request_has_its_codes_and_what_holds_otherwise(kind: RequestKind):
    assert kind in OUTCOMES
    assert kind in OTHERWISE


@pytest.mark.parametrize("kind", RequestKind)
def test_every_code_of_every_request_has_an_outcome(kind: RequestKind):
    for code in ErrorCode:
        outcome = outcome_of(kind, code)
        assert (outcome is Outcome.DONE) == (code == ErrorCode.NONE), code
        assert (outcome is Outcome.FENCED) == (code in FENCING), code
        if code in ELSEWHERE:
            assert outcome is Outcome.FIND, code
        elif code.retriable:
            assert outcome in {Outcome.RETRY, Outcome.FIND}, code
        elif code not in OUTCOMES[kind]:
            assert outcome is OTHERWISE[kind], code


@pytest.mark.parametrize("kind", RequestKind)
def test_a_code_that_is_not_known_is_treated_as_the_rest(kind: RequestKind):
    assert outcome_of(kind, 9_999) is OTHERWISE[kind]


@pytest.mark.parametrize(
    ("kind", "code", "outcome"),
    [
        (RequestKind.INIT, ErrorCode.CONCURRENT_TRANSACTIONS, Outcome.RETRY),
        (RequestKind.INIT, ErrorCode.INVALID_TRANSACTION_TIMEOUT, Outcome.FATAL),
        (RequestKind.INIT, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Outcome.FATAL),
        (RequestKind.INIT, ErrorCode.INVALID_PRODUCER_ID_MAPPING, Outcome.FATAL),
        (RequestKind.ADD_PARTITIONS, ErrorCode.TOPIC_AUTHORIZATION_FAILED, Outcome.ABORT),
        (RequestKind.ADD_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Outcome.RETRY),
        (RequestKind.ADD_PARTITIONS, ErrorCode.INVALID_TXN_STATE, Outcome.FATAL),
        (RequestKind.ADD_PARTITIONS, ErrorCode.UNKNOWN_PRODUCER_ID, Outcome.BUMP),
        (RequestKind.ADD_PARTITIONS, ErrorCode.INVALID_PRODUCER_ID_MAPPING, Outcome.FORGOTTEN),
        (RequestKind.ADD_PARTITIONS, ErrorCode.TRANSACTION_ABORTABLE, Outcome.ABORT),
        (RequestKind.ADD_OFFSETS, ErrorCode.GROUP_AUTHORIZATION_FAILED, Outcome.ABORT),
        (RequestKind.ADD_OFFSETS, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Outcome.FATAL),
        (RequestKind.COMMIT_OFFSETS, ErrorCode.ILLEGAL_GENERATION, Outcome.ABORT),
        (RequestKind.COMMIT_OFFSETS, ErrorCode.UNKNOWN_MEMBER_ID, Outcome.ABORT),
        (RequestKind.COMMIT_OFFSETS, ErrorCode.FENCED_INSTANCE_ID, Outcome.ABORT),
        (RequestKind.COMMIT_OFFSETS, ErrorCode.REQUEST_TIMED_OUT, Outcome.FIND),
        (RequestKind.COMMIT_OFFSETS, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, Outcome.FATAL),
        (RequestKind.END, ErrorCode.CONCURRENT_TRANSACTIONS, Outcome.RETRY),
        (RequestKind.END, ErrorCode.UNKNOWN_SERVER_ERROR, Outcome.RETRY),
        (RequestKind.END, ErrorCode.INVALID_TXN_STATE, Outcome.ABORT),
        (RequestKind.END, ErrorCode.INVALID_REQUEST, Outcome.FATAL),
    ],
)
def test_the_codes_that_need_a_word(kind: RequestKind, code: ErrorCode, outcome: Outcome):
    assert outcome_of(kind, code) is outcome


def test_of_several_partitions_the_gravest_decides():
    kind = RequestKind.ADD_PARTITIONS
    denied, hollow = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED
    fenced, unknown = ErrorCode.PRODUCER_FENCED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert worst(kind, []) == (Outcome.DONE, 0)
    assert worst(kind, [0, unknown, 0]) == (Outcome.RETRY, unknown)
    assert worst(kind, [unknown, denied]) == (Outcome.ABORT, denied)
    assert worst(kind, [denied, fenced, unknown]) == (Outcome.FENCED, fenced)
    # What was not attempted names no reason.
    assert worst(kind, [hollow, denied]) == (Outcome.ABORT, denied)
    assert worst(kind, [denied, hollow]) == (Outcome.ABORT, denied)
    assert worst(kind, [hollow]) == (Outcome.ABORT, hollow)
