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

from aiokafkawire.runtime.interfaces import NEVER
from aiokafkawire.runtime.supervisor import running_on_trio

__all__ = (
    "AutoResetEvent",
    "Future",
    "SingleWaiterFuture",
    "Timer",
    "checkpoint",
    "copy_error",
    "in_slices",
    "wait_until",
)

ITEMS_PER_SLICE = 1_000
"""Items of a long loop between two steps of the event loop: a few milliseconds of work."""

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

SingleWaiterFuture = asyncio.Future
"""What one task alone waits for, on asyncio. Made without the loop's own function, in one step."""


async def checkpoint() -> None:
    """Let other tasks run, and let a cancellation come through."""
    if running_on_trio():
        await anyio.lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)


def in_slices(items: Sequence[T], size: int = ITEMS_PER_SLICE) -> AsyncIterator[Sequence[T]]:
    """Yield slices of the items, and let other tasks run between two slices.

    State that was read for one slice may be stale in the next. A single slice does not suspend.
    """
    return _SliceIterator(items, size)


class _SliceIterator(AsyncIterator[Sequence[T]]):
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


def copy_error(error: E) -> E:
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


class _Waiters:
    """Tasks that wait for one and the same thing, which has not come yet."""

    __slots__ = ("_event", "_futures")

    def __init__(self) -> None:
        self._event: anyio.Event | None = None
        self._futures: dict[asyncio.Future[bool], None] | None = None

    def notify_all(self) -> None:
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

    async def wait_notified(self, deadline: float) -> bool:
        """Wait until it comes, or for the deadline; whether it came."""
        if running_on_trio():
            if self._event is None:
                self._event = anyio.Event()
            return await wait_until(self._event, deadline)
        future = self.new_future()
        timer = None
        if deadline != NEVER:
            timer = future.get_loop().call_at(deadline, _on_deadline, future, deadline)
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            self.discard(future)

    def new_future(self) -> asyncio.Future[bool]:
        """What wakes one task on asyncio, until it is given back."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._futures is None:
            self._futures = {future: None}
        else:
            self._futures[future] = None
        return future

    def discard(self, waiter: Awaitable[bool]) -> None:
        """A place is not waited at any more."""
        if self._futures is not None:
            self._futures.pop(waiter, None)  # type: ignore[call-overload]


def _resolve(future: asyncio.Future[bool], came: bool) -> None:
    if not future.done():
        future.set_result(came)


def _on_deadline(future: asyncio.Future[bool], deadline: float) -> None:
    """The deadline comes; loops ring up to a step of their clock too early."""
    loop = future.get_loop()
    if loop.time() >= deadline:
        _resolve(future, False)
    elif not future.done():
        loop.call_at(deadline, _on_deadline, future, deadline)


class AutoResetEvent:
    """Wakes the tasks that wait on it. A `set` while nobody waits is kept for the next wait."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: _Waiters | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiters is not None:
            self._waiters.notify_all()
            self._waiters = None

    async def wait(self, deadline: float = NEVER) -> bool:
        """Wait for a `set` (or take the one that is kept); False if the deadline came first."""
        if not self._is_set:
            if self._waiters is None:
                self._waiters = _Waiters()
            # It may have been set between the deadline's timer and this task's turn.
            if not await self._waiters.wait_notified(deadline) and not self._is_set:
                return False
        self._is_set = False
        return True


class Timer:
    """Wakes the one task that waits for it, at a time that others may move.

    `at` is that time while the task waits, and before all times while it does not. `ring` is called
    when the time comes, and may move it on: then the task sleeps on. What it raises, the task gets.
    (With trio the task is woken.)
    """

    __slots__ = ("_callback", "_event", "_future", "_handle", "_handle_at", "_scope", "deadline")

    def __init__(self, callback: Callable[[], None] | None = None) -> None:
        self.deadline = -NEVER
        self._callback = callback
        self._event: anyio.Event | None = None
        self._scope: anyio.CancelScope | None = None
        self._future: asyncio.Future[bool] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at = NEVER

    async def wait(self, deadline: float) -> None:
        """Wait until the time comes, wherever it is moved to meanwhile."""
        self.deadline = deadline
        try:
            if running_on_trio():
                self._event = anyio.Event()
                with anyio.CancelScope(deadline=deadline) as self._scope:
                    await self._event.wait()
                return
            self._future = asyncio.get_running_loop().create_future()
            if deadline != NEVER:
                self._set_timer(self._future, deadline)
            await self._future
        finally:
            self.deadline = -NEVER
            self._event = self._scope = self._future = None
            if self._handle is not None:
                self._handle.cancel()
                self._handle = None

    def reschedule(self, deadline: float) -> None:
        """Let a task that waits wake at another time; before all times: now."""
        if deadline == self.deadline:
            return
        if self._future is not None:
            self.deadline = deadline
            if deadline == -NEVER:
                _resolve(self._future, True)
            # A timer that goes too early finds out: moving it would cost more.
            elif deadline != NEVER and (self._handle is None or deadline < self._handle_at):
                if self._handle is not None:
                    self._handle.cancel()
                self._set_timer(self._future, deadline)
        elif self._event is not None and self._scope is not None:
            self.deadline = deadline
            if deadline == -NEVER:
                self._event.set()
            else:
                self._scope.deadline = deadline

    def _set_timer(self, future: asyncio.Future[bool], at: float) -> None:
        self._handle_at = at
        self._handle = future.get_loop().call_at(at, self._on_timer, future)

    def _on_timer(self, future: asyncio.Future[bool]) -> None:
        self._handle = None
        if future.done():
            return
        now = future.get_loop().time
        come = self.deadline <= now()  # looked at once: a task is not woken by what has not rung
        if come and self._callback is not None:
            try:
                self._callback()
            except Exception as error:
                if future.done():
                    raise
                future.set_exception(error)
                return
            come = self.deadline <= now()
        if come:
            _resolve(future, True)
        elif self.deadline != NEVER and self._handle is None:
            self._set_timer(future, self.deadline)


class Future(_Waiters, Generic[T]):
    """One value or one error that comes later, once, for any number of waiters.

    Costs no event until somebody waits before it is there. `value` or `error` is the outcome.
    A class derived from it of which there are many sets the same attributes itself: to have one
    function make both kinds takes longer than all else in it.
    """

    __slots__ = ("_done_callback", "done", "error", "value")

    def __init__(self) -> None:
        super().__init__()
        self.done = False
        self._done_callback: Callable[[Future[T]], None] | None = None
        self.value: T | None = None
        self.error: BaseException | None = None

    def set_result(self, value: T | None, error: BaseException | None = None) -> None:
        """Give the value. A second outcome is ignored: the first one was already told."""
        if self.done:
            return
        self.done = True
        self.value = value
        self.error = error
        if self._futures is not None or self._event is not None:
            self.notify_all()
        callback = self._done_callback
        if callback is not None:
            self._done_callback = None
            callback(self)

    def set_exception(self, error: BaseException) -> None:
        """Give the error. A second outcome is ignored: the first one was already told."""
        self.set_result(None, error)

    def result(self) -> T:
        """The outcome, which must be there (`done`)."""
        if self.error is not None:
            raise copy_error(self.error)
        return self.value  # type: ignore[return-value]

    def set_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call back with this promise where the outcome is told, or now if it is there. One can be
        called; it must not raise."""
        if self.done:
            callback(self)
        else:
            self._done_callback = callback

    def new_waiter(self) -> Awaitable[bool]:
        """What to await, once and at once, for the outcome, which is not there yet. A future on
        asyncio; whoever does not come to its end gives it back with `leave`."""
        if "trio" in sys.modules and running_on_trio():
            return self.wait_notified(NEVER)
        return self.new_future()

    async def wait(self, deadline: float = NEVER) -> T:
        """Wait for the outcome; `TimeoutError` if the deadline comes first."""
        # The outcome may have come between the deadline's timer and this task's turn.
        if not self.done and not await self.wait_notified(deadline) and not self.done:
            raise TimeoutError
        return self.result()
