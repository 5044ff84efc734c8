"""Trace of a simulation, line by line."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

__all__ = ("MAX_KEPT_LINES", "Trace")

MAX_KEPT_LINES = 20_000
"""Lines kept for reading; the digest covers all."""


class Trace:
    """Records events with their time. Equal digests mean equal runs."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.lines: deque[str] = deque(maxlen=MAX_KEPT_LINES)
        self.count = 0
        self._now = now
        self._hash = hashlib.sha256()

    def note(self, event: str) -> None:
        """Add a line. It must not depend on the process, as `id()` and `hash()` do."""
        line = f"{self._now():.9f} {event}"
        self.lines.append(line)
        self.count += 1
        self._hash.update(line.encode() + b"\n")

    @property
    def digest(self) -> str:
        """Digest of all lines so far."""
        return self._hash.hexdigest()

    def last(self, count: int) -> list[str]:
        """Return the last lines."""
        return list(self.lines)[-count:]

    def __str__(self) -> str:
        return "\n".join(self.lines)
