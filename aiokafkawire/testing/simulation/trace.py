"""What happened in a simulated world, line by line."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

__all__ = ("MAX_KEPT_LINES", "Trace")

MAX_KEPT_LINES = 20_000
"""Lines that are kept to be read; the digest is of all."""


class Trace:
    """Notes events with their time. Two runs are the same if their digests are."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.lines: deque[str] = deque(maxlen=MAX_KEPT_LINES)
        self.count = 0
        self._now = now
        self._hash = hashlib.sha256()

    def note(self, event: str) -> None:
        """Add a line. It must not hold anything that differs from process to process."""
        line = f"{self._now():.9f} {event}"
        self.lines.append(line)
        self.count += 1
        self._hash.update(line.encode() + b"\n")

    @property
    def digest(self) -> str:
        """Of all lines so far."""
        return self._hash.hexdigest()

    def last(self, count: int) -> list[str]:
        """The last lines."""
        return list(self.lines)[-count:]

    def __str__(self) -> str:
        return "\n".join(self.lines)
