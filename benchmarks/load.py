"""What both clients are given to do."""

from __future__ import annotations

PARTITIONS = 4
VALUE = b"x" * 100
LINGER_MS = 5
BATCH_BYTES = 64 * 1024
MAX_RECORDS = 500
"""The most that one call of getmany gives, Java's default: for both clients."""
WARM_UP = 0.05
"""The share of the messages that is not measured."""


class Incomplete(RuntimeError):
    """The client did not do what it was measured at."""
