"""How long to wait before trying again. Randomness and time are arguments."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

__all__ = ("JITTER", "Backoff", "ReconnectBackoff")

JITTER = 0.2
"""Each delay is longer or shorter by up to this share, so that clients do not act in step."""

MAX_DOUBLINGS = 30
"""Beyond it the exponential is over any maximum anyway; keeps the numbers small."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from `base_s` to `max_s` seconds, with jitter."""

    base_s: float
    max_s: float

    @classmethod
    def from_ms(cls, base_ms: int, max_ms: int) -> Backoff:
        return cls(base_ms / 1_000, max_ms / 1_000)

    def delay(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after so many failures in a row; none after none."""
        if failures <= 0:
            return 0.0
        doubled = self.base_s * 2.0 ** min(failures - 1, MAX_DOUBLINGS)
        return min(doubled, self.max_s) * rng.uniform(1 - JITTER, 1 + JITTER)


class ReconnectBackoff:
    """When the next connection to one broker may be tried, and how long setting it up may take.

    A failed attempt, and a connection that was lost, count as failures until a connection is ready.
    """

    def __init__(self, backoff: Backoff, setup: Backoff) -> None:
        self._backoff = backoff
        self._setup = setup
        self.failures = 0
        self.next_attempt_at = -math.inf

    def record_failure(self, now: float, rng: random.Random) -> None:
        self.failures += 1
        self.next_attempt_at = now + self._backoff.delay(self.failures, rng)

    def record_success(self) -> None:
        # mutation: failures-kept-after-reconnect
        self.failures = 0
        self.next_attempt_at = -math.inf

    @property
    def attempt_number(self) -> int:
        """The number of the next attempt, counted from 1 since a connection was last ready."""
        return self.failures + 1

    def setup_timeout_s(self) -> float:
        """The time for name, connect, handshake and versions: doubles with each failure."""
        doubled = self._setup.base_s * 2.0 ** min(self.failures, MAX_DOUBLINGS)
        return min(doubled, self._setup.max_s)
