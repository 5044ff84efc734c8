"""The action for every error code."""

from __future__ import annotations

import pytest

from aiokafkawire.producer.batch_actions import BATCH_ACTIONS, BatchAction, action_for
from aiokafkawire.wire.error_codes import ErrorCode

# The codes that a broker returns for Produce.
PRODUCE = {
    ErrorCode.NONE: BatchAction.APPENDED,
    ErrorCode.CORRUPT_MESSAGE: BatchAction.RETRY,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: BatchAction.RETRY,
    ErrorCode.LEADER_NOT_AVAILABLE: BatchAction.RETRY,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: BatchAction.RETRY_UNCERTAIN,
    ErrorCode.REQUEST_TIMED_OUT: BatchAction.RETRY_UNCERTAIN,
    ErrorCode.MESSAGE_TOO_LARGE: BatchAction.SPLIT,
    ErrorCode.RECORD_LIST_TOO_LARGE: BatchAction.SPLIT,
    ErrorCode.NOT_ENOUGH_REPLICAS: BatchAction.RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: BatchAction.RETRY_UNCERTAIN,
    ErrorCode.INVALID_TOPIC_EXCEPTION: BatchAction.FAIL,
    ErrorCode.INVALID_REQUIRED_ACKS: BatchAction.FAIL,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: BatchAction.FAIL,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: BatchAction.FATAL,
    ErrorCode.INVALID_TIMESTAMP: BatchAction.FAIL,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: BatchAction.OLD_MESSAGE_FORMAT,
    ErrorCode.POLICY_VIOLATION: BatchAction.FAIL,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: BatchAction.OUT_OF_ORDER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: BatchAction.APPENDED,
    ErrorCode.INVALID_PRODUCER_EPOCH: BatchAction.STALE_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID: BatchAction.OUT_OF_ORDER,
    ErrorCode.KAFKA_STORAGE_ERROR: BatchAction.RETRY_UNCERTAIN,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: BatchAction.FAIL,
    ErrorCode.INVALID_RECORD: BatchAction.FAIL,
    ErrorCode.PRODUCER_FENCED: BatchAction.FATAL,
    ErrorCode.UNKNOWN_TOPIC_ID: BatchAction.RETRY,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: BatchAction.RETRY,
    ErrorCode.UNKNOWN_SERVER_ERROR: BatchAction.FAIL_UNKNOWN,
}


@pytest.mark.parametrize("code", PRODUCE)
def test_action_for_each_code_of_produce(code: ErrorCode):
    assert action_for(code) is PRODUCE[code]


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in BATCH_ACTIONS])
def test_other_codes_are_retried_if_retriable(code: ErrorCode):
    assert action_for(code) is (BatchAction.RETRY if code.retriable else BatchAction.FAIL)


@pytest.mark.parametrize("code", [-2, 999, 32767])
def test_an_unknown_code_leaves_the_outcome_unknown(code: int):
    assert action_for(code) is BatchAction.FAIL_UNKNOWN
