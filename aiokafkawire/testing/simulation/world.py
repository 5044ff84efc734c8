"""A world: hosts in a network, one virtual time, one seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Literal, Protocol, TypeVar

import anyio

from aiokafkawire.runtime import NEVER, checkpoint
from aiokafkawire.runtime.supervisor import current_task
from aiokafkawire.testing.simulation.clock import SimulatedClock
from aiokafkawire.testing.simulation.links import Links, NetworkOptions
from aiokafkawire.testing.simulation.network import Network
from aiokafkawire.testing.simulation.runtime import SimulatedRuntime
from aiokafkawire.testing.simulation.task_dump import SuspendedTask
from aiokafkawire.testing.simulation.trace import Trace
from aiokafkawire.testing.simulation.virtual_loop import VirtualLoop, scopes_in_order
from aiokafkawire.testing.simulation.virtual_time import Stop, VirtualTime

__all__ = ("Backend", "World")

MAX_SETTLING_ITERATIONS = 100
"""Event loop iterations after the program in which its resources may still be released."""

GRACE_S = 120.0
"""Time to close the clients of a program that exceeded its time limit."""

SHOWN_LINES = 20
"""Lines of the trace in a failure."""

T = TypeVar("T")
Backend = Literal["asyncio", "trio"]


class Loop(Protocol):
    """Interface of the event loop that runs a world."""

    def tasks(self) -> Iterable[tuple[object, SuspendedTask]]: ...
    def timers(self) -> Iterable[str]: ...


class World:
    """Runs one program in simulated time; a world is used once.

    Clients and brokers use `runtime(host)`. `network` injects faults, `clock` is the wall clock of
    all hosts, `trace` records the network's events. All random decisions follow from the seed.
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
        self._time = VirtualTime(self._stop)
        self.now: Callable[[], float] = self._time.now  # seconds since the beginning
        self.trace = Trace(self.now)
        self.clock = SimulatedClock(self.now, self.trace)
        links = Links(network or NetworkOptions(), self.rng)
        self.network = Network(self.clock, self._time, self.trace, links)
        self._clocks: dict[str, SimulatedClock] = {}
        self._runtimes: Counter[str] = Counter()
        self._loop: Loop | None = None
        self._first_tasks: list[object] = []
        self._left_behind: list[str] = []
        self._failure: Stop | None = None
        self._scope: anyio.CancelScope | None = None

    def rng(self, purpose: str) -> random.Random:
        """Return a separate random generator, which depends on the seed and the purpose alone."""
        return random.Random(f"{self.seed}/{purpose}")

    def clock_of(self, host: str) -> SimulatedClock:
        """Return the clock of one host, whose wall clock may jump separately."""
        clock = self._clocks.get(host)
        if clock is None:
            clock = self._clocks[host] = SimulatedClock(self.now, self.trace, host, self.clock)
        return clock

    def runtime(self, host: str) -> SimulatedRuntime:
        """Return the runtime for one client or broker on a host, given by its IP address.

        The runtimes of a host share its clock, and each has its own random generator.
        """
        self._runtimes[host] += 1
        rng = self.rng(f"{host}/{self._runtimes[host]}")
        return SimulatedRuntime(host, self.network, self.clock_of(host), rng)

    def run(self, main: Callable[[], Awaitable[T]], *, limit_s: float = NEVER) -> T:
        """Run the program to its end.

        Args:
            main: The program. Its exceptions are raised here.
            limit_s: Limit of its duration, in seconds of virtual time.

        Raises:
            Deadlock: All tasks wait, and no event is scheduled that could wake one.
            Livelock: Tasks wake each other without end while no time passes.
            Overdue: The program did not end within `limit_s`.
        """
        results: list[T] = []
        self._time.limit_s = limit_s

        async def guarded() -> None:
            self._first_tasks = [task for task, _ in self._tasks()]
            with anyio.CancelScope() as self._scope:
                results.append(await main())
            await self._settle()

        try:
            if self.backend == "trio":
                self._run_on_trio(guarded)
            else:
                self._run_on_asyncio(guarded)
        finally:
            self._loop = None
            if self._failure is not None:
                raise self._failure
        return results[0]

    def _run_on_asyncio(self, main: Callable[[], Awaitable[None]]) -> None:
        def make_loop() -> VirtualLoop:
            self._loop = loop = VirtualLoop(self._time)
            return loop

        with scopes_in_order():
            anyio.run(main, backend="asyncio", backend_options={"loop_factory": make_loop})

    def _run_on_trio(self, main: Callable[[], Awaitable[None]]) -> None:
        # asyncio simulations work without trio.
        from aiokafkawire.testing.simulation import trio_scheduling  # noqa: PLC0415

        self._loop = trio_scheduling
        options: dict[str, Any] = {
            "clock": trio_scheduling.virtual_clock(self._time),
            "instruments": [trio_scheduling.TrioScheduler(self._time)],
        }
        with trio_scheduling.seeded(self.seed):
            anyio.run(main, backend="trio", backend_options=options)

    def left_behind(self) -> list[str]:
        """Return leaked tasks, timers, listening ports and connections.

        During the run, the present ones without the calling task; afterwards, those that were left
        at its end.
        """
        if self._loop is None:
            return self._left_behind
        return sorted(self._find_leaks(self._loop))

    def _find_leaks(self, loop: Loop) -> Iterator[str]:
        own = [*self._first_tasks, current_task()]
        for task, waits in loop.tasks():
            if task not in own:
                yield f"task {waits}"
        yield from (f"timer {timer}" for timer in loop.timers())
        yield from self.network.open_sockets()

    async def _settle(self) -> None:
        for _ in range(MAX_SETTLING_ITERATIONS):
            self._left_behind = self.left_behind()
            if not self._left_behind:
                return
            await checkpoint()

    def _tasks(self) -> Iterable[tuple[object, SuspendedTask]]:
        return () if self._loop is None else self._loop.tasks()

    def _stop(self, kind: type[Stop], why: str) -> None:
        """Cancel the program; raise if it was cancelled before."""
        lines = [f"{why}, at {self.now():.6f} s, seed {self.seed}:"]
        lines += [f"  {waits}" for _, waits in self._tasks()]
        lines += ["connections:", *(f"  {line}" for line in self.network.in_transit())]
        lines += ["what happened last:", *(f"  {line}" for line in self.trace.last(SHOWN_LINES))]
        failure = kind("\n".join(lines))
        self._time.limit_s = self.now() + GRACE_S
        if self._failure is not None or self._scope is None:
            raise failure
        self._failure = failure
        self._scope.cancel()
