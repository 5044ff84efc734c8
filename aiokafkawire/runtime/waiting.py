"""Waiting: a signal between tasks, and the promise of one value.

On asyncio tasks wait for bare futures and for the loop's own timers: a request is waited for a few
times, and anyio's events and deadlines cost more than what is done in between.
"""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

from aiokafkawire.runtime.base import NEVER
from aiokafkawire.runtime.host import on_trio

__all__ = (
    "Alarm",
    "Errand",
    "Promise",
    "Signal",
    "checkpoint",
    "copy_of",
    "in_slices",
    "wait_until",
)

SLICE = 1_000
"""Items of a long loop between two steps of the event loop: a few milliseconds of work."""

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

Errand = asyncio.Future
"""What one task alone waits for, on asyncio. Made without the loop's own function, in one step."""


async def checkpoint() -> None:
    """Let other tasks run, and let a cancellation come through."""
    if on_trio():
        await anyio.lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)


def in_slices(items: Sequence[T], size: int = SLICE) -> AsyncIterator[Sequence[T]]:
    """Yield slices of the items, and let other tasks run between two slices.

    State that was read for one slice may be stale in the next. A single slice does not suspend.
    """
    return _Slices(items, size)


class _Slices(AsyncIterator[Sequence[T]]):
    """No generator: trio warns of one that a loop left by an exception has not closed."""

    __slots__ = ("_items", "_size", "_start")

    def __init__(self, items: Sequence[T], size: int) -> None:
        self._items = items
        self._size = size
        self._start = 0

    async def __anext__(self) -> Sequence[T]:
        start = self._start
        if start >= len(self._items):
            raise StopAsyncIteration
        if start:
            await checkpoint()
        self._start = start + self._size
        return self._items[start : self._start]


def copy_of(error: E) -> E:
    """The error for one more caller: a traceback grows with every raise of one object."""
    copied = copy.copy(error)
    # A copy comes without its cause, which often is the system's own reason.
    if error.__cause__ is not None:
        copied.__cause__ = error.__cause__
    return copied


async def wait_until(event: anyio.Event, deadline: float) -> bool:
    """Wait for an event up to a deadline of the clock; whether it came."""
    if event.is_set():
        return True
    if deadline == NEVER:
        await event.wait()
        return True
    with anyio.CancelScope(deadline=deadline):
        await event.wait()
    return event.is_set()


class _Parking:
    """Tasks that wait for one and the same thing, which has not come yet."""

    __slots__ = ("_event", "_futures")

    def __init__(self) -> None:
        self._event: anyio.Event | None = None
        self._futures: dict[asyncio.Future[bool], None] | None = None

    def come(self) -> None:
        """It has come: wake all."""
        futures, self._futures = self._futures, None
        for future in futures or ():
            if not future.done():  # who waited may have been cancelled
                try:  # noqa: SIM105 - costs nothing where nothing is raised
                    future.set_result(True)
                except RuntimeError:  # its event loop is closed: that task never runs again
                    pass
        if self._event is not None:
            self._event.set()

    async def park(self, deadline: float) -> bool:
        """Wait until it comes, or for the deadline; whether it came."""
        if on_trio():
            if self._event is None:
                self._event = anyio.Event()
            return await wait_until(self._event, deadline)
        future = self.future()
        timer = None
        if deadline != NEVER:
            timer = future.get_loop().call_at(deadline, _run_out, future, deadline)
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            self.leave(future)

    def future(self) -> asyncio.Future[bool]:
        """What wakes one task on asyncio, until it is given back."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._futures is None:
            self._futures = {future: None}
        else:
            self._futures[future] = None
        return future

    def leave(self, place: Awaitable[bool]) -> None:
        """A place is not waited at any more."""
        if self._futures is not None:
            self._futures.pop(place, None)  # type: ignore[call-overload]


def _come(future: asyncio.Future[bool], came: bool) -> None:
    if not future.done():
        future.set_result(came)


def _run_out(future: asyncio.Future[bool], deadline: float) -> None:
    """The deadline comes; loops ring up to a step of their clock too early."""
    loop = future.get_loop()
    if loop.time() >= deadline:
        _come(future, False)
    elif not future.done():
        loop.call_at(deadline, _run_out, future, deadline)


class Signal:
    """Wakes the tasks that wait on it. A `set` while nobody waits is kept for the next wait."""

    __slots__ = ("_parking", "_raised")

    def __init__(self) -> None:
        self._raised = False
        self._parking: _Parking | None = None

    def set(self) -> None:
        self._raised = True
        if self._parking is not None:
            self._parking.come()
            self._parking = None

    async def wait(self, deadline: float = NEVER) -> bool:
        """Wait for a `set` (or take the one that is kept); False if the deadline came first."""
        if not self._raised:
            if self._parking is None:
                self._parking = _Parking()
            # It may have been set between the deadline's timer and this task's turn.
            if not await self._parking.park(deadline) and not self._raised:
                return False
        self._raised = False
        return True


class Alarm:
    """Wakes the one task that waits for it, at a time that others may move.

    `at` is that time while the task waits, and before all times while it does not. `ring` is called
    when the time comes, and may move it on: then the task sleeps on. What it raises, the task gets.
    (With trio the task is woken.)
    """

    __slots__ = ("_event", "_future", "_ring", "_scope", "_timer", "_timer_at", "at")

    def __init__(self, ring: Callable[[], None] | None = None) -> None:
        self.at = -NEVER
        self._ring = ring
        self._event: anyio.Event | None = None
        self._scope: anyio.CancelScope | None = None
        self._future: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER

    async def wait(self, at: float) -> None:
        """Wait until the time comes, wherever it is moved to meanwhile."""
        self.at = deadline = at
        try:
            if on_trio():
                self._event = anyio.Event()
                with anyio.CancelScope(deadline=deadline) as self._scope:
                    await self._event.wait()
                return
            self._future = asyncio.get_running_loop().create_future()
            if at != NEVER:
                self._set_timer(self._future, at)
            await self._future
        finally:
            self.at = -NEVER
            self._event = self._scope = self._future = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def move(self, at: float) -> None:
        """Let a task that waits wake at another time; before all times: now."""
        if at == self.at:
            return
        if self._future is not None:
            self.at = at
            if at == -NEVER:
                _come(self._future, True)
            # A timer that goes too early finds out: moving it would cost more.
            elif at != NEVER and (self._timer is None or at < self._timer_at):
                if self._timer is not None:
                    self._timer.cancel()
                self._set_timer(self._future, at)
        elif self._event is not None and self._scope is not None:
            self.at = at
            if at == -NEVER:
                self._event.set()
            else:
                self._scope.deadline = at

    def _set_timer(self, future: asyncio.Future[bool], at: float) -> None:
        self._timer_at = at
        self._timer = future.get_loop().call_at(at, self._came, future)

    def _came(self, future: asyncio.Future[bool]) -> None:
        self._timer = None
        if future.done():
            return
        now = future.get_loop().time
        come = self.at <= now()  # looked at once: a task is not woken by what has not rung
        if come and self._ring is not None:
            try:
                self._ring()
            except Exception as error:
                if future.done():
                    raise
                future.set_exception(error)
                return
            come = self.at <= now()
        if come:
            _come(future, True)
        elif self.at != NEVER and self._timer is None:
            self._set_timer(future, self.at)


class Promise(_Parking, Generic[T]):
    """One value or one error that comes later, once, for any number of waiters.

    Costs no event until somebody waits before it is there. `value` or `error` is the outcome.
    A class derived from it of which there are many sets the same attributes itself: to have one
    function make both kinds takes longer than all else in it.
    """

    __slots__ = ("_on_done", "done", "error", "value")

    def __init__(self) -> None:
        super().__init__()
        self.done = False
        self._on_done: Callable[[Promise[T]], None] | None = None
        self.value: T | None = None
        self.error: BaseException | None = None

    def resolve(self, value: T | None, error: BaseException | None = None) -> None:
        """Give the value. A second outcome is ignored: the first one was already told."""
        if self.done:
            return
        self.done = True
        self.value = value
        self.error = error
        if self._futures is not None or self._event is not None:
            self.come()
        callback = self._on_done
        if callback is not None:
            self._on_done = None
            callback(self)

    def fail(self, error: BaseException) -> None:
        """Give the error. A second outcome is ignored: the first one was already told."""
        self.resolve(None, error)

    def result(self) -> T:
        """The outcome, which must be there (`done`)."""
        if self.error is not None:
            raise copy_of(self.error)
        return self.value  # type: ignore[return-value]

    def when_done(self, callback: Callable[[Promise[T]], None]) -> None:
        """Call back with this promise where the outcome is told, or now if it is there. One can be
        called; it must not raise."""
        if self.done:
            callback(self)
        else:
            self._on_done = callback

    def place(self) -> Awaitable[bool]:
        """What to await, once and at once, for the outcome, which is not there yet. A future on
        asyncio; whoever does not come to its end gives it back with `leave`."""
        if "trio" in sys.modules and on_trio():
            return self.park(NEVER)
        return self.future()

    async def wait(self, deadline: float = NEVER) -> T:
        """Wait for the outcome; `TimeoutError` if the deadline comes first."""
        # The outcome may have come between the deadline's timer and this task's turn.
        if not self.done and not await self.park(deadline) and not self.done:
            raise TimeoutError
        return self.result()
