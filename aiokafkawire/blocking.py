"""The clients' event loop for callers that have none.

One event loop a process, in a thread of its own, started with the first call. What the process
forked from had does not count: a child starts its own.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import anyio
from anyio.from_thread import BlockingPortal
from anyio.streams.memory import MemoryObjectSendStream

__all__ = ("at_exit", "call", "iterate")

START_S = 30.0
"""The longest that the thread may take to have its event loop."""

GOODBYE_S = 2.0
"""What all that is to be done at the end of the process may take."""

END_S = 10.0
"""What an iteration that is broken off may take to end."""

_Result = TypeVar("_Result")


class _Loop:
    """The thread, its event loop, and what is to be closed before they end."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.goodbyes: list[Callable[[], Awaitable[object]]] = []
        self._portal: Future[BlockingPortal] = Future()
        # A daemon: a process that ends does not wait for it.
        threading.Thread(target=self._run, name="aiokafkawire", daemon=True).start()
        self.portal = self._portal.result(START_S)

    def _run(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as error:
            if not self._portal.done():
                self._portal.set_exception(error)

    async def _serve(self) -> None:
        async with BlockingPortal() as portal:
            self._portal.set_result(portal)
            await portal.sleep_until_stopped()

    def close(self) -> None:
        """Say goodbye, for `GOODBYE_S` at most."""
        if self.pid == os.getpid():
            with suppress(Exception):
                self.portal.start_task_soon(self._say_goodbye).result(GOODBYE_S + 0.5)

    async def _say_goodbye(self) -> None:
        with anyio.move_on_after(GOODBYE_S):
            for goodbye in reversed(self.goodbyes):
                await goodbye()


_lock = threading.Lock()
_loop: _Loop | None = None


def _the_loop() -> _Loop:
    global _loop  # noqa: PLW0603 - one a process
    with _lock:
        if _loop is None or _loop.pid != os.getpid():
            _loop = _Loop()
            atexit.register(_loop.close)
        return _loop


def call(function: Callable[..., Awaitable[_Result]], /, *arguments: Any) -> _Result:
    """Run `function(*arguments)` in the event loop, wait for it, and return or raise what it does.

    An interruption (Ctrl-C) of the wait cancels it.
    """
    future = _the_loop().portal.start_task_soon(function, *arguments)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def iterate(source: AsyncGenerator[_Result, None], ahead: int) -> Iterator[_Result]:
    """Iterate over what one task of the event loop takes from `source`, `ahead` items ahead.

    Raises what that does. Broken off, it is cancelled and `source` closed when this
    returns.
    """
    items, taken = anyio.create_memory_object_stream[_Result](ahead)
    ended = threading.Event()
    future = _the_loop().portal.start_task_soon(_take_all, source, items, ended)
    try:
        while True:
            try:
                item = call(taken.receive)
            except anyio.EndOfStream:
                break
            yield item
        future.result(END_S)
    finally:
        future.cancel()
        ended.wait(END_S)
        taken.close()


async def _take_all(
    source: AsyncGenerator[_Result, None],
    items: MemoryObjectSendStream[_Result],
    ended: threading.Event,
) -> None:
    try:
        async with items, aclosing(source):
            async for item in source:
                await items.send(item)
    finally:
        ended.set()


def at_exit(function: Callable[[], Awaitable[object]], /) -> None:
    """Run `function` in the event loop when the process ends, after all that was given later."""
    _the_loop().goodbyes.append(function)
