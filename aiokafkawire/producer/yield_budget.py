"""Calls that need not wait let other tasks run from time to time."""

from __future__ import annotations

from aiokafkawire.runtime import checkpoint

__all__ = ("CALLS_PER_CHECKPOINT", "YieldBudget")

CALLS_PER_CHECKPOINT = 256
"""Number of calls without a wait after which a call lets other tasks run."""


class YieldBudget:
    """Counts the calls without a wait, so that other tasks run from time to time."""

    __slots__ = ("calls_left",)

    def __init__(self) -> None:
        self.calls_left = CALLS_PER_CHECKPOINT

    def batch_ended(self) -> None:
        """Let other tasks run in the next call, which is at a batch boundary."""
        self.calls_left = 0

    async def checkpoint(self) -> None:
        """Let other tasks run, and restart the count."""
        self.calls_left = CALLS_PER_CHECKPOINT
        await checkpoint()
