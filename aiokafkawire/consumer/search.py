"""How often to ask for what the metadata does not tell: leaders, and partitions not yet there."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

from aiokafkawire.connection import Backoff
from aiokafkawire.types import TopicPartition

__all__ = ("SEARCH_MAX_S", "LeaderSearch", "MissingPartitions")

SEARCH_MAX_S = 30.0
"""The longest pause between two requests for metadata about a leader that is not found."""


class LeaderSearch:
    """Says when to ask for metadata again while partitions have no leader that is known."""

    def __init__(self, first_s: float) -> None:
        self._backoff = Backoff(first_s, SEARCH_MAX_S)
        self._asked = 0
        self._next_at = -math.inf

    def found(self) -> None:
        """Every partition has a leader."""
        self._asked = 0
        self._next_at = -math.inf

    def missing(self, now: float, rng: random.Random) -> bool:
        """Some partition has none; whether to ask now."""
        if now < self._next_at:
            return False
        self._asked += 1
        self._next_at = now + self._backoff.delay(self._asked, rng)
        return True

    @property
    def next_at(self) -> float:
        """When to look again."""
        return self._next_at if self._asked else math.inf


class MissingPartitions:
    """Notes since when partitions are missing; each has `patience_s` to come to be."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        # A sum, not a beginning: of two ways to reckon, one may be before the other by a hair.
        self._until: dict[TopicPartition, float] = {}

    def overdue(self, missing: Iterable[TopicPartition], now: float) -> list[TopicPartition]:
        """Those of the partitions that are missing now whose time is up; it then begins anew."""
        anew = now + self._patience_s
        self._until = {tp: self._until.get(tp, anew) for tp in missing}
        late = [tp for tp, until in self._until.items() if until <= now]
        self._until.update(dict.fromkeys(late, anew))
        return late

    @property
    def next_at(self) -> float:
        """When the next one is overdue."""
        return min(self._until.values(), default=math.inf)
