"""Start and stop of a client, shared by all clients."""

from __future__ import annotations

import logging
import os
import sys
import warnings
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Generic, NoReturn, TypeVar, cast

import anyio

from aiokafkawire.config import ClientConfig
from aiokafkawire.errors import ClientClosed, KafkaError, WrongEventLoop
from aiokafkawire.hooks import Hook, HookFunctions
from aiokafkawire.logs import NO_FIELDS, log_fields
from aiokafkawire.runtime.client_state import TRANSITIONS, ClientState, LifecycleEvent
from aiokafkawire.runtime.close_deadline import CloseDeadline
from aiokafkawire.runtime.interfaces import NEVER, Address
from aiokafkawire.runtime.state_machine import transition
from aiokafkawire.runtime.supervisor import (
    LoopIdentity,
    NotRunning,
    Supervisor,
    TaskHandle,
    get_call_soon_threadsafe,
    get_loop_identity,
    in_event_loop,
)
from aiokafkawire.runtime.sync import copy_error

__all__ = ("Lifecycle", "Session", "client_label")

logger = logging.getLogger("aiokafkawire.runtime")

SLOW_CLOSE_S = 2.0
"""A warning is logged if closing takes longer."""

PACKAGE = __name__.partition(".")[0]


ADVICE = {
    ClientState.NEW: "use it inside 'async with', or after 'await start()'",
    ClientState.STARTING: "use it inside 'async with', or after 'await start()'",
    ClientState.CANCELLED: (
        "its tasks were cancelled by the application, or by the end of the event loop; make a new"
        " one in the event loop that uses it"
    ),
    ClientState.CLOSING: "create a new one",
    ClientState.CLOSED: "create a new one",
    ClientState.FORKED: "it runs in the parent process; create another one in the child",
}


class Session:
    """State of a client between start and stop."""

    __slots__ = ()

    @property
    def close_waits_for(self) -> str:
        """Noun for the log: whom closing the session waits for now."""
        return "brokers"

    @property
    def close_waits_until(self) -> float:
        """When this wait ends, if it ends before the deadline of the close."""
        return NEVER

    def on_task_failed(self, failure: KafkaError) -> None:
        """Wake all waiting calls: a task raised an exception it did not handle, which is a bug."""

    def on_tasks_cancelled(self, error: ClientClosed) -> None:
        """Fail all pending calls with `error`: the tasks were cancelled before `stop`."""


S = TypeVar("S", bound=Session)


class Lifecycle(Generic[S]):
    """State, supervisor and session of a client.

    `start` starts a supervisor and calls a function of the client that creates the session. If
    that fails or is cancelled, everything is released and `start` may be called again. `stop` calls
    a function of the client that closes the session, shielded from cancellation up to a deadline,
    and then ends all tasks. A cancellation that ignores shields (asyncio's `task.cancel()`) or the
    end of the event loop interrupts that function; the tasks end nevertheless.

    The lifecycle has no reference to the client, so that a client that was not closed can be
    garbage-collected: a ResourceWarning with its label and creation site is issued, and its tasks
    are ended.

    Args:
        name: Kind of client, for errors: "producer".
        label: Text of `repr`, without the state. Defaults to `name`.
        log_prefix: Start of log lines. Defaults to `name`.
        fields: `extra` of log lines.
        hooks: Hooks, whose methods `start` looks up.

    Attributes:
        close_deadline: Limits `stop` further, for an owner that closes several clients.
    """

    def __init__(
        self,
        name: str,
        label: str = "",
        log_prefix: str = "",
        fields: Mapping[str, object] = NO_FIELDS,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.name = name
        self.label = label or name
        self.state = ClientState.NEW
        self.supervisor = Supervisor(log_prefix or name, fields=fields)
        self._hooks = hooks
        self.session: S | None = None
        self.failure: KafkaError | None = None
        self.open_session: S | None = None  # the session, while the client runs
        self._failure_reported = False
        # Both are results of `get_loop_identity`.
        self._loop_identity: LoopIdentity | None = None
        self._current_identity: Callable[[], object] = object
        self.close_deadline = CloseDeadline()
        self._closed = anyio.Event()
        self._created_at = _creation_site()
        self._finalizer: weakref.finalize[..., object] | None = None

    def __str__(self) -> str:
        return f"<{self.label} ({self.state.value})>"

    def _transition(self, step: LifecycleEvent) -> None:
        self.state = transition(TRANSITIONS, self.state, step)

    # --- checks before use ---

    def require_session(self) -> S:
        """Return the session of a running client.

        Raises:
            ClientClosed: The client is not running.
            KafkaError: A task of the client failed.
        """
        return self.open_session or self.raise_not_running()

    def require_session_in_loop(self) -> S:
        """Return the session of a client that runs in the current event loop.

        Raises:
            ClientClosed: The client is not running.
            KafkaError: A task of the client failed.
            WrongEventLoop: The client was started in another event loop.
        """
        session = self.open_session or self.raise_not_running()
        if self._loop_identity._thread_id != self._current_identity():  # type: ignore[union-attr]
            self.check_loop()
        return session

    def check_loop(self) -> None:
        """Raise `WrongEventLoop` if the client runs in another event loop."""
        home = self._loop_identity
        if (
            self.open_session is not None
            and home is not None
            and home._thread_id != self._current_identity()
        ):
            if not in_event_loop():
                raise WrongEventLoop(
                    f"no event loop runs in this thread, and the {self.name} must be used in the"
                    " event loop in which it was started: call it from this thread by"
                    " asyncio.run_coroutine_threadsafe(…, loop) or, in a worker thread of anyio"
                    " (a 'def' endpoint of FastAPI), by anyio.from_thread.run(…)"
                )
            raise WrongEventLoop(
                f"the {self.name} was started in another event loop and must be used there: start"
                " one in this loop (with pytest-asyncio, give fixture and test the same"
                f" loop_scope); in a thread, submit the call to the loop of the {self.name}"
                " instead of running another loop"
            )

    def raise_not_running(self) -> NoReturn:
        """Raise the reason why the client cannot be used."""
        if self.state is ClientState.FAILED and self.failure is not None:
            self._failure_reported = True
            raise copy_error(self.failure)
        raise ClientClosed(f"the {self.name} is {self.state.value}: {ADVICE[self.state]}")

    def take_unreported_failure(self) -> KafkaError | None:
        """Return the failure of a task if no call has raised it yet; None the next time."""
        if self._failure_reported or self.failure is None:
            return None
        self._failure_reported = True
        return copy_error(self.failure)

    # --- starting ---

    async def start(self, client: object, start: Callable[[Supervisor], Awaitable[S]]) -> None:
        """Start the client.

        Args:
            client: The client, which is watched for garbage collection.
            start: Creates the session.

        Raises:
            ClientClosed: The client was started before, unless that start failed.
        """
        if self.state in {ClientState.STARTING, ClientState.RUNNING, ClientState.FAILED}:
            raise ClientClosed(f"the {self.name} is {self.state.value} already")
        if self.state is not ClientState.NEW:
            self.raise_not_running()
        self._transition(LifecycleEvent.START_CALLED)
        self._closed = anyio.Event()
        self.supervisor = supervisor = Supervisor(
            self.supervisor.name,
            self._on_task_failed,
            self.supervisor.fields,
            HookFunctions.of(self._hooks, self.name, self.supervisor.fields),
        )
        _started_lifecycles.add(cast("Lifecycle[Session]", self))
        try:
            await supervisor.start()
            self._loop_identity, self._current_identity = get_loop_identity()
            with anyio.CancelScope() as scope:
                supervisor.on_stopping = scope.cancel
                try:
                    self.session = await start(supervisor)
                except (KafkaError, NotRunning):
                    # If the tasks have ended, the reason for that is the better error.
                    if supervisor.is_running:
                        raise
            if self.session is None or not supervisor.is_running:
                raise self.failure or ClientClosed(
                    f"the {self.name} was stopped while it was starting"
                )
            supervisor.on_stopping = self._on_tasks_cancelled
            self._finalizer = weakref.finalize(
                client, self._on_garbage_collected, get_call_soon_threadsafe()
            )
        except BaseException:
            await self._undo_start()
            raise
        self.open_session = self.session
        self._transition(LifecycleEvent.STARTED)

    async def _undo_start(self) -> None:
        """Release everything after a failed start."""
        self.supervisor.on_stopping = None
        self.session = None
        self.supervisor.abort()
        try:
            await self.supervisor.stop()
        finally:
            self._transition(LifecycleEvent.START_FAILED)
            if self.state is ClientState.NEW:
                self.failure = None
                _started_lifecycles.discard(cast("Lifecycle[Session]", self))

    # --- stopping ---

    async def stop(self, close_session: Callable[[S], Awaitable[None]], deadline: float) -> None:
        """Close the client. A second call waits for the first; in a forked child it does nothing.

        Args:
            close_session: Closes the session. Called only if the client is running.
            deadline: When `close_session` is cancelled, at the latest.
        """
        if self.state is ClientState.FORKED:
            return
        if self.state in {ClientState.CLOSING, ClientState.CLOSED}:
            await self._closed.wait()
            return
        self.check_loop()
        session, self.open_session = self.session, None
        if self.state is not ClientState.STARTING:
            self.supervisor.on_stopping = None
        self._transition(LifecycleEvent.STOP_CALLED)
        try:
            # Closing the session needs the tasks of the supervisor.
            if session is not None and self.supervisor.is_running:
                with self.close_deadline.scope(deadline, shield=True) as scope:
                    self.supervisor.on_stopping = scope.cancel
                    self.supervisor.spawn(
                        self._warn_if_slow, session, deadline, name="warn of slow close"
                    )
                    await close_session(session)
        except Exception:
            # After a task failed, closing often fails for the same reason: raise the first failure.
            if self.failure is None:
                raise
            logger.exception(
                "%s: closing failed too", self.supervisor.name, extra=dict(self.supervisor.fields)
            )
        finally:
            await self._stop_tasks()

    async def _warn_if_slow(self, session: S, deadline: float) -> None:
        """Log why closing takes long, for a user who pressed Ctrl-C."""
        if deadline == NEVER:
            return
        await anyio.sleep(SLOW_CLOSE_S)
        deadline = min(deadline, self.close_deadline.at, session.close_waits_until)
        left_s = deadline - anyio.current_time()
        if left_s < 0.5:  # the wait is about to end
            return
        logger.warning(
            "%s: still closing: waiting up to %.0f s more for %s; Ctrl-C stops the wait",
            self.supervisor.name,
            left_s,
            session.close_waits_for,
            extra=dict(self.supervisor.fields),
        )

    def abort(self, error: ClientClosed | None = None) -> None:
        """End all tasks without closing the session; return immediately.

        Args:
            error: Raised by pending calls; None leaves them pending, as after a crash.
        """
        session, self.session, self.open_session = self.session, None, None
        self.supervisor.on_stopping = None
        self._transition(LifecycleEvent.STOPPED)
        self._untrack()
        self._closed.set()
        if self.supervisor.is_running and in_event_loop():
            self.supervisor.abort()
        if session is not None and error is not None:
            session.on_tasks_cancelled(error)

    async def _stop_tasks(self) -> None:
        self._transition(LifecycleEvent.STOPPED)
        self._untrack()
        self.supervisor.abort()
        try:
            await self.supervisor.stop()
        finally:
            self.session = None
            self._closed.set()

    def _untrack(self) -> None:
        _started_lifecycles.discard(cast("Lifecycle[Session]", self))
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None

    # --- events ---

    def _on_task_failed(self, task: TaskHandle, error: Exception) -> None:
        if isinstance(error, ClientClosed) and not self.supervisor.is_running:
            return  # the task failed because the client is closing
        logger.error(
            "%s: task %s failed",
            self.supervisor.name,
            task.name,
            exc_info=error,
            extra=log_fields(self.supervisor.fields, error=error),
        )
        if self.failure is None:
            self.failure = KafkaError(
                f"the {self.name} is broken: its task {task.name!r} failed: {error!r}"
            )
            self.failure.__cause__ = error
        before = self.state
        self._transition(LifecycleEvent.TASK_FAILED)
        if self.state in {ClientState.STARTING, ClientState.CLOSING}:
            # `start` or `stop` may be waiting for a result of the failed task.
            self.supervisor.abort()
        elif before is ClientState.RUNNING and self.session is not None:
            self.open_session = None
            self.session.on_task_failed(copy_error(self.failure))

    def _on_tasks_cancelled(self) -> None:
        self._transition(LifecycleEvent.TASKS_CANCELLED)
        if self.state is ClientState.CANCELLED and self.session is not None:
            self.open_session = None
            self.session.on_tasks_cancelled(ClientClosed(f"the {self.name}'s tasks were cancelled"))

    def _on_garbage_collected(self, notify: Callable[[Callable[[], None]], None]) -> None:
        """Handle the garbage collection of the client, in any thread, or the interpreter's exit."""
        text = f"{self} was never closed; it was created at {self._created_at}"
        session, self.session, self.open_session = self.session, None, None
        error = ClientClosed(
            f"the {self.name} was garbage-collected: keep a reference until it is closed"
        )
        try:
            notify(partial(self._end_dropped, session, error))
        except (RuntimeError, OSError):
            # The event loop is closed: no task is left that could use the session meanwhile.
            if session is not None and self.state is not ClientState.CANCELLED:
                session.on_tasks_cancelled(error)
        finally:
            warnings.warn(text, ResourceWarning, stacklevel=2)

    def _end_dropped(self, session: S | None, error: ClientClosed) -> None:
        """End the tasks of a garbage-collected client and fail its pending calls."""
        self.supervisor.on_stopping = None
        self.supervisor.abort()
        if session is not None:
            session.on_tasks_cancelled(error)

    def on_forked(self) -> None:
        """Handle a fork, in the child: tasks and connections belong to the parent process."""
        self._untrack()
        self._transition(LifecycleEvent.FORKED)
        self.session = self.open_session = None


_started_lifecycles: weakref.WeakSet[Lifecycle[Session]] = weakref.WeakSet()
"""Lifecycles of the started clients of this process."""


def _after_fork() -> None:
    for life in list(_started_lifecycles):
        life.on_forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def client_label(kind: str, config: ClientConfig, group_id: str | None = None) -> str:
    """Return the text that identifies a client in its `repr`; it has no secrets."""
    servers = ",".join(str(Address(*address)) for address in config.bootstrap_addresses)
    group = "" if group_id is None else f" group_id={group_id!r}"
    return f"{kind} client_id={config.client_id!r} bootstrap_servers={servers!r}{group}"


def _creation_site() -> str:
    """Return file and line of the caller outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _in_package(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _in_package(module: str) -> bool:
    return module == PACKAGE or module.startswith(PACKAGE + ".")
