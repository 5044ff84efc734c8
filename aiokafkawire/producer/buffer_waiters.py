"""Callers that wait for space in the buffer, first come, first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from aiokafkawire.errors import BufferFull, KafkaError
from aiokafkawire.runtime import AutoResetEvent, copy_error

__all__ = ("MAX_WAITERS", "BufferWaiters")

MAX_WAITERS = 1_000_000
"""Most callers that wait at a time; each one is a task of the application."""


class BufferWaiters:
    """A queue of callers that wait for buffer space.

    Args:
        max_block_s: Longest wait, for the error text.
    """

    def __init__(self, max_block_s: float) -> None:
        self._max_block_s = max_block_s
        self.has_waiters = False  # Others must queue behind them.
        self._waiting: deque[AutoResetEvent] = deque()
        self._closed: KafkaError | None = None

    def __len__(self) -> int:
        """Return the number of waiting callers."""
        return len(self._waiting)

    def space_freed(self) -> None:
        """Wake the first caller, which checks whether the space is enough."""
        if self._waiting:
            self._waiting[0].set()

    def close(self, error: KafkaError) -> None:
        """Raise `error` in all waiting callers, and in later ones."""
        self._closed = error
        for signal in self._waiting:
            signal.set()

    async def wait(self, enough: Callable[[], bool], deadline: float) -> None:
        """Wait until all earlier callers are served and `enough` returns True.

        The caller must use the space before it suspends.

        Raises:
            BufferFull: The deadline passed, or `MAX_WAITERS` callers wait already.
        """
        if len(self._waiting) >= MAX_WAITERS:
            raise BufferFull(
                f"the buffer is full, and {MAX_WAITERS:,} calls already wait for space"
            )
        signal = AutoResetEvent()
        self._waiting.append(signal)
        self.has_waiters = True
        try:
            while self._waiting[0] is not signal or not enough():
                if self._closed is not None:
                    raise copy_error(self._closed)
                if not await signal.wait(deadline):
                    raise BufferFull(
                        f"the buffer was full for {self._max_block_s:g} s (max_block_ms): records"
                        " are sent faster than the brokers acknowledge them, or no broker responds"
                    )
        finally:
            self.has_waiters = len(self._waiting) > 1
            self._waiting.remove(signal)
            # mutation: one-waiter-woken-for-freed-space
            self.space_freed()
