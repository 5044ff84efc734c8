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

START_TIMEOUT_S = 30.0
"""The longest that the thread may take to have its event loop."""

EXIT_CALLBACKS_TIMEOUT_S = 2.0
"""What all that is to be done at the end of the process may take."""

CANCEL_TIMEOUT_S = 10.0
"""What an iteration that is broken off may take to end."""

_Result = TypeVar("_Result")


class _LoopThread:
    """The thread, its event loop, and what is to be closed before they end."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.exit_callbacks: list[Callable[[], Awaitable[object]]] = []
        self._portal: Future[BlockingPortal] = Future()
        # A daemon: a process that ends does not wait for it.
        threading.Thread(target=self._run, name="aiokafkawire", daemon=True).start()
        self.portal = self._portal.result(START_TIMEOUT_S)

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
        """Say goodbye, for `EXIT_CALLBACKS_TIMEOUT_S` at most."""
        if self.pid == os.getpid():
            with suppress(Exception):
                self.portal.start_task_soon(self._run_exit_callbacks).result(
                    EXIT_CALLBACKS_TIMEOUT_S + 0.5
                )

    async def _run_exit_callbacks(self) -> None:
        with anyio.move_on_after(EXIT_CALLBACKS_TIMEOUT_S):
            for callback in reversed(self.exit_callbacks):
                await callback()


_lock = threading.Lock()
_loop: _LoopThread | None = None


def _get_loop_thread() -> _LoopThread:
    global _loop  # noqa: PLW0603 - one a process
    with _lock:
        if _loop is None or _loop.pid != os.getpid():
            _loop = _LoopThread()
            atexit.register(_loop.close)
        return _loop


def call(function: Callable[..., Awaitable[_Result]], /, *arguments: Any) -> _Result:
    """Run `function(*arguments)` in the event loop, wait for it, and return or raise what it does.

    An interruption (Ctrl-C) of the wait cancels it.
    """
    future = _get_loop_thread().portal.start_task_soon(function, *arguments)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def iterate(source: AsyncGenerator[_Result, None], prefetch: int) -> Iterator[_Result]:
    """Iterate over what one task of the event loop takes from `source`, `prefetch` items ahead.

    Raises what that does. Broken off, it is cancelled and `source` closed when this
    returns.
    """
    items, received = anyio.create_memory_object_stream[_Result](prefetch)
    ended = threading.Event()
    future = _get_loop_thread().portal.start_task_soon(_forward, source, items, ended)
    try:
        while True:
            try:
                item = call(received.receive)
            except anyio.EndOfStream:
                break
            yield item
        future.result(CANCEL_TIMEOUT_S)
    finally:
        future.cancel()
        ended.wait(CANCEL_TIMEOUT_S)
        received.close()


async def _forward(
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
    _get_loop_thread().exit_callbacks.append(function)
