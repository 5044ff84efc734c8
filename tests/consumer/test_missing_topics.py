from __future__ import annotations

import math
import random
from types import MappingProxyType
from typing import Any
from uuid import UUID

from aiokafkawire.cluster.metadata import MetadataSnapshot, TopicMetadata
from aiokafkawire.consumer.missing_topics import (
    MissingPartitions,
    MissingTopics,
)
from aiokafkawire.errors import BrokerError, UnknownTopic
from aiokafkawire.wire import ErrorCode

from .record_data import P0, P1


def metadata(**errors: int) -> Any:
    return MetadataSnapshot(errors=MappingProxyType(errors))


def test_an_unknown_topic_has_its_time() -> None:
    watch = MissingTopics(60.0)
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
    watch = MissingTopics(60.0)
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

    watch = MissingTopics(5.0)
    assert watch.check_missing(told(a=1, b=2), ("a", "b"), (), 0.0) == ((), ())
    assert watch.check_missing(told(b=2), ("b",), ("a", "b"), 1.0) == (("a",), ())
    assert watch.check_missing(told(a=1, b=2), ("a", "b"), ("a", "b"), 2.0) == ((), ())
    assert watch.check_missing(told(b=2), ("b",), ("a", "b"), 9.0) == (("a",), ())
    assert watch.check_missing(told(a=3, b=2), ("a", "b"), ("a", "b"), 13.9) == ((), ("a",))
    assert watch.check_missing(told(a=3), ("a",), ("a", "b"), 20.0) == (("b",), ())
    assert watch.check_missing(told(a=3), ("a",), ("a", "b"), 25.0) == ((), ())
    assert watch.check_missing(told(a=3, b=4), ("a", "b"), ("a",), 26.0) == ((), ())


def test_a_missing_partition_is_overdue_after_its_time_and_again_after_that() -> None:
    missing = MissingPartitions(10.0)
    assert missing.next_at == math.inf
    assert missing.overdue([P0], 0.0) == []
    assert missing.overdue([P0, P1], 4.0) == []
    assert missing.next_at == 10.0
    assert missing.overdue([P0, P1], 10.0) == [P0]
    assert missing.overdue([P0, P1], 14.0) == [P1]
    assert missing.overdue([P0], 19.0) == []
    assert missing.overdue([P0], 20.0) == [P0]
    assert missing.overdue([], 21.0) == []
    assert missing.overdue([P0], 30.0) == []  # it was there meanwhile


def test_a_missing_partition_is_overdue_when_it_was_told_to_be() -> None:
    """Not a hair later: whoever sleeps until then would look again and again."""
    rng = random.Random(1)
    for _ in range(1_000):
        missing = MissingPartitions(rng.choice((0.3, 2.0, 20.0, 60.0)))
        assert missing.overdue([P0], rng.uniform(0, 100)) == []
        at = missing.next_at
        assert missing.overdue([P0], at) == [P0]
        assert missing.next_at > at
