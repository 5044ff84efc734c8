from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from aiokafkawire import Consumer, Producer, errors
from aiokafkawire.broker import Broker


def test_illegal_state_is_a_runtime_error():
    error = errors.IllegalState("topics are subscribed to")
    assert isinstance(error, RuntimeError)
    assert not isinstance(error, ValueError)
    assert not error.retriable


def test_the_context_follows_the_reason():
    error = errors.ConnectionLost(
        "closed by the broker", broker="1", api="Fetch", topic="t", partition=0, attempt=2
    )
    assert (
        str(error) == "closed by the broker (broker 1, api Fetch, topic t, partition 0, attempt 2)"
    )
    assert error.retriable
    assert error.sent


CONTEXT: dict[str, Any] = {
    "broker": "17",
    "api": "Fetch",
    "transactional_id": "billing-1",
    "group": "readers",
    "topic": "orders",
    "partition": 23,
    "offset": 41,
    "attempt": 5,
}


def made(name: str, reason: str, **context: Any) -> errors.KafkaError:
    """An error of the class with that name."""
    error_class = getattr(errors, name)
    if issubclass(error_class, errors.BrokerError):
        context |= {"code": 3, "name": "UNKNOWN_TOPIC_OR_PARTITION"}
        if error_class is errors.AuthorizationFailed:
            context |= {"resource_type": "topic"}
    elif error_class is errors.PartialFailure:
        context |= {"succeeded": {}, "failed": {}}
    elif error_class is errors.DeliveriesFailed:
        context = {"count": 1, "first": None}
    error = error_class(reason, **context)
    assert isinstance(error, errors.KafkaError)
    return error


@pytest.mark.parametrize("name", errors.__all__)
def test_context_in_the_reason_is_not_repeated(name: str):
    error = made(name, "cause (topic orders, partition 23); repeated", **CONTEXT)
    text = str(error)
    for value in ("orders", "23"):
        assert text.count(value) == 1
    if error.topic is not None:
        rest = "broker 17, api Fetch, transactional_id billing-1, group readers"
        assert text.endswith(f"; repeated ({rest}, offset 41, attempt 5)")
        nested = made(name, f"again: {error}", **CONTEXT)
        assert str(nested) == f"again: {text}"


@pytest.mark.parametrize(
    ("reason", "context", "text"),
    [
        ("topic 'x' is new", {"topic": "x"}, "topic 'x' is new"),
        ("no such topic: 'x'", {"topic": "x"}, "no such topic: 'x'"),
        ("a topic x.", {"topic": "x"}, "a topic x."),
        ("it has no Fetch", {"api": "Fetch"}, "it has no Fetch"),
        ("h:1 refused", {"broker": "h:1"}, "h:1 refused"),
        ("partition 3 is full", {"partition": 3}, "partition 3 is full"),
        # Another word or number that only begins or ends like it names nothing.
        ("topic x.y", {"topic": "x"}, "topic x.y (topic x)"),
        ("topic x-1", {"topic": "x"}, "topic x-1 (topic x)"),
        ("x is not a name", {"topic": "x"}, "x is not a name (topic x)"),
        ("at 1 o'clock", {"broker": "1"}, "at 1 o'clock (broker 1)"),
        ("partition 30", {"partition": 3}, "partition 30 (partition 3)"),
        ("it has no FetchSnapshot", {"api": "Fetch"}, "it has no FetchSnapshot (api Fetch)"),
        ("h:10 refused", {"broker": "h:1"}, "h:10 refused (broker h:1)"),
        # A partition without its topic may be one of another topic.
        (
            "partition 3 is full",
            {"topic": "x", "partition": 3},
            "partition 3 is full (topic x, partition 3)",
        ),
        ("it's x (", {"topic": "(("}, "it's x ( (topic (()"),
    ],
)
def test_forms_of_context_in_the_reason(reason: str, context: dict[str, Any], text: str):
    assert str(errors.KafkaError(reason, **context)) == text


async def test_client_errors_contain_each_context_once():
    async with Broker(auto_create_topics=False) as broker:
        await broker.create_topic("orders-of-today", partitions=2)
        options: Any = {
            "bootstrap_servers": broker.bootstrap_servers,
            "default_api_timeout_ms": 300,
            "max_block_ms": 300,
            "allow_auto_create_topics": False,
        }
        seen: list[errors.KafkaError] = []
        async with Producer(**options) as producer:
            for topic, partition in (("unheard-of", None), ("orders-of-today", 77)):
                with pytest.raises(errors.KafkaError) as caught:
                    await producer.send_and_wait(topic, b"x", partition=partition)
                seen.append(caught.value)
        del options["max_block_ms"]
        async with Consumer("unheard-of", **options) as consumer:
            with pytest.raises(errors.KafkaError) as caught:
                await consumer.getmany(timeout_ms=2_000)
            seen.append(caught.value)
    assert [error.topic for error in seen] == ["unheard-of", "orders-of-today", "unheard-of"]
    for error in seen:
        assert str(error).count(str(error.topic)) == 1, str(error)
        if error.partition is not None:
            assert str(error).count(str(error.partition)) == 1, str(error)


def test_only_errors_without_a_stored_record_are_retriable():
    assert errors.DeliveryTimedOut("x").retriable
    assert not errors.DeliveryUnknown("x").retriable


def test_retriable_can_be_set_for_one_error():
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
    errors.PartialFailure("x", succeeded={"a": 1}, failed={}),
    errors.NoOffsetForPartition("x", partitions=[("t", 0)]),
    errors.ProducerFenced("x", transactional_id="id", api="EndTxn"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_can_be_copied_and_pickled(error: errors.KafkaError):
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error)
        assert twin.__dict__ == error.__dict__
        assert str(twin) == str(error)


def test_a_malformed_message_contains_the_position():
    error = errors.MalformedMessage("too short", message="M", version=1, field="a.b", position=7)
    assert str(error) == "too short at M v1, field a.b, byte 7"


def test_every_error_is_public_and_a_kafka_error():
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.KafkaError)
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.KafkaError)
    }
    assert defined == set(errors.__all__)


def test_log_truncated_contains_the_offsets():
    error = errors.LogTruncated("cut", topic="t", offset=9, diverging_offset=4, leader_epoch=2)
    assert (error.offset, error.diverging_offset, error.leader_epoch) == (9, 4, 2)
    assert errors.LogTruncated("cut").diverging_offset is None


def test_corrupt_record_contains_the_next_offset():
    error = pickle.loads(pickle.dumps(errors.CorruptRecord("bad", offset=3, next_offset=7)))
    assert (error.offset, error.next_offset) == (3, 7)
