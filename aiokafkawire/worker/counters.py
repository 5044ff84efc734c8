"""Counters of a worker."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("Counters",)


@dataclass(slots=True)
class Counters:
    """Totals since the start of a worker.

    Attributes:
        processed: Records whose handler returned.
        failed: Failed attempts.
        retried: Failed attempts that are repeated in place.
        delayed: Records written to a retry topic.
        dead: Records written to the dead letter topic.
        dropped: Records that a handler dropped.
        write_failures: Failed writes to a retry topic or the dead letter topic.
    """

    processed: int = 0
    failed: int = 0
    retried: int = 0
    delayed: int = 0
    dead: int = 0
    dropped: int = 0
    write_failures: int = 0
