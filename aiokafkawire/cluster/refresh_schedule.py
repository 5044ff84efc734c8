"""When to ask for metadata. A machine: the time is an argument."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable

from aiokafkawire.connection.backoff import Backoff
from aiokafkawire.wire.primitives import check_string

__all__ = ("NO_BROKER_LOG_AFTER_S", "MissingTopicLog", "RefreshSchedule", "TopicReferences")

NO_BROKER_LOG_AFTER_S = 5.0
"""After so long without any broker the log says so, once. A restart takes less.

Counted from the first refresh that failed, and looked at after each one that does.
"""

MISSING_TOPIC_LOG_AFTER_S = 2.0
"""A topic that somebody uses and that stays away for so long is told of in the log, once. One that
is made on demand takes less."""

BACKOFF_RESET_FACTOR = 2.0
"""A refresh is the first of a new row when none was for this many times the longest backoff."""


class RefreshSchedule:
    """Decides when the next refresh is due.

    At `max_age_s` after the last success; at once when asked for, but refreshes in a row keep the
    backoff between them, whether they succeed or fail. What is asked for is everything that is in
    use, or some topics alone (KIP-526).
    """

    def __init__(self, *, backoff: Backoff, max_age_s: float, rebootstrap_s: float) -> None:
        self._backoff = backoff
        self._max_age_s = max_age_s
        self._rebootstrap_s = rebootstrap_s
        self._asked = False
        self._urgent = False
        self._some: dict[str, None] | None = {}
        self._succeeded_at = -math.inf
        self._ended_at = -math.inf
        self._in_a_row = 0
        self._earliest = -math.inf
        self._unreachable_since = math.inf
        self._logged = False

    def ask(self, topics: Iterable[str] | None = None, *, urgent: bool = False) -> None:
        """A refresh is needed, of `topics` alone or of all; `urgent` ones (something never asked
        before) skip the backoff."""
        self._asked = True
        self._urgent = self._urgent or urgent
        if topics is None:
            self._some = None
        elif self._some is not None:
            self._some.update(dict.fromkeys(topics))

    def next_at(self) -> float:
        """When the next refresh is due."""
        if self._urgent:
            return -math.inf
        due = -math.inf if self._asked else self._succeeded_at + self._max_age_s
        return max(due, self._earliest)

    def begin(self, now: float) -> tuple[str, ...] | None:
        """A refresh begins: what is asked for from now on needs another one.

        Returns the topics that it is for, None for all in use.
        """
        if self._urgent:
            # What comes of a new topic is awaited from the shortest backoff on.
            self._in_a_row = 0
        some = self._some
        if not self._asked or now - self._succeeded_at >= self._max_age_s:
            some = None
        self._asked = False
        self._urgent = False
        self._some = {}
        return None if some is None else tuple(some)

    def succeeded(self, now: float, rng: random.Random, *, partial: bool = False) -> bool:
        """A refresh came through; whether that ends an outage which was logged."""
        outage_is_over = self._logged
        if not partial:
            self._succeeded_at = now
        self._unreachable_since = math.inf
        self._logged = False
        self._ended(now, rng)
        return outage_is_over

    def failed(self, now: float, rng: random.Random) -> None:
        self._unreachable_since = min(self._unreachable_since, now)
        # mutation: failed-metadata-not-requested-again
        self.ask()
        self._ended(now, rng)

    def outage_s(self, now: float) -> float:
        """How long no broker has been reachable; 0 while one is."""
        return max(0.0, now - self._unreachable_since)

    def rebootstrap_due(self, now: float) -> bool:
        """Whether no broker was reachable for so long that the known ones are given up."""
        return now - self._unreachable_since >= self._rebootstrap_s

    def should_log(self, now: float) -> bool:
        """True once in each time that no broker is reachable."""
        if self._logged or now - self._unreachable_since < NO_BROKER_LOG_AFTER_S:
            return False
        self._logged = True
        return True

    def _ended(self, now: float, rng: random.Random) -> None:
        quiet = now - self._ended_at > BACKOFF_RESET_FACTOR * self._backoff.max_s
        self._in_a_row = 1 if quiet else self._in_a_row + 1
        self._ended_at = now
        self._earliest = now + self._backoff.delay(self._in_a_row, rng)


class TopicReferences:
    """Which topics the metadata is for: those that somebody uses, or all of them."""

    def __init__(self) -> None:
        self._users: Counter[str] = Counter()
        self.all_topics = False

    def add(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Count one more user of each; those that must be asked for because of that.

        Raises `TypeError` or `ValueError` for what cannot be a topic's name in any request: one
        such name would make every later request for metadata fail.
        """
        topics = tuple(topics)
        for topic in topics:
            check_string(topic)
            if not topic:
                # Brokers answer for it as for a topic of which only the id is told.
                raise ValueError("topic must not be empty")
        new: list[str] = []
        for topic in topics:
            if not self._users[topic]:
                new.append(topic)
            self._users[topic] += 1
        return () if self.all_topics else tuple(new)

    def remove(self, topics: Iterable[str]) -> None:
        """Count one user less of each."""
        for topic in topics:
            if self._users[topic] <= 1:
                del self._users[topic]
            else:
                self._users[topic] -= 1

    def set_all_topics(self, wanted: bool) -> bool:
        """Ask for all topics, or no more; whether that is news."""
        changed = wanted != self.all_topics
        self.all_topics = wanted
        return changed and wanted

    def uses(self, topic: str) -> bool:
        """Whether somebody uses a topic by name."""
        return topic in self._users

    def users(self) -> Iterable[str]:
        """The topics that somebody uses by name."""
        return tuple(self._users)

    def wanted(self) -> tuple[str, ...] | None:
        """The topics to ask for, None for all; in the order in which they were added."""
        return None if self.all_topics else tuple(self._users)


class MissingTopicLog:
    """Says which topics stay away, each once until it was there. Bound: as many as are absent."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def late(self, absent: Iterable[str], now: float) -> list[str]:
        """Those to be told of, given all that are absent now."""
        self._since = {name: self._since.get(name, now) for name in absent}
        late = [
            name for name, since in self._since.items() if now - since >= MISSING_TOPIC_LOG_AFTER_S
        ]
        self._since.update(dict.fromkeys(late, math.inf))
        return late
