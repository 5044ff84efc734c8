"""asyncio's event loop with a clock of its own, which stands while there is something to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterator
from typing import Any

from aiokafkawire.testing.simulation.waits import Waiting, waiting

__all__ = ("VirtualLoop",)

RESOLUTION_S = 1e-9
"""Timers that are due within this run together; smaller differences are lost in the arithmetic."""


class _NoWaiting(selectors.SelectSelector):
    """Never waits for descriptors: whoever would wait lets the time pass."""

    idle: Callable[[float | None], None]

    def select(self, timeout: float | None = None) -> list[Any]:
        self.idle(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer whenever all tasks wait.

    `on_stuck` is called when all wait and there is no timer, `on_turn` at each turn of the loop
    that takes no time.
    """

    def __init__(self, on_stuck: Callable[[], None], on_turn: Callable[[], None]) -> None:
        self._now = 0.0
        self._on_stuck = on_stuck
        self._on_turn = on_turn
        selector = _NoWaiting()
        selector.idle = self._idle
        super().__init__(selector)
        self._clock_resolution = RESOLUTION_S

    def time(self) -> float:
        return self._now

    def _idle(self, timeout: float | None) -> None:
        if timeout is None:
            self._on_stuck()
        elif timeout > 0:
            self._now += timeout
        else:
            self._on_turn()

    def waiting(self) -> Iterator[Waiting]:
        """Who waits where."""
        for task in sorted(asyncio.all_tasks(self), key=asyncio.Task.get_name):
            yield waiting(task.get_name(), task.get_coro())
