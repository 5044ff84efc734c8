"""How often to ask for what the metadata does not tell: leaders, and partitions not yet there."""

from __future__ import annotations

import math
import random

from aiokafkawire.connection import Backoff

__all__ = ("MAX_LEADER_RETRY_S", "LeaderRetry")

MAX_LEADER_RETRY_S = 30.0
"""The longest pause between two requests for metadata about a leader that is not found."""


class LeaderRetry:
    """Says when to ask for metadata again while partitions have no leader that is known."""

    def __init__(self, first_s: float) -> None:
        self._backoff = Backoff(first_s, MAX_LEADER_RETRY_S)
        self._asked = 0
        self._next_at = -math.inf

    def leaders_found(self) -> None:
        """Every partition has a leader."""
        self._asked = 0
        self._next_at = -math.inf

    def leader_missing(self, now: float, rng: random.Random) -> bool:
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
