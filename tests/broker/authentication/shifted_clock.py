"""The real runtime with a clock that tests move forward."""

from __future__ import annotations

from aiokafkawire.runtime import Clock, RealRuntime


class ShiftedClock:
    """A clock that is ahead of another one. The wall clock may start at a given time."""

    def __init__(self, clock: Clock, wall_ms: int | None = None) -> None:
        self._clock = clock
        self._ahead_s = 0.0
        self._wall_ms = wall_ms

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds

    def now(self) -> float:
        return self._clock.now() + self._ahead_s

    def wall_ms(self) -> int:
        wall_ms = self._clock.wall_ms() if self._wall_ms is None else self._wall_ms
        return wall_ms + int(self._ahead_s * 1000)

    def wall_ns(self) -> int:
        return self.wall_ms() * 1_000_000

    async def sleep_until(self, deadline: float) -> None:
        await self._clock.sleep_until(deadline - self._ahead_s)


class ShiftedRuntime(RealRuntime):
    """`ahead` is its clock. With `wall_ms` its wall clock stands still but for `advance`."""

    def __init__(self, wall_ms: int | None = None) -> None:
        super().__init__()
        self.ahead = ShiftedClock(self.clock, wall_ms)
        self.clock = self.ahead
