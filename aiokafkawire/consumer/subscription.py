"""The subscription of a consumer: topics, a pattern of topic names, or a manual assignment."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.types import TopicPartition, require_topic_name
from aiokafkawire.wire.primitives import check_string

__all__ = (
    "ManualAssignment",
    "NoSubscription",
    "RebalanceListener",
    "SubscribedPattern",
    "SubscribedTopics",
    "Subscription",
    "SubscriptionPattern",
    "parse_pattern",
    "parse_subscription",
    "parse_topics",
    "validate_listener",
)


class RebalanceListener:
    """Base class of rebalance listeners; override the methods that you need.

    At each rebalance an eager member is called with all its partitions, a cooperative one (KIP-429)
    with the difference: first the revoked partitions, if there are any, then the added ones, even
    if there are none.

    A method may be async or not, and is cancelled after `rebalance_callback_timeout_ms`. While it
    runs no call returns records; `seek`, `position` and `commit` may be called. An exception of a
    method is raised by the application's next call, unchanged.
    """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Any:
        """Called after partitions were added, before their records are returned; may seek."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Any:
        """Called before partitions are revoked; their offsets may still be committed."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Any:
        """Called after partitions were lost; a commit of their offsets fails.

        Calls `on_partitions_revoked` unless overridden.
        """
        return self.on_partitions_revoked(partitions)


@dataclass(frozen=True, slots=True)
class NoSubscription:
    """No topics and no partitions."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics whose metadata must be requested by name."""
        return ()


@dataclass(frozen=True, slots=True)
class SubscribedTopics:
    """Topics by name."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribedPattern:
    """All topics whose whole name matches, including topics created later."""

    pattern: re.Pattern[str]

    @property
    def topics(self) -> tuple[str, ...]:
        return ()

    def matches(self, metadata: MetadataSnapshot) -> tuple[str, ...]:
        """Return the topics that match, sorted. Internal topics never match."""
        return tuple(
            sorted(
                name
                for name, topic in metadata.topics.items()
                if not topic.is_internal and self.pattern.fullmatch(name)
            )
        )


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A pattern of topic names that the group's coordinator matches (KIP-848).

    ::

        consumer.subscribe(SubscriptionPattern("orders-.*"))

    All members get the topics that the coordinator found, also if their own metadata lacks them.
    New topics are noticed after 10 s or more.

    Args:
        pattern: Regular expression of RE2/J, which the whole name must match. It has no lookahead
            and no back references.

    Raises:
        TypeError: `pattern` is not a string.
        ValueError: `pattern` is empty.
    """

    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise TypeError(f"a SubscriptionPattern takes a string, not {self.pattern!r:.80}")
        if not self.pattern:
            raise ValueError("a SubscriptionPattern must not be empty")
        check_string(self.pattern)

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics whose metadata must be requested by name."""
        return ()


@dataclass(frozen=True)
class ManualAssignment:
    """Partitions chosen with `assign`."""

    partitions: tuple[TopicPartition, ...]

    @cached_property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tp.topic for tp in self.partitions))


Subscription = (
    NoSubscription | SubscribedTopics | SubscribedPattern | SubscriptionPattern | ManualAssignment
)


def parse_topics(topics: Iterable[str]) -> SubscribedTopics:
    """Return a subscription to these topics; a single string is one topic.

    Raises:
        TypeError: A topic is not a string, or is empty.
        ValueError: A name is not valid for a topic.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(
                f"a topic name must be a non-empty string, not {name!r:.80}"
                f"{_hint_for_no_name(name)}"
            )
        check_string(name)
        require_topic_name(name, _hint_for_bad_name(name))
    return SubscribedTopics(tuple(dict.fromkeys(names)))


def _hint_for_no_name(given: Any) -> str:
    if isinstance(given, Mapping):
        return "; options are keyword arguments: bootstrap_servers='host:port', group_id='…'"
    if isinstance(given, list | tuple | set | frozenset) and given:
        return f"; pass each topic as an argument of its own: {', '.join(map(repr, given)):.80}"
    return ""


def _hint_for_bad_name(name: str) -> str:
    if name.startswith("^") or "*" in name:
        return "; pass a regular expression as subscribe(pattern=…)"
    if ":" in name:
        return "; pass brokers as bootstrap_servers='host:port'"
    if "," in name:
        parts = [part.strip() for part in name.split(",") if part.strip()]
        return f"; pass each topic as an argument of its own: {', '.join(map(repr, parts)):.300}"
    return ""


def parse_pattern(pattern: str | re.Pattern[str]) -> SubscribedPattern:
    """Return a subscription to a pattern. Raises `ValueError`, `TypeError`."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from None
    if not isinstance(compiled.pattern, str):
        raise TypeError(f"a pattern must be a string, not {pattern!r}")
    return SubscribedPattern(compiled)


def parse_subscription(
    topics: Iterable[str] | SubscriptionPattern, pattern: str | re.Pattern[str] | None
) -> Subscription:
    """Return the subscription to topics or to a pattern. Raises `TypeError`, `ValueError`."""
    if isinstance(topics, SubscriptionPattern):
        if pattern is not None:
            raise ValueError("subscribe() takes one pattern")
        return topics
    names = parse_topics(topics)
    if bool(names.topics) == (pattern is not None):
        raise ValueError("subscribe() takes either topics or a pattern")
    return names if pattern is None else parse_pattern(pattern)


LISTENER_METHODS = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")

TYPO_SIMILARITY = 0.92
"""Similarity (1: equal) from which a method name counts as a misspelt listener method."""


def validate_listener(listener: Any) -> RebalanceListener | None:
    """Return a listener that has all methods and overrides one. Raises `TypeError`."""
    if listener is None:
        return None
    if isinstance(listener, type) or not all(
        callable(getattr(listener, name, None)) for name in LISTENER_METHODS
    ):
        raise TypeError(
            f"a listener must be an object derived from RebalanceListener, not {listener!r}"
        )
    for name in dir(listener):
        similar = difflib.get_close_matches(name, LISTENER_METHODS, n=1, cutoff=TYPO_SIMILARITY)
        if similar and name not in LISTENER_METHODS and not name.startswith("_"):
            raise TypeError(
                f"the listener's method {name} is never called; did you mean {similar[0]}?"
            )
    inherited = [
        getattr(getattr(listener, name), "__func__", None) is vars(RebalanceListener)[name]
        for name in LISTENER_METHODS
    ]
    if all(inherited) and type(listener) is not RebalanceListener:
        raise TypeError(
            f"the listener {listener!r} overrides none of {', '.join(LISTENER_METHODS)}"
        )
    return cast("RebalanceListener", listener)
