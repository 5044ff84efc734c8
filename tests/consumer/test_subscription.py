from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire.cluster.metadata import MetadataSnapshot, TopicMetadata
from aiokafkawire.consumer.subscription import (
    RebalanceListener,
    SubscribedPattern,
    SubscribedTopics,
    SubscriptionPattern,
    parse_pattern,
    parse_subscription,
    parse_topics,
    validate_listener,
)
from aiokafkawire.types import TopicPartition


def test_topics_are_named_once_each() -> None:
    assert parse_topics(["b", "a", "b"]) == SubscribedTopics(("b", "a"))
    assert parse_topics("orders") == SubscribedTopics(("orders",))


@pytest.mark.parametrize("names", [[""], [3], [b"orders"]])
def test_a_topic_is_a_string(names: Any) -> None:
    with pytest.raises(TypeError, match="topic"):
        parse_topics(names)


@pytest.mark.parametrize("name", ["x" * 40_000, "\ud800"])
def test_a_topic_name_fits_into_a_request(name: str) -> None:
    with pytest.raises(ValueError, match=r"string|UTF-8"):
        parse_topics(["orders", name])


def test_a_pattern_matches_whole_names_and_no_internal_topics() -> None:
    def topic(name: str, internal: bool = False) -> TopicMetadata:
        return TopicMetadata(name, UUID(int=1), MappingProxyType({}), internal)

    topics = {
        name: topic(name, name.startswith("_"))
        for name in ("orders-us", "orders-eu", "old-orders-eu", "__orders-eu")
    }
    metadata = MetadataSnapshot(topics=MappingProxyType(topics))
    pattern = SubscribedPattern(re.compile(r".{0,2}orders-\w+"))
    assert pattern.matches(metadata) == ("orders-eu", "orders-us")


def test_on_partitions_lost_calls_on_partitions_revoked_unless_overridden() -> None:
    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions: Any) -> str:
            return f"revoked {partitions}"

    tp = TopicPartition("orders", 0)
    assert Listener().on_partitions_lost([tp]) == f"revoked {[tp]}"
    assert RebalanceListener().on_partitions_assigned([tp]) is None


def test_a_pattern_is_a_regular_expression() -> None:
    assert parse_pattern("orders-.*") == SubscribedPattern(re.compile("orders-.*"))
    assert parse_pattern(re.compile("orders-.*")) == SubscribedPattern(re.compile("orders-.*"))
    with pytest.raises(ValueError, match=r"pattern '\(' is not a regular expression: missing \)"):
        parse_pattern("(")
    bytes_pattern: Any = b"orders"
    with pytest.raises(TypeError, match="a pattern must be a string, not b'orders'"):
        parse_pattern(bytes_pattern)


class Duck:
    def on_partitions_assigned(self, partitions: Any) -> None: ...

    def on_partitions_revoked(self, partitions: Any) -> None: ...


class WholeDuck(Duck):
    def on_partitions_lost(self, partitions: Any) -> None: ...


def test_a_listener_has_all_its_methods() -> None:
    whole = WholeDuck()
    assert validate_listener(whole) is whole
    assert validate_listener(None) is None
    for listener in (Duck(), RebalanceListener, print):
        with pytest.raises(TypeError, match="derived from RebalanceListener, not"):
            validate_listener(listener)


class Misspelt(RebalanceListener):
    def on_partitions_assigned(self, partitions: Any) -> None: ...

    def on_partition_revoked(self, partitions: Any) -> None: ...


class Deaf(RebalanceListener):
    def assigned(self, partitions: Any) -> None: ...


class WithHelpers(RebalanceListener):
    def _on_partitions_assigned(self, partitions: Any) -> None: ...

    def on_partitions_changed(self, partitions: Any) -> None: ...

    def on_partitions_revoked(self, partitions: Any) -> None: ...


def test_a_listener_whose_methods_are_misspelt_is_refused() -> None:
    with pytest.raises(
        TypeError, match="on_partition_revoked is never called; did you mean on_partitions_revoked"
    ):
        validate_listener(Misspelt())
    with pytest.raises(TypeError, match="overrides none of on_partitions_assigned, "):
        validate_listener(Deaf())


def test_a_listener_may_have_other_methods_and_may_do_nothing() -> None:
    with_attribute = Deaf()
    with_attribute.on_partitions_lost = print  # type: ignore[method-assign]
    for listener in (WithHelpers(), with_attribute, RebalanceListener()):
        assert validate_listener(listener) is listener


def test_a_regular_expression_as_topic_name_hints_at_pattern() -> None:
    with pytest.raises(
        ValueError, match=r"'\^ord\.\*' is not a valid topic name: .* subscribe\(pattern=…\)"
    ):
        parse_topics(["orders", "^ord.*"])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ({"group_id": "g"}, "options are keyword arguments"),
        (["a", "b"], "pass each topic as an argument of its own: 'a', 'b'"),
        ((), "must be a non-empty string, not ()"),
        ("localhost:9092", "pass brokers as bootstrap_servers='host:port'"),
        ("a, b", "pass each topic as an argument of its own: 'a', 'b'"),
    ],
)
def test_a_wrong_topic_hints_at_the_right_argument(name: Any, hint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(hint)):
        parse_topics(["orders", name])


def test_a_pattern_of_the_coordinator_is_a_string_that_is_not_empty() -> None:
    wrong: Any = re.compile("orders")
    with pytest.raises(TypeError, match=r"takes a string, not re\.compile"):
        SubscriptionPattern(wrong)
    with pytest.raises(ValueError, match="must not be empty"):
        SubscriptionPattern("")
    # RE2/J has syntax that Python lacks: the coordinator checks it.
    assert SubscriptionPattern(r"\pL(").pattern == r"\pL("


def test_a_subscription_is_to_topics_or_to_one_pattern() -> None:
    pattern = SubscriptionPattern("orders.*")
    assert parse_subscription(pattern, None) is pattern
    assert parse_subscription((), "orders.*") == parse_pattern("orders.*")
    assert parse_subscription("orders", None) == SubscribedTopics(("orders",))
    with pytest.raises(ValueError, match="one pattern"):
        parse_subscription(pattern, "orders.*")
    with pytest.raises(ValueError, match="either topics or a pattern"):
        parse_subscription("orders", "orders.*")
    with pytest.raises(ValueError, match="either topics or a pattern"):
        parse_subscription((), None)
