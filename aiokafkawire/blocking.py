"""Event loop for callers without one, such as Spark workers.

Each process has one event loop in a background thread, which the first call starts. A forked child
process starts its own.
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
"""Timeout of starting the event loop."""

EXIT_CALLBACKS_TIMEOUT_S = 2.0
"""Timeout of all exit callbacks together."""

CANCEL_TIMEOUT_S = 10.0
"""Timeout of ending a cancelled iteration."""

_Result = TypeVar("_Result")


class _LoopThread:
    """The background thread, its event loop, and the exit callbacks."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.exit_callbacks: list[Callable[[], Awaitable[object]]] = []
        self._portal: Future[BlockingPortal] = Future()
        # A daemon thread does not keep the process alive.
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
        """Run the exit callbacks, for `EXIT_CALLBACKS_TIMEOUT_S` at most."""
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
    """Run `function(*arguments)` in the event loop and block until it returns.

    An interruption such as Ctrl-C cancels it.

    Raises:
        BaseException: Any exception of `function`.
    """
    future = _get_loop_thread().portal.start_task_soon(function, *arguments)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def iterate(source: AsyncGenerator[_Result, None], prefetch: int) -> Iterator[_Result]:
    """Iterate over an asynchronous generator, which runs in one task of the event loop.

    If the iteration ends early, the task is cancelled and `source` is closed before this returns.

    Args:
        source: The generator. Its exceptions are raised here.
        prefetch: Number of items to read ahead.
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
    """Run `function` in the event loop at process exit; later registrations run first."""
    _get_loop_thread().exit_callbacks.append(function)
