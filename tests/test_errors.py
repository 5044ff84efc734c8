from __future__ import annotations

import copy
import pickle

import pytest

from aiokafkawire import errors


def test_a_call_that_does_not_fit_is_pythons_runtime_error_too():
    error = errors.IllegalState("topics are subscribed to")
    assert isinstance(error, RuntimeError)
    assert not isinstance(error, ValueError)
    assert not error.retriable


def test_the_context_stands_behind_the_reason():
    error = errors.ConnectionLost(
        "closed by the broker", broker="1", api="Fetch", topic="t", partition=0, attempt=2
    )
    assert (
        str(error) == "closed by the broker (broker 1, api Fetch, topic t, partition 0, attempt 2)"
    )
    assert error.retriable
    assert error.sent


def test_only_a_record_that_no_broker_has_is_sent_again_without_harm():
    assert errors.DeliveryTimedOut("x").retriable
    assert not errors.DeliveryUnknown("x").retriable


def test_retriable_can_be_told_for_one_error():
    assert not errors.KafkaError("x").retriable
    assert errors.KafkaError("x", retriable=True).retriable
    assert not errors.KafkaError.retriable


EXAMPLES = [
    errors.KafkaError("x", topic="t"),
    errors.ConnectionLost("x", sent=False, broker="b"),
    errors.RequestTimedOut("x", sent=False, api="Fetch"),
    errors.MalformedMessage("x", message="M", version=1, field="a.b", position=7),
    errors.BrokerError(code=3, name="UNKNOWN_TOPIC_OR_PARTITION", retriable=True, api="Fetch"),
    errors.RecordTooLarge("x", size_bytes=7),
    errors.DeliveriesFailed("x", count=2, first=None),
    errors.NoOffset("x", partitions=[("t", 0)]),
    errors.ProducerFenced("x", transactional_id="id", api="EndTxn"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_copies_and_processes(error: errors.KafkaError):
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error)
        assert twin.__dict__ == error.__dict__
        assert str(twin) == str(error)


def test_a_malformed_message_says_where():
    error = errors.MalformedMessage("too short", message="M", version=1, field="a.b", position=7)
    assert str(error) == "too short at M v1, field a.b, byte 7"


def test_every_error_is_public_and_of_one_tree():
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.KafkaError)
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.KafkaError)
    }
    assert defined == set(errors.__all__)


def test_a_log_that_was_cut_says_where():
    error = errors.LogTruncated("cut", topic="t", offset=9, diverging_offset=4, leader_epoch=2)
    assert (error.offset, error.diverging_offset, error.leader_epoch) == (9, 4, 2)
    assert errors.LogTruncated("cut").diverging_offset is None


def test_damage_says_where_it_ends():
    error = pickle.loads(pickle.dumps(errors.CorruptRecords("bad", offset=3, next_offset=7)))
    assert (error.offset, error.next_offset) == (3, 7)
