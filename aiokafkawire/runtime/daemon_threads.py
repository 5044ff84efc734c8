"""Blocking functions in daemon threads, for which nobody waits at exit.

The event loops join the threads of their own pools, so a function that hangs (a name server, a
file system) would block the end of the program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from aiokafkawire.runtime.supervisor import get_call_soon_threadsafe
from aiokafkawire.runtime.sync import Future

__all__ = ("DaemonThreads",)

T = TypeVar("T")


class DaemonThreads:
    """Runs functions in daemon threads, from any number of event loops.

    Args:
        name: Name of the threads.
        limit: Threads at a time, including those whose caller was cancelled.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._running = 0
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function in a thread of its own. A cancelled call returns without the thread.

        Raises:
            OSError: Too many threads still run, or no thread can be started.
        """
        with self._lock:
            if self._running >= self._limit:
                raise OSError(f"{self._running} earlier calls of {self._name} still block")
            self._running += 1
        future: Future[T] = Future()
        notify = get_call_soon_threadsafe()
        thread = threading.Thread(
            target=self._run, args=(function, future, notify), name=self._name, daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._count_ended()
            raise OSError(f"no thread for {self._name}: {error}") from error
        return await future.wait()

    def _run(
        self,
        function: Callable[[], T],
        future: Future[T],
        notify: Callable[[Callable[[], None]], None],
    ) -> None:
        value: T | None = None
        failure: Exception | None = None
        try:
            value = function()
        except Exception as error:
            failure = error
        self._count_ended()
        try:
            notify(lambda: future.set_result(value, failure))
        except RuntimeError:
            # The event loop ended before the function did, so no caller is left.
            return

    def _count_ended(self) -> None:
        with self._lock:
            self._running -= 1
