from __future__ import annotations

import pytest

from aiokafkawire.cluster.bootstrap import (
    metadata_request,
    no_broker_available,
    with_previous_reason,
)
from aiokafkawire.errors import ConnectionFailed, RequestTimedOut
from aiokafkawire.wire import decode, encode
from aiokafkawire.wire.messages.metadata import MetadataRequest


def sent(wanted: list[str] | None, version: int, allow_creation: bool = True) -> MetadataRequest:
    request = metadata_request(wanted, allow_creation=allow_creation)
    return decode(MetadataRequest, version, encode(request.build(version), version))


@pytest.mark.parametrize("version", range(14))
def test_requests_for_all_topics_and_for_none_in_every_version(version: int):
    all_topics, nothing = sent(None, version).topics, sent([], version).topics
    # Version 0 has no way to ask for none.
    assert all_topics == ([] if version == 0 else None)
    assert nothing == []


@pytest.mark.parametrize("version", range(14))
def test_topics_are_requested_by_name(version: int):
    topics = sent(["a", "b"], version).topics
    assert topics is not None
    assert [topic.name for topic in topics] == ["a", "b"]


def test_from_v4_a_topic_is_requested_without_creation():
    assert not sent(["a"], 4, allow_creation=False).allow_auto_topic_creation
    assert sent(["a"], 4).allow_auto_topic_creation


@pytest.mark.parametrize("version", range(4))
def test_below_v4_all_topics_are_requested_to_avoid_creation(version: int):
    assert sent(["a"], version, allow_creation=False).topics == sent(None, version).topics
    assert sent([], version, allow_creation=False).topics == []


def test_one_error_contains_all_failures():
    error = no_broker_available(
        [
            ConnectionFailed("refused", broker="a:1", retriable=False),
            RequestTimedOut("silent", broker="b:2"),
        ]
    )
    assert "a:1: refused; b:2: silent" in str(error)
    assert error.reasons == ("a:1: refused", "b:2: silent")
    assert error.retriable


def test_an_address_is_not_repeated():
    for reason in ("a:5: refused", "a:5 (1.2.3.4): refused"):
        error = no_broker_available([ConnectionFailed(reason, broker="a:5")])
        assert str(error) == f"no broker of bootstrap_servers could be used: {reason}"


def test_only_final_failures_make_a_final_error():
    assert not no_broker_available(
        [ConnectionFailed("HTTP", broker="a:1", retriable=False)]
    ).retriable


def test_a_timeout_keeps_the_reason_of_the_failure_before_it():
    refused = ConnectionFailed("refused")
    late = with_previous_reason(RequestTimedOut("too late", sent=False), refused)
    assert isinstance(late, RequestTimedOut)
    assert not late.sent
    assert str(late) == "too late; the attempt before: refused"
    assert with_previous_reason(refused, late) is refused
    known = RequestTimedOut("too late; the last attempt: refused")
    assert str(with_previous_reason(known, refused)) == "too late; the last attempt: refused"


def test_reasons_do_not_accumulate():
    first = RequestTimedOut("too late")
    for _ in range(3):
        first = with_previous_reason(RequestTimedOut("again"), first)
    assert str(first) == "again"
    assert str(with_previous_reason(first, None)) == "again"
