"""The supervisor task of a client, and the functions that differ between asyncio and trio.

A client's tasks run in a task group inside a separate supervisor task, outside of all cancel scopes
of the caller. So a client may be closed in another task than it was started in, clients may be
closed in any order, and an exception of the body is never wrapped in an ExceptionGroup.
"""

from __future__ import annotations

import asyncio
import inspect
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

from aiokafkawire.hooks import NO_HOOKS, HookFunctions
from aiokafkawire.logs import NO_FIELDS, log_fields

__all__ = (
    "CANCEL_GRACE_S",
    "LoopIdentity",
    "NotRunning",
    "Supervisor",
    "TaskHandle",
    "current_task",
    "get_call_soon_threadsafe",
    "get_loop_caller",
    "get_loop_checkpoint",
    "get_loop_clock",
    "get_loop_identity",
    "in_event_loop",
    "is_being_cancelled",
    "is_failure_of_callback",
    "is_task_done",
    "running_on_trio",
)

logger = logging.getLogger("aiokafkawire.runtime")

Ts = TypeVarTuple("Ts")

CANCEL_GRACE_S = 5.0
"""How long `stop` waits for cancelled tasks to end before it returns without them."""

ENDS_PROGRAM = (GeneratorExit, KeyboardInterrupt, SystemExit)


def running_on_trio() -> bool:
    """Return whether the caller runs on trio; if not, it runs on asyncio."""
    # Importing trio is slow: skip it if nothing else has imported it.
    if "trio" not in sys.modules:
        return False
    import trio  # noqa: PLC0415

    return trio.lowlevel.in_trio_run()


def in_event_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    return running_on_trio() or asyncio._get_running_loop() is not None


def get_loop_clock() -> Callable[[], float]:
    """Return the clock function of the running event loop, on which its timeouts are based."""
    if running_on_trio():
        import trio  # noqa: PLC0415

        return trio.current_time
    loop = asyncio.get_running_loop()
    # asyncio's loops call `time.monotonic`; other loops, such as uvloop, have their own clock.
    return time.monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time


def get_loop_checkpoint() -> Callable[[], Awaitable[object]]:
    """Return the checkpoint function of the running event loop.

    Faster than `checkpoint`, which detects the library at every call.
    """
    return anyio.lowlevel.checkpoint if running_on_trio() else partial(asyncio.sleep, 0)


class LoopIdentity(Protocol):
    """Identifies an event loop: by the id of its thread where the loop has it, else by itself."""

    @property
    def _thread_id(self) -> object:
        """Id of the thread that runs the loop; None while the loop does not run."""
        ...


def get_loop_identity() -> tuple[LoopIdentity, Callable[[], object]]:
    """Return the identity of the running event loop, and a function that checks for it.

    The function is cheap. Called inside of that loop it returns the `_thread_id` of the identity,
    called elsewhere another value. The result must not be used after a fork.
    """
    if running_on_trio():
        return _LoopItself(_trio_token()), _trio_token
    loop: Any = asyncio.get_running_loop()
    # Up to Python 3.11, `asyncio.get_running_loop` calls `getpid`.
    if getattr(loop, "_thread_id", None) == threading.get_ident():
        return loop, threading.get_ident
    return _LoopItself(loop), asyncio._get_running_loop


class _LoopItself:
    """Identity of an event loop that does not know its thread."""

    def __init__(self, loop: object) -> None:
        self._thread_id = loop


def _trio_token() -> object:
    import trio  # noqa: PLC0415

    return trio.lowlevel.current_trio_token() if trio.lowlevel.in_trio_run() else None


def current_task() -> object:
    """Return the task object of the event loop for the running task."""
    if running_on_trio():
        import trio  # noqa: PLC0415

        return trio.lowlevel.current_task()
    return asyncio.current_task()


def is_task_done(task: object) -> bool:
    """Return whether a task of `current_task` has ended. True for None, which is no task."""
    if isinstance(task, asyncio.Task):
        return task.done()
    coroutine = getattr(task, "coro", None)  # a task of trio does not know its end
    return coroutine is None or inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def is_being_cancelled() -> bool:
    """Return whether the running task is being cancelled.

    If not, a `CancelledError` that user code raised on asyncio is that of another task for which
    the code waited: asyncio raises the same exception for both. Always True on trio.
    """
    if running_on_trio():
        return True
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def is_failure_of_callback(error: BaseException) -> bool:
    """Return whether an exception of application code is a failure of that code.

    If not, it cancels the running task, closes its coroutine or ends the program: raise it again.
    Some libraries derive the exceptions of ordinary failures from `BaseException`. They must not
    reach the supervisor, which would end, and trio with it.
    """
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return not is_being_cancelled()
    if isinstance(error, BaseExceptionGroup):
        # A cancellation in a group may be lost: anyio and trio raise it again.
        return error.split(ENDS_PROGRAM)[0] is None
    return not isinstance(error, ENDS_PROGRAM)


def get_call_soon_threadsafe() -> Callable[[Callable[[], None]], None]:
    """Return a function that other threads may call to run a callback in this event loop.

    That function raises a `RuntimeError`, or a subclass, after the loop has ended.
    """
    if running_on_trio():
        import trio  # noqa: PLC0415

        return trio.lowlevel.current_trio_token().run_sync_soon
    loop = asyncio.get_running_loop()

    def call_soon(function: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(function)

    return call_soon


def get_loop_caller() -> Callable[[Callable[[], None]], None]:
    """Return a function that runs a callback in this event loop, from any thread.

    In the thread of the loop the callback runs at once.
    """
    thread, call_soon = threading.get_ident(), get_call_soon_threadsafe()

    def call(function: Callable[[], None]) -> None:
        if threading.get_ident() == thread:
            function()
        else:
            call_soon(function)

    return call


def _forwarded_to_main_task(error: BaseException) -> bool:
    """Raise SIGINT again for the main task if an error consists of KeyboardInterrupt alone on trio.

    Trio treats an exception that leaves a system task as an internal error. Returns whether the
    error was forwarded.
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
    """A task of a supervisor. `error` is the exception that it raised."""

    __slots__ = ("coroutine", "error", "finished", "name", "scope")

    def __init__(self, name: str) -> None:
        self.name = name
        self.coroutine: Coroutine[Any, Any, None] | None = None
        self.scope = anyio.CancelScope()
        self.error: Exception | None = None
        self.finished = anyio.Event()

    @property
    def done(self) -> bool:
        """True once the task has ended."""
        return self.finished.is_set()

    def cancel(self) -> None:
        """Cancel the task; return immediately."""
        self.scope.cancel()

    def close_unstarted(self) -> None:
        """Mark a task as ended that was cancelled before its first step and so never ran."""
        if self.coroutine is not None:
            self.coroutine.close()  # prevents the "was never awaited" warning
            self.coroutine = None
        self.finished.set()

    async def wait(self) -> None:
        """Wait until the task has ended: returned, failed or was cancelled."""
        await self.finished.wait()


class NotRunning(RuntimeError):
    """A supervisor that is not running cannot start a task."""


class Supervisor:
    """Runs the tasks of one client.

    States: new, running (between `start` and `stop`), stopped.

    Args:
        name: Prefix of the client's log lines.
        on_task_failed: Called when a task raised. Tasks handle their own errors, so this is a bug,
            and the client must stop working. Defaults to an ERROR log line.
        fields: Identify the client in the `extra` of its log lines.
        hooks: Functions that the client calls when something happens.

    Attributes:
        on_stopping: Called when the tasks begin to end, after `abort` or because the event loop
            ends: asyncio then cancels all tasks of the loop at once.
    """

    def __init__(
        self,
        name: str,
        on_task_failed: Callable[[TaskHandle, Exception], None] | None = None,
        fields: Mapping[str, object] = NO_FIELDS,
        hooks: HookFunctions = NO_HOOKS,
    ) -> None:
        self.name = name
        self.fields = fields
        self.hooks = hooks
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
        """True if tasks can be spawned."""
        return self._task_group is not None and not self._stopping.is_set()

    async def start(self) -> None:
        """Start the supervisor task and wait until it can spawn tasks."""
        if running_on_trio():
            import trio  # noqa: PLC0415

            # Trio raises KeyboardInterrupt in the task that happens to run, except in system tasks.
            # Ctrl-C is for the main task, so the tasks below the system task are protected, too.
            trio.lowlevel.enable_ki_protection(Supervisor._run_task)
            self._task = trio.lowlevel.spawn_system_task(self._supervise, name=self.name)
        else:
            # The event loop keeps only weak references to tasks.
            self._task = task = asyncio.get_running_loop().create_task(
                self._supervise(), name=self.name
            )
            # A task that is cancelled before its first step runs none of its code.
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
        """Start a task. When the supervisor stops, tasks are cancelled in the order of spawning.

        Args:
            function: Asynchronous function to run.
            *args: Its arguments.
            name: Name of the task in logs.

        Raises:
            NotRunning: The supervisor is not running.
        """
        if self._task_group is None or self._stopping.is_set():
            raise NotRunning(f"{self.name} is not running and cannot start task {name}")
        handle = TaskHandle(name)
        self._tasks.append(handle)
        handle.coroutine = coroutine = self._run_task(handle, function, args)
        self._task_group.start_soon(lambda: coroutine, name=f"{self.name}:{name}")
        return handle

    def abort(self) -> None:
        """Cancel all tasks in the order of spawning; return immediately."""
        self._stopping.set()
        for handle in list(self._tasks):
            handle.cancel()

    async def stop(self) -> None:
        """Cancel all tasks and wait up to `CANCEL_GRACE_S` seconds, shielded, until they end."""
        self.abort()
        if self._task is None:
            return
        with anyio.move_on_after(CANCEL_GRACE_S, shield=True):
            await self._finished.wait()
        if not self._finished.is_set():
            left = ", ".join(handle.name for handle in self._tasks)
            logger.warning(
                "%s: tasks still running %g s after cancellation: %s",
                self.name,
                CANCEL_GRACE_S,
                left,
                extra=dict(self.fields),
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
            # An exception that leaves a trio system task would crash the whole run.
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
        # Tasks that ran have removed themselves. The others were cancelled by asyncio before their
        # first step, and anyio 4.14 and later does not close their coroutines.
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
            with handle.scope:
                await function(*args)
        except Exception as error:
            handle.error = error
        except BaseException as error:
            if not _forwarded_to_main_task(error):
                raise
        finally:
            handle.finished.set()
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
