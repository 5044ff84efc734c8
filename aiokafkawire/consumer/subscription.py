"""What a consumer reads: topics by name, topics by pattern, or partitions of its own choice."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire.primitives import check_string

__all__ = (
    "ManualAssignment",
    "NoSubscription",
    "RebalanceListener",
    "SubscribedPattern",
    "SubscribedTopics",
    "Subscription",
    "parse_pattern",
    "parse_topics",
    "validate_listener",
)


class RebalanceListener:
    """Hears of partitions that come and go; override what is of interest.

    An eager member hears of all its partitions at each rebalance, a cooperative one (KIP-429) of
    the difference: first of what goes, if anything does, then of what came, even if that is
    nothing.

    Each call may be async or not, and has `rebalance_callback_timeout_ms`. While it runs the
    consumer gives no records; `seek`, `position` and `commit` may be called. What it raises comes
    out of the application's next call, unchanged.
    """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Any:
        """Partitions came, before any of their records is given: the place to seek."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Any:
        """Partitions are about to go: they are still owned, and may be committed."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Any:
        """Partitions are gone already: a commit of them fails. As `on_partitions_revoked`."""
        return self.on_partitions_revoked(partitions)


@dataclass(frozen=True, slots=True)
class NoSubscription:
    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose metadata this needs, beside those that it looks for."""
        return ()


@dataclass(frozen=True, slots=True)
class SubscribedTopics:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribedPattern:
    """All topics whose whole name matches, those included that come to be later."""

    pattern: re.Pattern[str]

    @property
    def topics(self) -> tuple[str, ...]:
        return ()

    def matches(self, metadata: MetadataSnapshot) -> tuple[str, ...]:
        """The topics that match at present, sorted; internal ones never do."""
        return tuple(
            sorted(
                name
                for name, topic in metadata.topics.items()
                if not topic.is_internal and self.pattern.fullmatch(name)
            )
        )


@dataclass(frozen=True)
class ManualAssignment:
    partitions: tuple[TopicPartition, ...]

    @cached_property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tp.topic for tp in self.partitions))


Subscription = NoSubscription | SubscribedTopics | SubscribedPattern | ManualAssignment


def parse_topics(topics: Iterable[str]) -> SubscribedTopics:
    """Check and order the names of topics; a single string is taken for one name.

    Raises `TypeError` or `ValueError` for what no topic can be named.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(
                f"a topic is named by a string that is not empty, not {name!r:.80}"
                f"{_hint_for_no_name(name)}"
            )
        check_string(name)
        if not _TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
            raise ValueError(
                f"{name!r:.300} can be no topic, whose name has letters of ASCII, digits, '.', '_'"
                f" and '-' only{_hint_for_bad_name(name)}"
            )
    return SubscribedTopics(tuple(dict.fromkeys(names)))


_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
"""What brokers of all releases allow (0.8 on)."""


def _hint_for_no_name(given: Any) -> str:
    if isinstance(given, Mapping):
        return "; options are keyword arguments: bootstrap_servers='host:port', group_id='…'"
    if isinstance(given, list | tuple | set | frozenset) and given:
        return f"; give each topic by itself: {', '.join(map(repr, given)):.80}"
    return ""


def _hint_for_bad_name(name: str) -> str:
    if name.startswith("^") or "*" in name:
        return "; give a regular expression as subscribe(pattern=…)"
    if ":" in name:
        return "; brokers are given as bootstrap_servers='host:port'"
    if "," in name:
        parts = [part.strip() for part in name.split(",") if part.strip()]
        return f"; give each topic by itself: {', '.join(map(repr, parts)):.300}"
    return ""


def parse_pattern(pattern: str | re.Pattern[str]) -> SubscribedPattern:
    """What a regular expression selects. Raises `ValueError`, `TypeError`."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from None
    if not isinstance(compiled.pattern, str):
        raise TypeError(f"a pattern is a string, not {pattern!r}")
    return SubscribedPattern(compiled)


LISTENER_METHODS = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")

TYPO_SIMILARITY = 0.92
"""A method whose name is so near to that of a call (1 is the same) was meant to be it."""


def validate_listener(listener: Any) -> RebalanceListener | None:
    """A listener that has all the methods, and overrides one. Raises `TypeError`."""
    if listener is None:
        return None
    if isinstance(listener, type) or not all(
        callable(getattr(listener, name, None)) for name in LISTENER_METHODS
    ):
        raise TypeError(f"a listener is an object derived from RebalanceListener, not {listener!r}")
    for name in dir(listener):
        near = difflib.get_close_matches(name, LISTENER_METHODS, n=1, cutoff=TYPO_SIMILARITY)
        if near and name not in LISTENER_METHODS and not name.startswith("_"):
            raise TypeError(f"{name} of the listener is never called: is it {near[0]}?")
    inherited = [
        getattr(getattr(listener, name), "__func__", None) is vars(RebalanceListener)[name]
        for name in LISTENER_METHODS
    ]
    if all(inherited) and type(listener) is not RebalanceListener:
        raise TypeError(
            f"the listener {listener!r} overrides none of {', '.join(LISTENER_METHODS)}"
        )
    return cast("RebalanceListener", listener)
