"""The supervisor task of a client: the only module that tells which backend runs.

A client's tasks live in a task group inside a task of their own, outside of every scope of the
caller. So a client may be left in another task than it was entered in, clients may be closed in
any order, and an exception of the body is never wrapped in an ExceptionGroup.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol, TypeVarTuple

import anyio
import anyio.abc
import anyio.lowlevel

from aiokafkawire.logs import NO_FIELDS, log_fields

__all__ = (
    "CANCEL_GRACE_S",
    "LoopIdentity",
    "Supervisor",
    "TaskHandle",
    "current_task",
    "get_call_soon_threadsafe",
    "get_loop_checkpoint",
    "get_loop_clock",
    "get_loop_identity",
    "in_event_loop",
    "is_being_cancelled",
    "running_on_trio",
)

logger = logging.getLogger("aiokafkawire.runtime")

Ts = TypeVarTuple("Ts")

CANCEL_GRACE_S = 5.0
"""How long `stop` waits for cancelled tasks to end before it leaves them to the event loop."""


def running_on_trio() -> bool:
    """Whether trio runs here, and not asyncio."""
    # trio cannot be what runs if nobody imported it.
    if "trio" not in sys.modules:
        return False
    import trio  # noqa: PLC0415

    return trio.lowlevel.in_trio_run()


def in_event_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    return running_on_trio() or asyncio._get_running_loop() is not None


def get_loop_clock() -> Callable[[], float]:
    """The running event loop's own clock, the one that its timeouts count by."""
    if running_on_trio():
        import trio  # noqa: PLC0415

        return trio.current_time
    loop = asyncio.get_running_loop()
    # What asyncio's own loops call; others, as uvloop, have a time of their own.
    return time.monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time


def get_loop_checkpoint() -> Callable[[], Awaitable[object]]:
    """What lets others run in this event loop, and a cancellation come through.

    As `checkpoint`, which finds out anew each time which library it is in.
    """
    return anyio.lowlevel.checkpoint if running_on_trio() else partial(asyncio.sleep, 0)


class LoopIdentity(Protocol):
    """What an event loop is known by: the thread in which it runs, or itself."""

    @property
    def _thread_id(self) -> object:
        """None while it does not run."""
        ...


def get_loop_identity() -> tuple[LoopIdentity, Callable[[], object]]:
    """The event loop that runs here, and a cheap function that gives, called from inside of it, its
    `_thread_id`, else something else. After a fork nobody looks."""
    if running_on_trio():
        return _LoopItself(_trio_token()), _trio_token
    loop: Any = asyncio.get_running_loop()
    # Up to Python 3.11, to ask asyncio for the loop is to ask the system for the process.
    if getattr(loop, "_thread_id", None) == threading.get_ident():
        return loop, threading.get_ident
    return _LoopItself(loop), asyncio._get_running_loop


class _LoopItself:
    """An event loop that does not tell its thread."""

    def __init__(self, loop: object) -> None:
        self._thread_id = loop


def _trio_token() -> object:
    import trio  # noqa: PLC0415

    return trio.lowlevel.current_trio_token() if trio.lowlevel.in_trio_run() else None


def current_task() -> object:
    """The running task: the backend's own object, which differs from that of any other task."""
    if running_on_trio():
        import trio  # noqa: PLC0415

        return trio.lowlevel.current_task()
    return asyncio.current_task()


def is_being_cancelled() -> bool:
    """Whether somebody cancels the running task.

    If not, a cancellation that comes out of foreign code is that of another task, which the code
    waited for: asyncio raises the same exception for both.
    """
    if running_on_trio():
        return True
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def get_call_soon_threadsafe() -> Callable[[Callable[[], None]], None]:
    """A function that other threads may call to run something in the running event loop.

    It raises RuntimeError (of whatever kind the backend has) when the loop is gone.
    """
    if running_on_trio():
        import trio  # noqa: PLC0415

        return trio.lowlevel.current_trio_token().run_sync_soon
    loop = asyncio.get_running_loop()

    def call_soon(function: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(function)

    return call_soon


def _forwarded_to_main_task(error: BaseException) -> bool:
    """Whether an error is Ctrl-C alone, on trio: then the main task has been told in its stead.

    What leaves a system task there is taken for a defect of trio itself.
    """
    rest: BaseException | None = error
    if isinstance(error, BaseExceptionGroup):
        rest = error.split(KeyboardInterrupt)[1]
    elif isinstance(error, KeyboardInterrupt):
        rest = None
    if rest is not None or not running_on_trio():
        return False
    signal.raise_signal(signal.SIGINT)
    return True


class TaskHandle:
    """One task of a host. `error` is what it raised, if it did."""

    __slots__ = ("_finished", "coroutine", "error", "name", "scope")

    def __init__(self, name: str) -> None:
        self.name = name
        self.coroutine: Coroutine[Any, Any, None] | None = None
        self.scope = anyio.CancelScope()
        self.error: Exception | None = None
        self._finished = anyio.Event()

    @property
    def done(self) -> bool:
        return self._finished.is_set()

    def cancel(self) -> None:
        self.scope.cancel()

    def close_unstarted(self) -> None:
        """End a task that was cancelled before its first step and so never ran."""
        if self.coroutine is not None:
            self.coroutine.close()  # else it warns that it was never awaited
            self.coroutine = None
        self._finished.set()

    async def wait(self) -> None:
        """Wait until the task has ended, however it did."""
        await self._finished.wait()

    async def run(self, function: Callable[[*Ts], Awaitable[Any]], *args: *Ts) -> None:
        try:
            with self.scope:
                await function(*args)
        except Exception as error:
            self.error = error
        except BaseException as error:
            if not _forwarded_to_main_task(error):
                raise
        finally:
            self._finished.set()


class Supervisor:
    """Keeps the tasks of one client.

    States: new, running (between `start` and `stop`), stopped. `on_crash` hears of a task that
    raised: a defect, since tasks answer for their own errors; the owner then poisons itself.
    `on_end` is called when the tasks begin to end, be it by `abort`, be it because the event loop
    ends, which on asyncio cancels the tasks of everybody at once. `fields` identify the client in
    the `extra` of its log lines.
    """

    def __init__(
        self,
        name: str,
        on_task_failed: Callable[[TaskHandle, Exception], None] | None = None,
        fields: Mapping[str, object] = NO_FIELDS,
    ) -> None:
        self.name = name
        self.fields = fields
        self.on_stopping: Callable[[], None] | None = None
        self._on_task_failed = on_task_failed
        self._tasks: list[TaskHandle] = []
        self._task_group: anyio.abc.TaskGroup | None = None
        self._started = anyio.Event()
        self._stopping = anyio.Event()
        self._finished = anyio.Event()
        self._task: object = None

    @property
    def is_running(self) -> bool:
        return self._task_group is not None and not self._stopping.is_set()

    async def start(self) -> None:
        """Spawn the supervisor and wait until it can take tasks."""
        if running_on_trio():
            import trio  # noqa: PLC0415

            # Trio raises KeyboardInterrupt in the task that happens to run, except in system tasks.
            # Ctrl-C is for the main task, so the tasks below the system task are protected, too.
            trio.lowlevel.enable_ki_protection(Supervisor._run_task)
            self._task = trio.lowlevel.spawn_system_task(self._supervise, name=self.name)
        else:
            # The loop keeps weak references only.
            self._task = task = asyncio.get_running_loop().create_task(
                self._supervise(), name=self.name
            )
            # A task that is cancelled before its first step does nothing at all.
            task.add_done_callback(lambda _: self._on_ended())
        try:
            await self._started.wait()
        except BaseException:
            self.abort()
            raise

    def spawn(
        self,
        function: Callable[[*Ts], Awaitable[Any]],
        *args: *Ts,
        name: str,
    ) -> TaskHandle:
        """Start a task. It is cancelled, in the order of spawning, when the host stops."""
        if self._task_group is None or self._stopping.is_set():
            raise RuntimeError(f"{self.name} does not run; it cannot start {name}")
        handle = TaskHandle(name)
        self._tasks.append(handle)
        handle.coroutine = coroutine = self._run_task(handle, function, args)
        self._task_group.start_soon(lambda: coroutine, name=f"{self.name}:{name}")
        return handle

    def abort(self) -> None:
        """Cancel every task, one after the other in the order of spawning; return at once."""
        self._stopping.set()
        for handle in list(self._tasks):
            handle.cancel()

    async def stop(self) -> None:
        """`abort`, and wait (shielded, at most `CANCEL_GRACE_S`) until all tasks have ended."""
        self.abort()
        if self._task is None:
            return
        with anyio.move_on_after(CANCEL_GRACE_S, shield=True):
            await self._finished.wait()
        if not self._finished.is_set():
            left = ", ".join(handle.name for handle in self._tasks)
            logger.warning(
                "%s: tasks did not end when cancelled: %s", self.name, left, extra=dict(self.fields)
            )

    async def _supervise(self) -> None:
        try:
            async with anyio.create_task_group() as group:
                self._task_group = group
                self._started.set()
                try:
                    await self._stopping.wait()
                finally:
                    self._begin_stopping()
        except Exception:
            # An exception that left a trio system task would take down the whole run.
            logger.exception("%s: supervisor failed", self.name, extra=dict(self.fields))
        except BaseException as error:
            if not _forwarded_to_main_task(error):
                raise
        finally:
            self._on_ended()

    def _begin_stopping(self) -> None:
        self._stopping.set()
        if self.on_stopping is not None:
            self.on_stopping()

    def _on_ended(self) -> None:
        self._stopping.set()
        self._started.set()
        self._task_group = None
        # Tasks that ran have removed themselves. asyncio cancels others before their first step,
        # and anyio (4.14 and later) then leaves their coroutines as they are.
        for handle in self._tasks:
            handle.close_unstarted()
        self._tasks.clear()
        self._finished.set()

    async def _run_task(
        self,
        handle: TaskHandle,
        function: Callable[[*Ts], Awaitable[Any]],
        args: tuple[*Ts],
    ) -> None:
        handle.coroutine = None
        try:
            await handle.run(function, *args)
        finally:
            self._tasks.remove(handle)
        if handle.error is not None:
            if self._on_task_failed is None:
                logger.error(
                    "%s: task %s failed",
                    self.name,
                    handle.name,
                    exc_info=handle.error,
                    extra=log_fields(self.fields, error=handle.error),
                )
            else:
                self._on_task_failed(handle, handle.error)
