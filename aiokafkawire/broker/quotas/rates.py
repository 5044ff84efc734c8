"""Rates over a window of samples, as Kafka measures them for quotas."""

from __future__ import annotations

from collections import deque

__all__ = ("SAMPLES", "WINDOW_S", "SampledRate")

SAMPLES = 11
"""Kafka's default of `quota.window.num`."""

WINDOW_S = 1.0
"""Kafka's default of `quota.window.size.seconds`: the length of one sample."""


class SampledRate:
    """Sum of values per second over the last `SAMPLES` windows, at least all but one of them."""

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()

    @property
    def last_recorded_at(self) -> float:
        """Start of the newest sample, minus infinity without one."""
        return self._samples[-1][0] if self._samples else float("-inf")

    def record(self, value: float, now: float) -> None:
        """Add a value; a negative one takes an earlier value back."""
        if not self._samples or now - self._samples[-1][0] >= WINDOW_S:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += value

    def rate(self, now: float) -> float:
        """Return the rate per second."""
        self._purge(now)
        return sum(value for _, value in self._samples) / self.window_s(now)

    def window_s(self, now: float) -> float:
        """Return the length of the measured time."""
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        missing = SAMPLES - 1 - int(elapsed / WINDOW_S)
        return elapsed + max(missing, 0) * WINDOW_S

    def _purge(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= SAMPLES * WINDOW_S:
            self._samples.popleft()
