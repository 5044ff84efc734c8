from __future__ import annotations

from types import MappingProxyType
from typing import Any
from uuid import UUID

from aiokafkawire.cluster.metadata import MetadataSnapshot, TopicMetadata
from aiokafkawire.consumer.watch import OUTAGE_S, Outage, TopicWatch
from aiokafkawire.errors import BrokerError, ConnectionFailed, RequestTimedOut, UnknownTopic
from aiokafkawire.wire import ErrorCode, error_for

GONE = RequestTimedOut("silent")


def test_an_outage_is_told_once() -> None:
    outage = Outage()
    assert outage.heard(GONE, 10.0) is None
    assert outage.heard(GONE, 10.0 + OUTAGE_S - 1) is None
    assert "silent" in (outage.heard(GONE, 10.0 + OUTAGE_S) or "")
    assert outage.heard(GONE, 20.0 + OUTAGE_S) is None


def test_a_connection_that_fails_is_left_to_the_log_of_the_cluster_client() -> None:
    for failure in (ConnectionFailed("refused"), RequestTimedOut("no connection", sent=False)):
        outage = Outage()
        assert outage.heard(failure, 0.0) is None
        assert outage.heard(failure, 2 * OUTAGE_S) is None
        assert "silent" in (outage.heard(GONE, 3 * OUTAGE_S) or "")


def test_an_answer_ends_an_outage() -> None:
    outage = Outage()
    for answer in (None, error_for(ErrorCode.NOT_COORDINATOR)):
        outage.heard(GONE, 0.0)
        outage.heard(GONE, OUTAGE_S)
        outage.heard(answer, OUTAGE_S + 1)
        assert outage.heard(GONE, 2 * OUTAGE_S) is None
        assert outage.heard(GONE, 3 * OUTAGE_S) is not None
        outage.heard(None, 0.0)


def metadata(**errors: int) -> Any:
    return MetadataSnapshot(errors=MappingProxyType(errors))


def test_an_unknown_topic_has_its_time() -> None:
    watch = TopicWatch(60.0)
    unknown = metadata(orders=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert watch.check(unknown, ["orders"], 0.0) is None
    assert watch.check(unknown, ["orders"], 59.0) is None
    assert watch.check(metadata(), ["orders"], 59.5) is None  # it was there for a moment
    assert watch.check(unknown, ["orders"], 60.0) is None
    error = watch.check(unknown, ["orders"], 120.0)
    assert isinstance(error, UnknownTopic)
    assert "does not exist, and did not appear within 60 s" in str(error)
    assert error.topic == "orders"


def test_what_time_does_not_mend_is_told_at_once() -> None:
    watch = TopicWatch(60.0)
    for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION):
        error = watch.check(metadata(orders=int(code)), ["payments", "orders"], 0.0)
        assert isinstance(error, BrokerError)
        assert error.topic == "orders"
    passing = metadata(orders=int(ErrorCode.LEADER_NOT_AVAILABLE))
    assert watch.check(passing, ["orders"], 1_000.0) is None
    assert watch.check(metadata(other=29), ["orders"], 0.0) is None


def test_an_absent_topic_is_kept_for_a_while_and_known_again_by_its_id() -> None:
    def told(**ids: int) -> MetadataSnapshot:
        topics = {name: TopicMetadata(name, UUID(int=id), {}) for name, id in ids.items()}
        return MetadataSnapshot(topics=MappingProxyType(topics))

    watch = TopicWatch(5.0)
    assert watch.absence(told(a=1, b=2), ("a", "b"), (), 0.0) == ((), ())
    assert watch.absence(told(b=2), ("b",), ("a", "b"), 1.0) == (("a",), ())
    assert watch.absence(told(a=1, b=2), ("a", "b"), ("a", "b"), 2.0) == ((), ())
    assert watch.absence(told(b=2), ("b",), ("a", "b"), 9.0) == (("a",), ())
    assert watch.absence(told(a=3, b=2), ("a", "b"), ("a", "b"), 13.9) == ((), ("a",))
    assert watch.absence(told(a=3), ("a",), ("a", "b"), 20.0) == (("b",), ())
    assert watch.absence(told(a=3), ("a",), ("a", "b"), 25.0) == ((), ())
    assert watch.absence(told(a=3, b=4), ("a", "b"), ("a",), 26.0) == ((), ())
