"""Exponential backoff. Time and randomness are arguments."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

__all__ = ("JITTER", "Backoff", "ReconnectBackoff")

JITTER = 0.2
"""Each delay varies by up to this fraction, so that clients do not retry in lockstep."""

MAX_DOUBLINGS = 30
"""Limit of the exponent, beyond which every maximum is exceeded anyway."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from `base_s` to `max_s` seconds, with jitter."""

    base_s: float
    max_s: float

    @classmethod
    def from_ms(cls, base_ms: int, max_ms: int) -> Backoff:
        """Create a backoff from milliseconds, the unit of the options."""
        return cls(base_ms / 1_000, max_ms / 1_000)

    def delay(self, failures: int, rng: random.Random) -> float:
        """Return the delay in seconds after a number of consecutive failures; 0 after none."""
        if failures <= 0:
            return 0.0
        doubled = self.base_s * 2.0 ** min(failures - 1, MAX_DOUBLINGS)
        return min(doubled, self.max_s) * rng.uniform(1 - JITTER, 1 + JITTER)


class ReconnectBackoff:
    """Time of the next connection attempt to one broker, and timeout of its setup.

    Failed attempts and lost connections count as failures until a connection is ready.

    Attributes:
        failures: Consecutive failures.
        next_attempt_at: Earliest time of the next attempt.
    """

    def __init__(self, backoff: Backoff, setup: Backoff) -> None:
        self._backoff = backoff
        self._setup = setup
        self.failures = 0
        self.next_attempt_at = -math.inf

    def record_failure(self, now: float, rng: random.Random) -> None:
        """Back off the next attempt after a failure at time `now`."""
        self.failures += 1
        self.next_attempt_at = now + self._backoff.delay(self.failures, rng)

    def record_success(self) -> None:
        """Reset the backoff, because a connection is ready."""
        # mutation: failures-kept-after-reconnect
        self.failures = 0
        self.next_attempt_at = -math.inf

    @property
    def attempt_number(self) -> int:
        """Number of the next attempt since a connection was last ready, from 1."""
        return self.failures + 1

    def setup_timeout_s(self) -> float:
        """Return the timeout for resolving, connecting, handshake and version negotiation.

        It doubles with each consecutive failure.
        """
        doubled = self._setup.base_s * 2.0 ** min(self.failures, MAX_DOUBLINGS)
        return min(doubled, self._setup.max_s)
