"""Virtual time, which advances only when all tasks wait."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from aiokafkawire.runtime import NEVER

__all__ = (
    "MAX_ITERATIONS_WITHOUT_PROGRESS",
    "Deadlock",
    "Livelock",
    "Overdue",
    "Stop",
    "VirtualTime",
)

MAX_ITERATIONS_WITHOUT_PROGRESS = 100_000
"""Event loop iterations without any time passing; more means that tasks wake each other."""


class Stop(Exception):
    """The program does not end. The message lists the tasks and what each waits for."""


class Deadlock(Stop):
    """All tasks wait, and no event is scheduled that could wake one."""


class Livelock(Stop):
    """Tasks wake each other without end while no time passes."""


class Overdue(Stop):
    """The program exceeded its time limit."""


class VirtualTime:
    """Virtual clock in seconds, with scheduled actions of the simulation.

    Event loops read the time, and report each iteration and when all tasks wait. `on_stop` is
    called if the program does not end; it may be called more than once.
    """

    def __init__(self, on_stop: Callable[[type[Stop], str], None]) -> None:
        self.limit_s = NEVER
        self._now = 0.0
        self._scheduled: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._iterations = 0
        self._iterated_at = -1.0
        self._on_stop = on_stop

    def now(self) -> float:
        return self._now

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Schedule an action of the simulation; equal times run in order."""
        self._numbers += 1
        heappush(self._scheduled, (when, self._numbers, action))

    def on_iteration(self) -> None:
        """Note that the event loop runs tasks without a wait."""
        if self._now != self._iterated_at:
            self._iterated_at, self._iterations = self._now, 0
        self._iterations += 1
        if self._iterations > MAX_ITERATIONS_WITHOUT_PROGRESS:
            self._iterations = 0
            self._on_stop(Livelock, f"no time passes in {MAX_ITERATIONS_WITHOUT_PROGRESS} turns")

    def advance(self, until: float) -> None:
        """Advance to `until`, or to the next action before it."""
        scheduled = self._scheduled
        when = min(scheduled[0][0], until) if scheduled else until
        if when > self.limit_s:
            self._now = max(self._now, self.limit_s)
            self._on_stop(Overdue, f"the program has not ended in {self.limit_s:g} s")
        elif when == NEVER:
            self._on_stop(Deadlock, "nobody can ever go on")
        else:
            self._go_to(when)

    def _go_to(self, when: float) -> None:
        if when > self._now:
            self._now = when
        else:
            self.on_iteration()
        scheduled = self._scheduled
        while scheduled and scheduled[0][0] <= self._now:
            heappop(scheduled)[2]()
