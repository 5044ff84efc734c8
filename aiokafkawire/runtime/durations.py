"""Number, sum and maximum of measured times."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("Durations",)


@dataclass(slots=True)
class Durations:
    """Measured times, in seconds.

    Attributes:
        count: Number of times; never decreases.
        sum_s: Their sum; never decreases.
        latest_max_s: The longest since the last `take_latest_max_s`.
        earlier_max_s: The longest before.
    """

    count: int = 0
    sum_s: float = 0.0
    latest_max_s: float = 0.0
    earlier_max_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """Add a time."""
        self.count += 1
        self.sum_s += duration_s
        self.latest_max_s = max(self.latest_max_s, duration_s)

    @property
    def average_s(self) -> float:
        """Average of all times; 0 without any."""
        return self.sum_s / self.count if self.count else 0.0

    @property
    def max_s(self) -> float:
        """The longest of all times."""
        return max(self.latest_max_s, self.earlier_max_s)

    def take_latest_max_s(self) -> float:
        """Return the longest time since the last call."""
        latest, self.latest_max_s = self.latest_max_s, 0.0
        self.earlier_max_s = max(self.earlier_max_s, latest)
        return latest
