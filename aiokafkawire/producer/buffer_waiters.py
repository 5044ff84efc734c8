"""Callers that wait for room in the buffer, in the order in which they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from aiokafkawire.errors import BufferFull, KafkaError
from aiokafkawire.runtime import Signal, copy_of

__all__ = ("MAX_WAITERS", "BufferWaiters")

MAX_WAITERS = 1_000_000
"""Callers that wait at once; each is a task of the application's."""


class BufferWaiters:
    """A queue of callers."""

    def __init__(self) -> None:
        self.has_waiters = False  # whether somebody waits already, whose turn is first
        self._waiting: deque[Signal] = deque()
        self._closed: KafkaError | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def space_freed(self) -> None:
        """Room came back: the first in the queue looks whether it is enough."""
        if self._waiting:
            self._waiting[0].set()

    def close(self, error: KafkaError) -> None:
        """Nobody gets room any more; all who wait raise `error`."""
        self._closed = error
        for signal in self._waiting:
            signal.set()

    async def wait(self, enough: Callable[[], bool], deadline: float) -> None:
        """Wait until all who came before have gone and there is `enough` room.

        The caller must take the room before it suspends. Raises `BufferFull` at the deadline, and
        at once where `MAX_WAITERS` wait already.
        """
        if len(self._waiting) >= MAX_WAITERS:
            raise BufferFull(
                f"no room in the buffer, and {MAX_WAITERS:,} calls wait for it already"
            )
        signal = Signal()
        self._waiting.append(signal)
        self.has_waiters = True
        try:
            while self._waiting[0] is not signal or not enough():
                if self._closed is not None:
                    raise copy_of(self._closed)
                if not await signal.wait(deadline):
                    raise BufferFull(
                        "no room in the buffer before max_block_ms was over: records come faster"
                        " than brokers take them, or no broker takes any"
                    )
        finally:
            self.has_waiters = len(self._waiting) > 1
            self._waiting.remove(signal)
            # mutation: one-waiter-woken-for-freed-space
            self.space_freed()
