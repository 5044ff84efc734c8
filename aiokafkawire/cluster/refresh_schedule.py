"""Schedule of metadata refreshes, without I/O: the time is an argument."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.wire.primitives import check_string

__all__ = ("NO_BROKER_LOG_AFTER_S", "MissingTopicLog", "RefreshSchedule", "TopicReferences")

NO_BROKER_LOG_AFTER_S = 5.0
"""Time without a reachable broker after which one warning is logged; a restart takes less.

It counts from the start of the first failed refresh, or of the first unanswered request.
"""

MISSING_TOPIC_LOG_AFTER_S = 2.0
"""Time after which a missing topic in use is logged, once; automatic creation takes less."""

BACKOFF_RESET_FACTOR = 2.0
"""The backoff resets after this many maximum backoffs without a refresh."""


class RefreshSchedule:
    """Decides when the next refresh is due, and for which topics.

    A refresh is due `max_age_s` after the last success, or when requested. Consecutive refreshes
    keep the backoff between them, whether they succeed or fail. A refresh is for all topics in use
    or, if partial, for some of them (KIP-526).
    """

    def __init__(self, *, backoff: Backoff, max_age_s: float, rebootstrap_s: float) -> None:
        self.backoff = backoff
        self._max_age_s = max_age_s
        self._rebootstrap_s = rebootstrap_s
        self._requested = False
        self._urgent = False
        self._topics: dict[str, None] | None = {}
        self._succeeded_at = -math.inf
        self._began_at = math.inf
        self._ended_at = -math.inf
        self._consecutive = 0
        self._not_before = -math.inf
        self._unreachable_since = math.inf
        self._outage_logged = False
        self._must_rebootstrap = False

    def request(self, topics: Iterable[str] | None = None, *, urgent: bool = False) -> None:
        """Request a refresh of `topics`, or of all if None; `urgent` skips the backoff."""
        self._requested = True
        self._urgent = self._urgent or urgent
        if topics is None:
            self._topics = None
        elif self._topics is not None:
            self._topics.update(dict.fromkeys(topics))

    def next_refresh_at(self) -> float:
        """Return the time at which the next refresh is due."""
        if self._urgent:
            return -math.inf
        due = -math.inf if self._requested else self._succeeded_at + self._max_age_s
        return max(due, self._not_before)

    def begin(self, now: float) -> tuple[str, ...] | None:
        """Begin a refresh and return its topics; None for all in use.

        Requests from now on need another refresh.
        """
        self._began_at = now
        if self._urgent:
            # Wait for a new topic with the shortest backoff first.
            self._consecutive = 0
        topics = self._topics
        if not self._requested or now - self._succeeded_at >= self._max_age_s:
            topics = None
        self._requested = False
        self._urgent = False
        self._topics = {}
        return None if topics is None else tuple(topics)

    def succeeded(self, now: float, rng: random.Random, *, partial: bool = False) -> bool:
        """Record a successful refresh; return True if it ends a logged outage."""
        outage_is_over = self._outage_logged
        if not partial:
            self._succeeded_at = now
        self._unreachable_since = math.inf
        self._outage_logged = False
        self._ended(now, rng)
        return outage_is_over

    def failed(self, now: float, rng: random.Random) -> None:
        """Record a failed refresh and request another."""
        self._unreachable_since = min(self._unreachable_since, self._began_at, now)
        # mutation: failed-metadata-not-requested-again
        self.request()
        self._ended(now, rng)

    def mark_unreachable(self, since: float) -> None:
        """Record that no broker has responded since a time."""
        self._unreachable_since = min(self._unreachable_since, since)

    def outage_s(self, now: float) -> float:
        """Return the seconds without a reachable broker; 0 without an outage."""
        return max(0.0, now - self._unreachable_since)

    def rebootstrap_due(self, now: float) -> bool:
        """Return True if a rebootstrap is required, or the outage is long enough.

        Protocol source: KIP-899, KIP-1102, KIP-1242.
        """
        return self._must_rebootstrap or now - self._unreachable_since >= self._rebootstrap_s

    def require_rebootstrap(self) -> bool:
        """Require a rebootstrap, as the addresses are wrong; return False if one is required."""
        before, self._must_rebootstrap = self._must_rebootstrap, True
        return not before

    def bootstrapped(self) -> None:
        """Record that a bootstrap address returned metadata."""
        self._must_rebootstrap = False

    def outage_log_due(self, now: float) -> bool:
        """Return True once per outage, when it lasted for `NO_BROKER_LOG_AFTER_S`."""
        if self._outage_logged or now - self._unreachable_since < NO_BROKER_LOG_AFTER_S:
            return False
        self._outage_logged = True
        return True

    def _ended(self, now: float, rng: random.Random) -> None:
        reset = now - self._ended_at > BACKOFF_RESET_FACTOR * self.backoff.max_s
        self._consecutive = 1 if reset else self._consecutive + 1
        self._ended_at = now
        self._not_before = now + self.backoff.delay(self._consecutive, rng)


class TopicReferences:
    """Topics that metadata refreshes include: reference counts of topics, or all topics."""

    def __init__(self) -> None:
        self._references: Counter[str] = Counter()
        self.all_topics = False

    def add(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Add one reference to each topic; return the topics that need a refresh.

        Raises:
            TypeError: A name is not a string.
            ValueError: A name does not fit into a request. It would make every later Metadata
                request fail.
        """
        topics = tuple(topics)
        for topic in topics:
            check_string(topic)
            if not topic:
                # Brokers take an empty name for a request by topic id.
                raise ValueError("topic must not be empty")
        new: list[str] = []
        for topic in topics:
            if not self._references[topic]:
                new.append(topic)
            self._references[topic] += 1
        return () if self.all_topics else tuple(new)

    def remove(self, topics: Iterable[str]) -> None:
        """Remove one reference from each topic."""
        for topic in topics:
            if self._references[topic] <= 1:
                del self._references[topic]
            else:
                self._references[topic] -= 1

    def set_all_topics(self, included: bool) -> bool:
        """Include all topics or not; return True if all topics are newly included."""
        changed = included != self.all_topics
        self.all_topics = included
        return changed and included

    def contains(self, topic: str) -> bool:
        """Return True if the topic has a reference by name."""
        return topic in self._references

    def topics(self) -> Iterable[str]:
        """Return the topics with a reference by name."""
        return tuple(self._references)

    def topics_to_request(self) -> tuple[str, ...] | None:
        """Return the topics to request in the order of their addition; None for all."""
        return None if self.all_topics else tuple(self._references)


class MissingTopicLog:
    """Decides which missing topics to log: each once until it exists."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def names_to_log(self, missing: Iterable[str], now: float) -> list[str]:
        """Return the topics to log now, given all that are missing."""
        self._since = {name: self._since.get(name, now) for name in missing}
        due = [
            name for name, since in self._since.items() if now - since >= MISSING_TOPIC_LOG_AFTER_S
        ]
        self._since.update(dict.fromkeys(due, math.inf))
        return due
