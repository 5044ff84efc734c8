"""The verdict on every error code."""

from __future__ import annotations

import pytest

from aiokafkawire.producer.outcomes import VERDICTS, Verdict, verdict_of
from aiokafkawire.wire.error_codes import ErrorCode

# The codes that a broker answers to Produce.
PRODUCE = {
    ErrorCode.NONE: Verdict.APPENDED,
    ErrorCode.CORRUPT_MESSAGE: Verdict.RETRY,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Verdict.RETRY,
    ErrorCode.LEADER_NOT_AVAILABLE: Verdict.RETRY,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Verdict.RETRY_UNCERTAIN,
    ErrorCode.REQUEST_TIMED_OUT: Verdict.RETRY_UNCERTAIN,
    ErrorCode.MESSAGE_TOO_LARGE: Verdict.SPLIT,
    ErrorCode.RECORD_LIST_TOO_LARGE: Verdict.SPLIT,
    ErrorCode.NOT_ENOUGH_REPLICAS: Verdict.RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Verdict.RETRY_UNCERTAIN,
    ErrorCode.INVALID_TOPIC_EXCEPTION: Verdict.FAIL,
    ErrorCode.INVALID_REQUIRED_ACKS: Verdict.FAIL,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Verdict.FAIL,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Verdict.FATAL,
    ErrorCode.INVALID_TIMESTAMP: Verdict.FAIL,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict.OLD_FORMAT,
    ErrorCode.POLICY_VIOLATION: Verdict.FAIL,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict.GAP,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Verdict.APPENDED,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.STALE_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.GAP,
    ErrorCode.KAFKA_STORAGE_ERROR: Verdict.RETRY_UNCERTAIN,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: Verdict.FAIL,
    ErrorCode.INVALID_RECORD: Verdict.FAIL,
    ErrorCode.PRODUCER_FENCED: Verdict.FATAL,
    ErrorCode.UNKNOWN_TOPIC_ID: Verdict.RETRY,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Verdict.RETRY,
    ErrorCode.UNKNOWN_SERVER_ERROR: Verdict.UNKNOWN,
}


@pytest.mark.parametrize("code", PRODUCE)
def test_codes_of_produce(code: ErrorCode):
    assert verdict_of(code) is PRODUCE[code]


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in VERDICTS])
def test_other_codes_are_retried_if_that_can_help(code: ErrorCode):
    assert verdict_of(code) is (Verdict.RETRY if code.retriable else Verdict.FAIL)


@pytest.mark.parametrize("code", [-2, 999, 32767])
def test_a_code_from_the_future_leaves_the_outcome_open(code: int):
    assert verdict_of(code) is Verdict.UNKNOWN
