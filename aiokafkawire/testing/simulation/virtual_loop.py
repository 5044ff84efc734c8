"""asyncio's event loop in virtual time, independent of the addresses of objects in memory.

The only module that uses private names of anyio: its scopes cancel their tasks in an order that
differs from process to process.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from anyio._backends import _asyncio as anyio_asyncio

from aiokafkawire.runtime import NEVER
from aiokafkawire.testing.simulation.task_dump import SuspendedTask, waiting
from aiokafkawire.testing.simulation.virtual_time import VirtualTime

__all__ = ("VirtualLoop", "scopes_in_order")

RESOLUTION_S = 1e-9
"""Timers that are due within this time run together: float arithmetic loses smaller differences."""


class VirtualSelector(selectors.SelectSelector):
    """Advances virtual time instead of waiting for file descriptors."""

    time: VirtualTime

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout == 0:
            self.time.on_iteration()
        else:
            self.time.advance(NEVER if timeout is None else self.time.now() + timeout)
        return []


class NumberedTask(asyncio.Task[Any]):
    """A task with its number as hash, so that sets of tasks have a reproducible order."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number  # before the first use of the hash
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number

    def __repr__(self) -> str:
        # anyio records it at each cancellation; the default repr is long.
        return f"<Task {self.get_name()}>"


class NumberedScope(anyio_asyncio.CancelScope):
    """A cancel scope with its number as hash, so that sets of scopes have a reproducible order."""

    __slots__ = ("_number",)
    _numbers = count()

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:  # most scopes are never in a set
            self._number: int = next(self._numbers)
            return self._number


@contextmanager
def scopes_in_order() -> Iterator[None]:
    """Let anyio create scopes that cancel in the same order in every process."""
    before = anyio_asyncio.CancelScope
    numbers, NumberedScope._numbers = NumberedScope._numbers, count()
    anyio_asyncio.CancelScope = NumberedScope  # type: ignore[misc]
    try:
        yield
    finally:
        anyio_asyncio.CancelScope = before  # type: ignore[misc]
        NumberedScope._numbers = numbers


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop that advances virtual time whenever all tasks wait."""

    def __init__(self, time: VirtualTime) -> None:
        self._task_numbers = count()
        selector = VirtualSelector()
        selector.time = time
        super().__init__(selector)
        self._clock_resolution = RESOLUTION_S
        self.time = time.now  # type: ignore[method-assign]

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        number = next(self._task_numbers)
        name = options.pop("name", None) or f"Task-{number}"
        return NumberedTask(number, coro, loop=self, name=name, **options)

    def tasks(self) -> Iterator[tuple[object, SuspendedTask]]:
        """Yield all tasks, and where they wait."""
        for task in sorted(asyncio.all_tasks(self), key=asyncio.Task.get_name):
            yield task, waiting(task.get_name(), task.get_coro())

    def timers(self) -> Iterator[str]:
        """Yield pending timers."""
        handles: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        for handle in sorted(handles, key=asyncio.TimerHandle.when):
            if not handle.cancelled():
                called = getattr(handle._callback, "__qualname__", "?")  # type: ignore[attr-defined]
                yield f"{called} at {handle.when():.6f} s"
