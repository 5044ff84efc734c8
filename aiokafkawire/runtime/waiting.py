"""Waiting: a signal between tasks, and the promise of one value."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

from aiokafkawire.runtime.base import NEVER

__all__ = ("Alarm", "Promise", "Signal", "checkpoint", "copy_of", "wait_until")

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

checkpoint = anyio.lowlevel.checkpoint
"""Let other tasks run, and let a cancellation come through."""


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


class Signal:
    """Wakes the tasks that wait on it. A `set` while nobody waits is kept for the next wait."""

    __slots__ = ("_event", "_raised")

    def __init__(self) -> None:
        self._raised = False
        self._event: anyio.Event | None = None

    def set(self) -> None:
        self._raised = True
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self, deadline: float = NEVER) -> bool:
        """Wait for a `set` (or take the one that is kept); False if the deadline came first."""
        if not self._raised:
            if self._event is None:
                self._event = anyio.Event()
            if not await wait_until(self._event, deadline):
                return False
        self._raised = False
        return True


class Alarm:
    """Wakes the one task that waits for it, at a time that others may move.

    `at` is that time while the task waits, and before all times while it does not.
    """

    __slots__ = ("_event", "_scope", "at")

    def __init__(self) -> None:
        self.at = -NEVER
        self._event: anyio.Event | None = None
        self._scope: anyio.CancelScope | None = None

    async def wait(self, at: float) -> None:
        """Wait until the time comes, wherever it is moved to meanwhile."""
        self.at = at
        self._event = anyio.Event()
        try:
            with anyio.CancelScope(deadline=at) as self._scope:
                await self._event.wait()
        finally:
            self.at = -NEVER
            self._event = self._scope = None

    def move(self, at: float) -> None:
        """Let a task that waits wake at another time; before all times: now."""
        if self._event is None or self._scope is None or at == self.at:
            return
        self.at = at
        if at == -NEVER:
            self._event.set()
        else:
            self._scope.deadline = at


class Promise(Generic[T]):
    """One value or one error that comes later, once, for any number of waiters.

    Costs no event until somebody waits before it is there.
    """

    __slots__ = ("_error", "_event", "_on_done", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._on_done: Callable[[Promise[T]], None] | None = None
        self._value: T | None = None
        self._error: BaseException | None = None
        self._event: anyio.Event | None = None

    def resolve(self, value: T) -> None:
        """Give the value. A second outcome is ignored: the first one was already told."""
        if not self.done:
            self._value = value
            self._finish()

    def fail(self, error: BaseException) -> None:
        """Give the error. A second outcome is ignored: the first one was already told."""
        if not self.done:
            self._error = error
            self._finish()

    @property
    def error(self) -> BaseException | None:
        """The error, if that is the outcome."""
        return self._error

    def result(self) -> T:
        """The outcome, which must be there (`done`)."""
        if self._error is not None:
            raise copy_of(self._error)
        return self._value  # type: ignore[return-value]

    def when_done(self, callback: Callable[[Promise[T]], None]) -> None:
        """Call back with this promise where the outcome is told, or now if it is there. One can be
        called; it must not raise."""
        if self.done:
            callback(self)
        else:
            self._on_done = callback

    async def wait(self, deadline: float = NEVER) -> T:
        """Wait for the outcome; `TimeoutError` if the deadline comes first."""
        if not self.done:
            if self._event is None:
                self._event = anyio.Event()
            if not await wait_until(self._event, deadline):
                raise TimeoutError
        return self.result()

    def _finish(self) -> None:
        self.done = True
        if self._event is not None:
            self._event.set()
        callback, self._on_done = self._on_done, None
        if callback is not None:
            callback(self)
