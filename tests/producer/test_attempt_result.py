"""Results from responses and from failed requests."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafkawire.connection import LARGE_REQUEST_BYTES
from aiokafkawire.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BrokerError,
    ConnectionFailed,
    ConnectionLost,
    KafkaError,
    MalformedFrame,
    ProducerFenced,
    RecordTooLarge,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.producer.attempt_result import (
    AttemptResult,
    result_from_code,
    result_from_failure,
)
from aiokafkawire.producer.batch_actions import BatchAction
from aiokafkawire.wire.error_codes import ErrorCode
from aiokafkawire.wire.messages.produce import BatchIndexAndErrorMessage


def result(code: int, **more: Any) -> AttemptResult:
    return result_from_code(code, topic="t", partition=3, broker="1 at b:9092", attempt=2, **more)


def test_success_has_the_offset_and_the_brokers_time():
    got = result(0, base_offset=42, log_append_time_ms=7)
    assert got == AttemptResult(BatchAction.APPENDED, None, 42, 7)


def test_a_duplicate_has_no_offset():
    assert result(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=42).base_offset == -1


def test_an_error_has_its_context():
    got = result(ErrorCode.NOT_ENOUGH_REPLICAS)
    error = got.error
    assert isinstance(error, BrokerError)
    assert (error.topic, error.partition, error.broker) == ("t", 3, "1 at b:9092")
    assert (error.api, error.attempt) == ("Produce", 2)


def test_the_error_message_of_the_broker_is_kept():
    got = result(ErrorCode.POLICY_VIOLATION, message="no such luck")
    assert "no such luck" in str(got.error)
    assert "no such luck" in str(got.error.args[0])


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, RecordTooLarge),
        (ErrorCode.PRODUCER_FENCED, ProducerFenced),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed),
    ],
)
def test_error_classes_by_code(code: int, kind: type[KafkaError]):
    assert type(result(code).error) is kind


def test_only_a_moved_leader_makes_the_metadata_stale():
    assert result(ErrorCode.NOT_LEADER_OR_FOLLOWER).stale_metadata
    assert not result(ErrorCode.NOT_ENOUGH_REPLICAS).stale_metadata
    assert not result(9999).stale_metadata


def test_single_records_have_errors():
    bad = BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")
    got = result(ErrorCode.INVALID_RECORD, record_errors=[bad])
    assert list(got.record_errors) == [1]
    assert "no key" in str(got.record_errors[1])
    assert "no key" not in str(got.error)
    assert "another record" in str(got.error)


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (ConnectionFailed("x"), BatchAction.RETRY),
        (ConnectionLost("x", sent=False), BatchAction.RETRY),
        (ConnectionLost("x", sent=True), BatchAction.RETRY_UNCERTAIN),
        (RequestTimedOut("x", sent=False), BatchAction.RETRY),
        (RequestTimedOut("x", sent=True), BatchAction.RETRY_UNCERTAIN),
        (MalformedFrame("x"), BatchAction.RETRY_UNCERTAIN),
        (KafkaError("x", retriable=True), BatchAction.RETRY),
        (UnsupportedVersion("x"), BatchAction.FAIL),
        (AuthenticationFailed("x"), BatchAction.FAIL),
    ],
)
def test_a_failed_request_is_uncertain_once_bytes_were_sent(error: KafkaError, action: BatchAction):
    got = result_from_failure(error)
    assert got.action is action
    assert got.error is error
    assert got.stale_metadata is (action is not BatchAction.FAIL)


@pytest.mark.parametrize(
    ("error", "size_bytes", "suspect"),
    [
        (ConnectionLost("x", sent=True), LARGE_REQUEST_BYTES, LARGE_REQUEST_BYTES),
        (ConnectionLost("x", sent=True), LARGE_REQUEST_BYTES - 1, 0),
        (ConnectionLost("x", sent=False), LARGE_REQUEST_BYTES, 0),
        (RequestTimedOut("x", sent=True), LARGE_REQUEST_BYTES, 0),
    ],
)
def test_only_a_disconnect_after_a_large_request_is_suspected(
    error: KafkaError, size_bytes: int, suspect: int
):
    assert result_from_failure(error, size_bytes).closed_after_bytes == suspect
