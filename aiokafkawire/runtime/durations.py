"""Number, sum and maximum of measured times."""

from __future__ import annotations

__all__ = ("Durations",)


class Durations:
    """Measured times, in seconds.

    Attributes:
        count: Number of times; never decreases.
        sum_s: Their sum; never decreases.
    """

    __slots__ = ("_earlier_max_s", "_latest_max_s", "count", "sum_s")

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self._latest_max_s = 0.0
        self._earlier_max_s = 0.0

    def record(self, duration_s: float) -> None:
        """Add a time."""
        self.count += 1
        self.sum_s += duration_s
        if duration_s > self._latest_max_s:  # noqa: PLR1730 - several times faster than `max`
            self._latest_max_s = duration_s

    @property
    def average_s(self) -> float:
        """Average of all times; 0 without any."""
        return self.sum_s / self.count if self.count else 0.0

    @property
    def max_s(self) -> float:
        """The longest of all times."""
        return max(self._latest_max_s, self._earlier_max_s)

    def take_latest_max_s(self) -> float:
        """Return the longest time since the last call."""
        latest, self._latest_max_s = self._latest_max_s, 0.0
        self._earlier_max_s = max(self._earlier_max_s, latest)
        return latest
