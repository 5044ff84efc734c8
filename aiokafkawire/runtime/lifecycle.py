"""Starting and stopping a client, the same for all of them."""

from __future__ import annotations

import logging
import os
import sys
import warnings
import weakref
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Generic, NoReturn, TypeVar, cast

import anyio

from aiokafkawire.config import ClientConfig
from aiokafkawire.errors import ClientClosed, KafkaError, WrongEventLoop
from aiokafkawire.logs import NO_FIELDS, log_fields
from aiokafkawire.runtime.base import NEVER, Address
from aiokafkawire.runtime.host import (
    Home,
    Host,
    TaskHandle,
    in_event_loop,
    loop_home,
    thread_notifier,
)
from aiokafkawire.runtime.phases import TRANSITIONS, Phase, Step
from aiokafkawire.runtime.transitions import transition
from aiokafkawire.runtime.waiting import copy_of

__all__ = ("Lifecycle", "Session", "label")

logger = logging.getLogger("aiokafkawire.runtime")

SILENT_GOODBYE_S = 2.0
"""A goodbye that takes longer is told of in the log."""

PACKAGE = __name__.partition(".")[0]


ADVICE = {
    Phase.NEW: "use it inside 'async with', or after 'await start()'",
    Phase.STARTING: "use it inside 'async with', or after 'await start()'",
    Phase.LOST: "its tasks were cancelled by the application, or by the end of the event loop",
    Phase.CLOSING: "make a new one",
    Phase.CLOSED: "make a new one",
    Phase.FORKED: "it runs in the parent process, and the child needs one of its own",
}


class Session:
    """What a client has between starting and stopping."""

    __slots__ = ()

    def broken(self, failure: KafkaError) -> None:
        """A task failed with what it should have answered for: a defect. Wake who waits."""

    def lost(self, error: ClientClosed) -> None:
        """Fail every pending call with `error`: the client's tasks end before it was stopped."""


S = TypeVar("S", bound=Session)


class Lifecycle(Generic[S]):
    """Holds a client's phase, its host, and what runs in it.

    `enter` starts a host and waits for the client's own start, which makes the session; if that
    fails or is cancelled, nothing stays behind, and the client may be started again. `leave` waits,
    shielded from cancellation, for the client's own goodbye up to a deadline, and then ends all
    tasks. A cancellation that no shield holds (asyncio's `task.cancel()`) cuts the goodbye short,
    and so does the end of the event loop; the tasks end all the same.

    Nothing in here refers to the client itself, so that one that is dropped is found out: it is
    named (`label`, and where it was made) in a ResourceWarning, and its tasks are ended.
    """

    def __init__(
        self,
        name: str,
        label: str = "",
        who: str = "",
        fields: Mapping[str, object] = NO_FIELDS,
    ) -> None:
        self.name = name
        self.label = label or name
        self.phase = Phase.NEW
        self.host = Host(who or name, fields=fields)
        self.session: S | None = None
        self.failure: KafkaError | None = None
        self.open: S | None = None  # the session, while the client runs
        self._told = False
        # The event loop that it runs in, and what tells whether that is the caller's; see there.
        self._home: Home | None = None
        self._here: Callable[[], object] = object
        self._closed = anyio.Event()
        self._made_at = _caller()
        self._watch: weakref.finalize[..., object] | None = None

    def __str__(self) -> str:
        return f"<{self.label} ({self.phase.value})>"

    def _go(self, step: Step) -> None:
        self.phase = transition(TRANSITIONS, self.phase, step)

    # --- what may be done ---

    def running(self) -> S:
        """The session, while the client runs. Raises `ClientClosed`, or why it cannot go on."""
        return self.open or self.refuse()

    def running_here(self) -> S:
        """As `running`, and `WrongEventLoop` unless it is the client's own event loop that runs."""
        session = self.open or self.refuse()
        if self._home._thread_id != self._here():  # type: ignore[union-attr]
            self.check_loop()
        return session

    def check_loop(self) -> None:
        """Raise `WrongEventLoop` if the client runs in another event loop than this one."""
        home = self._home
        if self.open is not None and home is not None and home._thread_id != self._here():
            if not in_event_loop():
                raise WrongEventLoop(
                    f"no event loop runs in this thread, and the {self.name} belongs to the one in"
                    " which it was started: call it there, from a thread by"
                    " asyncio.run_coroutine_threadsafe(…, loop) or, in a worker thread of anyio"
                    " (a 'def' endpoint of FastAPI), anyio.from_thread.run(…)"
                )
            raise WrongEventLoop(
                f"the {self.name} was started in another event loop, and belongs to it: start one"
                " in this loop (with pytest-asyncio, give fixture and test the same loop_scope);"
                " in a thread, hand the call over to the loop of the"
                f" {self.name} instead of running another one"
            )

    def refuse(self) -> NoReturn:
        """Say why the client cannot be used."""
        if self.phase is Phase.BROKEN and self.failure is not None:
            self._told = True
            raise copy_of(self.failure)
        raise ClientClosed(f"the {self.name} is {self.phase.value}: {ADVICE[self.phase]}")

    def untold(self) -> KafkaError | None:
        """The failure that no call has raised yet, if there is one; gives it once."""
        if self._told or self.failure is None:
            return None
        self._told = True
        return copy_of(self.failure)

    # --- starting ---

    async def enter(self, client: object, start: Callable[[Host], Awaitable[S]]) -> None:
        """Start; `ClientClosed` unless the client is new (or its last start failed)."""
        if self.phase in {Phase.STARTING, Phase.RUNNING, Phase.BROKEN}:
            raise ClientClosed(f"the {self.name} is {self.phase.value} already")
        if self.phase is not Phase.NEW:
            self.refuse()
        self._go(Step.ENTERED)
        self._closed = anyio.Event()
        self.host = host = Host(self.host.name, self._crashed, self.host.fields)
        _lives.add(cast("Lifecycle[Session]", self))
        try:
            await host.start()
            self._home, self._here = loop_home()
            with anyio.CancelScope() as scope:
                host.on_end = scope.cancel
                try:
                    self.session = await start(host)
                except KafkaError:
                    # Why the tasks ended says more than what that looked like from inside.
                    if host.running:
                        raise
            if self.session is None or not host.running:
                raise self.failure or ClientClosed(
                    f"the {self.name} was stopped while it was starting"
                )
            host.on_end = self._lost
            self._watch = weakref.finalize(client, self._dropped, thread_notifier())
        except BaseException:
            await self._fall_back()
            raise
        self.open = self.session
        self._go(Step.READY)

    async def _fall_back(self) -> None:
        """Leave nothing of a start that failed."""
        self.host.on_end = None
        self.session = None
        self.host.abort()
        try:
            await self.host.stop()
        finally:
            self._go(Step.FAILED)
            if self.phase is Phase.NEW:
                self.failure = None
                _lives.discard(cast("Lifecycle[Session]", self))

    # --- stopping ---

    async def leave(self, goodbye: Callable[[S], Awaitable[None]], deadline: float) -> None:
        """Close. A second call waits for the first one to finish; in a forked child does nothing.

        `goodbye` is only called for a client that runs.
        """
        if self.phase is Phase.FORKED:
            return
        if self.phase in {Phase.CLOSING, Phase.CLOSED}:
            await self._closed.wait()
            return
        self.check_loop()
        session, self.open = self.session, None
        if self.phase is not Phase.STARTING:
            self.host.on_end = None
        self._go(Step.LEFT)
        try:
            # Without the host's tasks nobody does what a goodbye waits for.
            if session is not None and self.host.running:
                with anyio.CancelScope(deadline=deadline, shield=True) as scope:
                    self.host.on_end = scope.cancel
                    self.host.spawn(self._tell_of_wait, deadline, name="tell of a long goodbye")
                    await goodbye(session)
        except Exception:
            # After a defect a goodbye may fail of it again; what failed first is told.
            if self.failure is None:
                raise
            logger.exception("%s: closing failed too", self.host.name, extra=dict(self.host.fields))
        finally:
            await self._end()

    async def _tell_of_wait(self, deadline: float) -> None:
        """Who pressed Ctrl-C shall see why nothing happens."""
        if deadline == NEVER:
            return
        await anyio.sleep(SILENT_GOODBYE_S)
        left_s = deadline - anyio.current_time()
        if left_s < 0.5:  # it ends now
            return
        logger.warning(
            "%s: still closing: it waits for brokers for at most %.0f s more; Ctrl-C cuts it short",
            self.host.name,
            left_s,
            extra=dict(self.host.fields),
        )

    def abort(self) -> None:
        """End all tasks without a goodbye; return at once."""
        self.open = None
        self._go(Step.ENDED)
        self._forget()
        self._closed.set()
        self.host.abort()

    async def _end(self) -> None:
        self._go(Step.ENDED)
        self._forget()
        self.host.abort()
        try:
            await self.host.stop()
        finally:
            self.session = None
            self._closed.set()

    def _forget(self) -> None:
        _lives.discard(cast("Lifecycle[Session]", self))
        if self._watch is not None:
            self._watch.detach()
            self._watch = None

    # --- what may happen to a client ---

    def _crashed(self, task: TaskHandle, error: Exception) -> None:
        if isinstance(error, ClientClosed) and not self.host.running:
            return  # what it waited for has ended a moment before it
        logger.error(
            "%s: task %s failed",
            self.host.name,
            task.name,
            exc_info=error,
            extra=log_fields(self.host.fields, error=error),
        )
        if self.failure is None:
            self.failure = KafkaError(
                f"the {self.name} is broken: its task {task.name!r} failed: {error!r}"
            )
            self.failure.__cause__ = error
        before = self.phase
        self._go(Step.CRASHED)
        if self.phase in {Phase.STARTING, Phase.CLOSING}:
            # Whoever waits for the start or the goodbye may wait for what this task was to do.
            self.host.abort()
        elif before is Phase.RUNNING and self.session is not None:
            self.open = None
            self.session.broken(copy_of(self.failure))

    def _lost(self) -> None:
        self._go(Step.CUT_OFF)
        if self.phase is Phase.LOST and self.session is not None:
            self.open = None
            self.session.lost(ClientClosed(f"the {self.name}'s tasks were cancelled"))

    def _dropped(self, notify: Callable[[Callable[[], None]], None]) -> None:
        """The client was garbage-collected, by whatever thread; or the interpreter ends."""
        text = f"{self} was never closed; it was made at {self._made_at}"
        session, self.session, self.open = self.session, None, None
        error = ClientClosed(
            f"the {self.name} was garbage-collected: keep a reference until it is closed"
        )
        try:
            notify(partial(self._abandon, session, error))
        except (RuntimeError, OSError):
            # The event loop is closed. Its tasks are gone, and nothing else runs in the session.
            if session is not None and self.phase is not Phase.LOST:
                session.lost(error)
        finally:
            warnings.warn(text, ResourceWarning, stacklevel=2)

    def _abandon(self, session: S | None, error: ClientClosed) -> None:
        """End the tasks of a dropped client and fail what its callers still wait for."""
        self.host.on_end = None
        self.host.abort()
        if session is not None:
            session.lost(error)

    def forked(self) -> None:
        """This is a child process: what was started runs in the parent, on its connections."""
        self._forget()
        self._go(Step.FORKED)
        self.session = self.open = None


_lives: weakref.WeakSet[Lifecycle[Session]] = weakref.WeakSet()
"""The clients of this process that are started."""


def _after_fork() -> None:
    for life in list(_lives):
        life.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def label(kind: str, config: ClientConfig, group_id: str | None = None) -> str:
    """How a client is named in its `repr`: by what tells it from others, and nothing secret."""
    servers = ",".join(str(Address(*address)) for address in config.bootstrap_addresses)
    group = "" if group_id is None else f" group_id={group_id!r}"
    return f"{kind} client_id={config.client_id!r} bootstrap_servers={servers!r}{group}"


def _caller() -> str:
    """File and line of the code outside of this package that makes a client."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_ours(module: str) -> bool:
    return module == PACKAGE or module.startswith(PACKAGE + ".")
