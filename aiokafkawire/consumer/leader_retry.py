"""Paces metadata requests while partitions have no known leader."""

from __future__ import annotations

import math
import random

from aiokafkawire.connection import Backoff

__all__ = ("MAX_LEADER_RETRY_S", "LeaderRetry")

MAX_LEADER_RETRY_S = 30.0
"""The longest pause between two metadata requests for a missing leader."""


class LeaderRetry:
    """Decides when to request metadata again while partitions have no known leader."""

    def __init__(self, first_s: float) -> None:
        self._backoff = Backoff(first_s, MAX_LEADER_RETRY_S)
        self._asked = 0
        self._next_at = -math.inf

    def reset(self) -> None:
        """Reset the backoff, because every partition has a leader."""
        self._asked = 0
        self._next_at = -math.inf

    def should_request(self, now: float, rng: random.Random) -> bool:
        """Return whether to request metadata now, because a partition has no leader."""
        if now < self._next_at:
            return False
        self._asked += 1
        self._next_at = now + self._backoff.delay(self._asked, rng)
        return True

    @property
    def next_at(self) -> float:
        """Time of the next request."""
        return self._next_at if self._asked else math.inf
