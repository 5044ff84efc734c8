"""Cancel a call at each of its suspensions: the first, the second, … until it ends uncancelled.

A coroutine is driven by hand, so that its suspensions can be counted. At the chosen one it is
cancelled in one of the ways that an application has, and at one of two times: while it waits
(`WHILE_WAITING`), or when what it waited for has come and its task is about to run
(`AFTER_COMPLETION`, which asyncio alone has: there a cancellation wins over a result that is there
already).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import anyio
import sniffio

MAX_SUSPENSIONS = 100
"""More than any call has: one that is suspended more often does not end."""

FAR_S = 3_600.0


class CancelTime(enum.Enum):
    WHILE_WAITING = "at once"
    AFTER_COMPLETION = "too late"


@dataclass(slots=True)
class Outcome:
    """Outcome of a call. `hit`: it came to the suspension at which it was to be cancelled."""

    hit: bool = False
    cancelled: bool = False
    result: Any = None
    error: BaseException | None = None


class SuspensionCounter:
    """Awaits a coroutine; `reached(n, waits_for)` is called at each suspension."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], reached: Callable[[int, Any], None]
    ) -> None:
        self._coroutine = coroutine
        self._reached = reached

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        step: Callable[[], Any] = lambda: inner.send(None)  # noqa: E731
        number = 0
        while True:
            try:
                waits_for = step()
            except StopIteration as stop:
                return stop.value
            number += 1
            self._reached(number, waits_for)
            try:
                value = yield waits_for
            except BaseException as error:
                step = _throwing(inner, error)
            else:
                step = _sending(inner, value)


def _sending(inner: Any, value: Any) -> Callable[[], Any]:
    return lambda: inner.send(value)


def _throwing(inner: Any, error: BaseException) -> Callable[[], Any]:
    return lambda: inner.throw(error)


class Attempt:
    """One call, cancelled at its `at`-th suspension."""

    def __init__(self, call: Callable[[], Awaitable[Any]], at: int, when: CancelTime) -> None:
        self.outcome = Outcome()
        self.cancel: Callable[[], object] = lambda: None
        self.again: Callable[[], object] | None = None
        self._call = call
        self._at = at
        self._when = when

    async def run(self) -> None:
        """Make the call. What it raises but a cancellation is kept in the outcome."""
        try:
            self.outcome.result = await SuspensionCounter(_as_coroutine(self._call), self._reached)
        except Exception as error:
            self.outcome.error = error
        except BaseException as error:
            self.outcome.cancelled, self.outcome.error = True, error
            raise

    def _reached(self, number: int, waits_for: Any) -> None:
        assert number <= MAX_SUSPENSIONS, "the call does not end"
        if number == self._at:
            self.outcome.hit = True
            if self._when is CancelTime.WHILE_WAITING:
                self.cancel()
            elif isinstance(waits_for, asyncio.Future):
                # Before the task's own callback, which is added when this returns.
                waits_for.add_done_callback(lambda _: self.cancel())
            else:
                asyncio.get_running_loop().call_soon(self.cancel)
        elif number == self._at + 1 and self.again is not None:
            self.again()


async def _as_coroutine(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


Way = Callable[[Attempt], Coroutine[Any, Any, None]]


async def by_scope(attempt: Attempt) -> None:
    with anyio.CancelScope() as scope:
        attempt.cancel = scope.cancel
        await attempt.run()


async def by_task(attempt: Attempt) -> None:
    task = asyncio.get_running_loop().create_task(attempt.run(), name="cancelled")
    attempt.cancel = task.cancel
    await asyncio.wait([task])


async def by_task_twice(attempt: Attempt) -> None:
    """The second time while the call deals with the first one."""
    task = asyncio.get_running_loop().create_task(attempt.run(), name="cancelled")
    attempt.cancel = attempt.again = task.cancel
    await asyncio.wait([task])


async def by_timeout(attempt: Attempt) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as timeout:
            attempt.cancel = lambda: timeout.reschedule(loop.time())
            await attempt.run()
    except TimeoutError:
        assert attempt.outcome.cancelled


async def by_wait_for(attempt: Attempt) -> None:
    """The timeout's callback is run by hand instead of by the clock.

    Up to Python 3.11 `wait_for` sets its timer by `call_later`, later ones by `call_at`.
    """
    loop = asyncio.get_running_loop()
    call_later, call_at = loop.call_later, loop.call_at
    timers: list[asyncio.TimerHandle] = []

    def catch(handle: asyncio.TimerHandle, callback: Callable[..., Any], *args: Any) -> None:
        def fire() -> None:
            if not handle.cancelled():
                handle.cancel()
                callback(*args)

        timers.append(handle)
        attempt.cancel = fire

    def later(delay: float, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(loop, "call_at", call_at):  # which asyncio's `call_later` calls
            handle = call_later(delay, callback, *args, **kwargs)
        if delay == FAR_S and not timers:
            catch(handle, callback, *args)
        return handle

    def at(when: float, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        handle = call_at(when, callback, *args, **kwargs)
        if not timers and when > loop.time() + FAR_S / 2:
            catch(handle, callback, *args)
        return handle

    with mock.patch.object(loop, "call_later", later), mock.patch.object(loop, "call_at", at):
        try:
            await asyncio.wait_for(attempt.run(), FAR_S)
        except TimeoutError:
            assert attempt.outcome.cancelled
    assert timers, "wait_for sets its timer in a way that this does not know"


def ways() -> list[tuple[str, Way, CancelTime]]:
    """All ways of the running backend, with their names."""
    if sniffio.current_async_library() == "trio":
        return [("scope", by_scope, CancelTime.WHILE_WAITING)]
    chosen: list[tuple[str, Way]] = [
        ("scope", by_scope),
        ("Task.cancel", by_task),
        ("Task.cancel twice", by_task_twice),
        ("asyncio.timeout", by_timeout),
        ("asyncio.wait_for", by_wait_for),
    ]
    return [(f"{name}, {when.value}", way, when) for name, way in chosen for when in CancelTime]


async def each_suspension(
    call: Callable[[], Awaitable[Any]], way: Way, when: CancelTime
) -> AsyncIterator[Outcome]:
    """The outcome of the call cancelled at its first suspension, at its second, …; the last one
    was not cancelled. `call` is called again each time."""
    for at in range(1, MAX_SUSPENSIONS):
        attempt = Attempt(call, at, when)
        await way(attempt)
        yield attempt.outcome
        if not attempt.outcome.hit:
            return
    raise AssertionError("the call does not end")
