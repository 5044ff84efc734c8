"""Clocks of simulated hosts."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from aiokafkawire.testing.simulation.trace import Trace

__all__ = ("EPOCH_MS", "SimulatedClock")

EPOCH_MS = 1_600_000_000_000
"""Wall clock at the start of a simulation."""


class SimulatedClock:
    """The virtual time, and a wall clock that may jump (`runtime.Clock`).

    `common` is the clock whose jumps this one follows.
    """

    def __init__(
        self,
        now: Callable[[], float],
        trace: Trace,
        name: str = "all hosts",
        common: SimulatedClock | None = None,
    ) -> None:
        self.now = now
        self._trace = trace
        self._name = name
        self._common = common
        self._jumped_ms = 0

    @property
    def skew_ms(self) -> int:
        """Offset of the wall clock due to jumps."""
        return self._jumped_ms + (self._common.skew_ms if self._common is not None else 0)

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self.now() * 1_000) + self.skew_ms

    def wall_ns(self) -> int:
        return self.wall_ms() * 1_000_000

    def jump(self, by_s: float) -> None:
        """Move the wall clock forwards or backwards; `now` is not affected."""
        self._trace.note(f"the wall clock of {self._name} jumps by {by_s:g} s")
        self._jumped_ms += round(by_s * 1_000)

    async def sleep_until(self, deadline: float) -> None:
        await anyio.sleep_until(deadline)
