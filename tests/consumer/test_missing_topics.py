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


def test_an_unknown_topic_raises_after_the_timeout() -> None:
    watch = MissingTopics(60.0)
    unknown = metadata(orders=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert watch.find_error(unknown, ["orders"], 0.0) is None
    assert watch.find_error(unknown, ["orders"], 59.0) is None
    assert watch.find_error(metadata(), ["orders"], 59.5) is None  # it exists for a moment
    assert watch.find_error(unknown, ["orders"], 60.0) is None
    error = watch.find_error(unknown, ["orders"], 120.0)
    assert isinstance(error, UnknownTopic)
    assert "does not exist, and did not appear within 60 s" in str(error)
    assert error.topic == "orders"


def test_a_fatal_topic_error_is_raised_at_once() -> None:
    watch = MissingTopics(60.0)
    for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION):
        error = watch.find_error(metadata(orders=int(code)), ["payments", "orders"], 0.0)
        assert isinstance(error, BrokerError)
        assert error.topic == "orders"
    passing = metadata(orders=int(ErrorCode.LEADER_NOT_AVAILABLE))
    assert watch.find_error(passing, ["orders"], 1_000.0) is None
    assert watch.find_error(metadata(other=29), ["orders"], 0.0) is None


def test_a_missing_topic_is_kept_until_the_timeout_and_recognised_by_its_id() -> None:
    def snapshot(**ids: int) -> MetadataSnapshot:
        topics = {name: TopicMetadata(name, UUID(int=id), {}) for name, id in ids.items()}
        return MetadataSnapshot(topics=MappingProxyType(topics))

    watch = MissingTopics(5.0)
    assert watch.check_missing(snapshot(a=1, b=2), ("a", "b"), (), 0.0) == ((), ())
    assert watch.check_missing(snapshot(b=2), ("b",), ("a", "b"), 1.0) == (("a",), ())
    assert watch.check_missing(snapshot(a=1, b=2), ("a", "b"), ("a", "b"), 2.0) == ((), ())
    assert watch.check_missing(snapshot(b=2), ("b",), ("a", "b"), 9.0) == (("a",), ())
    assert watch.check_missing(snapshot(a=3, b=2), ("a", "b"), ("a", "b"), 13.9) == ((), ("a",))
    assert watch.check_missing(snapshot(a=3), ("a",), ("a", "b"), 20.0) == (("b",), ())
    assert watch.check_missing(snapshot(a=3), ("a",), ("a", "b"), 25.0) == ((), ())
    assert watch.check_missing(snapshot(a=3, b=4), ("a", "b"), ("a",), 26.0) == ((), ())


def test_a_missing_partition_is_overdue_after_each_timeout() -> None:
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
    assert missing.overdue([P0], 30.0) == []  # it existed meanwhile


def test_a_missing_partition_is_overdue_at_exactly_next_at() -> None:
    """Not a rounding error later: a task that sleeps until `next_at` would loop."""
    rng = random.Random(1)
    for _ in range(1_000):
        missing = MissingPartitions(rng.choice((0.3, 2.0, 20.0, 60.0)))
        assert missing.overdue([P0], rng.uniform(0, 100)) == []
        at = missing.next_at
        assert missing.overdue([P0], at) == [P0]
        assert missing.next_at > at
