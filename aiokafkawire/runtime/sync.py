"""Synchronization of tasks: event, timer, future and checkpoint.

On asyncio these use plain futures and loop timers. Each request waits several times, and the events
and cancel scopes of anyio cost more than the work in between.
"""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

from aiokafkawire.runtime.interfaces import AT_ONCE, NEVER
from aiokafkawire.runtime.supervisor import running_on_trio

__all__ = (
    "AutoResetEvent",
    "Future",
    "SingleWaiterFuture",
    "Timer",
    "Waiters",
    "checkpoint",
    "copy_error",
    "in_slices",
    "wait_until",
)

ITEMS_PER_SLICE = 1_000
"""Items that a long loop handles between two checkpoints: a few milliseconds of work."""

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

SingleWaiterFuture = asyncio.Future
"""Future for one waiting task on asyncio. Creating it directly is faster than `create_future`."""


async def checkpoint() -> None:
    """Let other tasks run, and raise a pending cancellation."""
    if running_on_trio():
        await anyio.lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)


def in_slices(items: Sequence[T], size: int = ITEMS_PER_SLICE) -> AsyncIterator[Sequence[T]]:
    """Yield slices of the items, with a checkpoint between two slices.

    State that was read for one slice may be stale in the next. A single slice does not suspend.

    Args:
        items: Items of a long loop.
        size: Items per slice.
    """
    return _SliceIterator(items, size)


class _SliceIterator(AsyncIterator[Sequence[T]]):
    """Not a generator: trio warns about a generator that an exception left unfinished."""

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
    """Return a copy of an error to raise: the traceback of an object grows with each raise."""
    copied = copy.copy(error)
    # `copy` drops the cause, which often is the OSError with the reason.
    if error.__cause__ is not None:
        copied.__cause__ = error.__cause__
    return copied


async def wait_until(event: anyio.Event, deadline: float) -> bool:
    """Wait for an event up to a deadline.

    Returns:
        False if the deadline passed first.
    """
    if event.is_set():
        return True
    if deadline == NEVER:
        await event.wait()
        return True
    with anyio.CancelScope(deadline=deadline):
        await event.wait()
    return event.is_set()


class Waiters:
    """The tasks that wait for the next `notify_all`."""

    __slots__ = ("_event", "_futures")

    def __init__(self) -> None:
        self._event: anyio.Event | None = None
        self._futures: dict[asyncio.Future[bool], None] | None = None

    def notify_all(self) -> None:
        """Wake all waiting tasks."""
        futures, self._futures = self._futures, None
        for future in futures or ():
            if not future.done():  # its task may have been cancelled
                try:  # noqa: SIM105 - free unless it raises
                    future.set_result(True)
                except RuntimeError:  # the event loop is closed: the task never runs again
                    pass
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait_notified(self, deadline: float) -> bool:
        """Wait for `notify_all` up to a deadline; return False if the deadline passed first."""
        if running_on_trio():
            if self._event is None:
                self._event = anyio.Event()
            return await wait_until(self._event, deadline)
        future = self.new_future()
        timer = None
        if deadline != NEVER:
            timer = future.get_loop().call_at(deadline, _on_deadline, future, deadline)
        try:
            await future
            # Only `notify_all` removes it before: also after the timer fired, before this task ran.
            return self._futures is None or future not in self._futures
        finally:
            if timer is not None:
                timer.cancel()
            self.discard(future)

    def new_future(self) -> asyncio.Future[bool]:
        """Return a future that `notify_all` resolves, until it is discarded. asyncio only."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._futures is None:
            self._futures = {future: None}
        else:
            self._futures[future] = None
        return future

    def discard(self, waiter: Awaitable[bool]) -> None:
        """Forget a future of `new_future`, or the awaitable of `Future.new_waiter`."""
        if self._futures is not None:
            self._futures.pop(waiter, None)  # type: ignore[call-overload]


def _resolve(future: asyncio.Future[bool], came: bool) -> None:
    if not future.done():
        future.set_result(came)


def _on_deadline(future: asyncio.Future[bool], deadline: float) -> None:
    """Resolve to False at the deadline. Event loops may fire up to one clock tick early: re-arm."""
    loop = future.get_loop()
    if loop.time() >= deadline:
        _resolve(future, False)
    elif not future.done():
        loop.call_at(deadline, _on_deadline, future, deadline)


class AutoResetEvent(Waiters):
    """Wakes all waiting tasks; a `set` without waiting tasks is kept for the next `wait`."""

    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        self._event = self._futures = None
        self._is_set = False

    def set(self) -> None:
        """Wake all waiting tasks, or the next one to wait."""
        self._is_set = True
        if self._futures is not None or self._event is not None:
            self.notify_all()

    async def wait(self, deadline: float = NEVER) -> bool:
        """Wait for `set` and reset the event.

        Returns:
            False if the deadline passed first.
        """
        if not self._is_set and not await self.wait_notified(deadline):
            return False
        self._is_set = False
        return True


class Timer:
    """Wakes one waiting task at a deadline that other tasks may change.

    Args:
        callback: Called at the deadline. If it reschedules the timer, the task keeps waiting; its
            exceptions are raised in the task. Not called on trio, where the task wakes instead.

    Attributes:
        deadline: Current deadline; `AT_ONCE` while no task waits.
    """

    __slots__ = ("_callback", "_event", "_future", "_handle", "_handle_at", "_scope", "deadline")

    def __init__(self, callback: Callable[[], None] | None = None) -> None:
        self.deadline = AT_ONCE
        self._callback = callback
        self._event: anyio.Event | None = None
        self._scope: anyio.CancelScope | None = None
        self._future: asyncio.Future[bool] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at = NEVER

    async def wait(self, deadline: float) -> None:
        """Wait until the deadline, which `reschedule` may change meanwhile."""
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
            self.deadline = AT_ONCE
            self._event = self._scope = self._future = None
            if self._handle is not None:
                self._handle.cancel()
                self._handle = None

    def reschedule(self, deadline: float) -> None:
        """Change the deadline of the waiting task; `AT_ONCE` wakes it immediately."""
        if deadline == self.deadline:
            return
        if self._future is not None:
            self.deadline = deadline
            if deadline == AT_ONCE:
                _resolve(self._future, True)
            # A handle that fires too early re-arms itself: cheaper than rescheduling it here.
            elif deadline != NEVER and (self._handle is None or deadline < self._handle_at):
                if self._handle is not None:
                    self._handle.cancel()
                self._set_timer(self._future, deadline)
        elif self._event is not None and self._scope is not None:
            self.deadline = deadline
            if deadline == AT_ONCE:
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
        come = self.deadline <= now()  # evaluated once: never wake the task without the callback
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


class Future(Waiters, Generic[T]):
    """A result that is set once, for any number of waiting tasks on asyncio or trio.

    Creates no event until a task waits for a result that is not set. Subclasses with many instances
    set the attributes of this class themselves: calling its `__init__` would double their cost.

    Attributes:
        done: True once the result or exception is set.
        value: The result, or None.
        error: The exception, or None.
    """

    __slots__ = ("_done_callback", "done", "error", "value")

    def __init__(self) -> None:
        self._event = self._futures = None
        self.done = False
        self._done_callback: Callable[[Future[T]], None] | None = None
        self.value: T | None = None
        self.error: BaseException | None = None

    def set_result(self, value: T | None, error: BaseException | None = None) -> None:
        """Set the result, or `error` as the exception. Ignored if the future is done."""
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
        """Set the exception. Ignored if the future is done."""
        self.set_result(None, error)

    def result(self) -> T:
        """Return the result or raise the exception of a future that is done."""
        if self.error is not None:
            raise copy_error(self.error)
        return self.value  # type: ignore[return-value]

    def set_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Set the callback for when the future is done; call it now if it is.

        A future has one callback, which must not raise.
        """
        if self.done:
            callback(self)
        else:
            self._done_callback = callback

    def new_waiter(self) -> Awaitable[bool]:
        """Return an awaitable that ends once the future, which must not be done, is done.

        Await it once and immediately. After an interrupted wait, pass it to `discard`.
        """
        if "trio" in sys.modules and running_on_trio():
            return self.wait_notified(NEVER)
        return self.new_future()

    async def wait(self, deadline: float = NEVER) -> T:
        """Wait for the result.

        Raises:
            TimeoutError: The deadline passed first.
        """
        if not self.done and not await self.wait_notified(deadline):
            raise TimeoutError
        return self.result()
