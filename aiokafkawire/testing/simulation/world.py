"""A world: hosts in a network, one virtual time, one seed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, TypeVar

import anyio

from aiokafkawire.testing.simulation.network import Network, NetworkOptions
from aiokafkawire.testing.simulation.runtime import SimulatedClock, SimulatedRuntime
from aiokafkawire.testing.simulation.trace import Trace
from aiokafkawire.testing.simulation.virtual_loop import VirtualLoop
from aiokafkawire.testing.simulation.waits import Waiting

__all__ = ("MAX_TURNS_AT_ONE_TIME", "Backend", "Deadlock", "Livelock", "World")

MAX_TURNS_AT_ONE_TIME = 100_000
"""Turns of the event loop without any time passing; more means that tasks run in a circle."""

T = TypeVar("T")
Backend = Literal["asyncio", "trio"]


class Deadlock(Exception):
    """All tasks wait, and nothing will ever wake any of them. The text says who waits where."""


class Livelock(Exception):
    """Tasks wake each other without end, and no time passes."""


class World:
    """Runs one program in simulated time; a world is used once.

    `runtime(host)` is given to clients and brokers, `network` makes bad days, `trace` is what the
    network did. Whatever is decided by chance is decided by the seed.
    """

    def __init__(
        self,
        seed: int,
        *,
        backend: Backend = "asyncio",
        network: NetworkOptions | None = None,
    ) -> None:
        self.seed = seed
        self.backend = backend
        self.trace = Trace(self.now)
        self.clock = SimulatedClock(self.now)
        self.network = Network(
            self.clock, self.rng("network"), self.trace, network or NetworkOptions()
        )
        self._time: Callable[[], float] = lambda: 0.0
        self._waiting: Callable[[], Iterable[Waiting]] = tuple
        self._turns = 0
        self._turned_at = -1.0
        self._failure: Deadlock | Livelock | None = None
        self._scope: anyio.CancelScope | None = None

    def now(self) -> float:
        """Seconds since the beginning."""
        return self._time()

    def rng(self, purpose: str) -> random.Random:
        """A source of chance of its own, the same for the same seed and purpose."""
        return random.Random(f"{self.seed}/{purpose}")

    def runtime(self, host: str) -> SimulatedRuntime:
        """The outside world as one host, given by its IP address, sees it."""
        return SimulatedRuntime(host, self.network, self.clock, self.rng(host))

    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run the program to its end. Raises what it raises, `Deadlock`, `Livelock`."""
        results: list[T] = []

        async def guarded() -> None:
            with anyio.CancelScope() as self._scope:
                results.append(await main())

        try:
            if self.backend == "trio":
                self._run_on_trio(guarded)
            else:
                self._run_on_asyncio(guarded)
        finally:
            if self._failure is not None:
                raise self._failure
        return results[0]

    def _run_on_asyncio(self, main: Callable[[], Awaitable[None]]) -> None:
        def make_loop() -> VirtualLoop:
            loop = VirtualLoop(self._stuck, self._turn)
            self._time, self._waiting = loop.time, loop.waiting
            return loop

        anyio.run(main, backend="asyncio", backend_options={"loop_factory": make_loop})

    def _run_on_trio(self, main: Callable[[], Awaitable[None]]) -> None:
        # Whoever has no trio can simulate on asyncio.
        from aiokafkawire.testing.simulation import trio_scheduling  # noqa: PLC0415

        clock = trio_scheduling.virtual_clock(self._stuck)
        self._time, self._waiting = clock.current_time, trio_scheduling.tasks_waiting
        options: dict[str, Any] = {"clock": clock, "instruments": [_Turns(self._turn)]}
        with trio_scheduling.seeded(self.seed):
            anyio.run(main, backend="trio", backend_options=options)

    def _stuck(self) -> None:
        self._fail(Deadlock, "nobody can ever go on")

    def _turn(self) -> None:
        now = self._time()
        if now != self._turned_at:
            self._turned_at, self._turns = now, 0
        self._turns += 1
        if self._turns > MAX_TURNS_AT_ONE_TIME:
            self._turns = 0
            self._fail(Livelock, f"no time passes in {MAX_TURNS_AT_ONE_TIME} turns")

    def _fail(self, kind: type[Deadlock | Livelock], why: str) -> None:
        """Cancel the program; if that does not help either, break off."""
        tasks = "\n".join(f"  {task}" for task in self._waiting())
        failure = kind(f"{why}, at {self._time():.6f} s, seed {self.seed}:\n{tasks}")
        if self._failure is not None or self._scope is None:
            raise failure
        self._failure = failure
        self._scope.cancel()


class _Turns:
    """Counts the turns of trio's loop (a `trio.abc.Instrument`)."""

    def __init__(self, on_turn: Callable[[], None]) -> None:
        self._on_turn = on_turn

    def before_io_wait(self, timeout: float) -> None:
        self._on_turn()
