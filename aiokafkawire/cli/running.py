"""Running one command's coroutine: the backend, Ctrl-C, and an end within a second."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any

import anyio

from aiokafkawire.cli.problems import INTERRUPTED, TERMINATED, Failure
from aiokafkawire.runtime.host import thread_notifier

__all__ = ("BACKENDS", "GRACE_S", "HARD_STOP_S", "Interruption", "Stopped", "run")

BACKENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {"use_uvloop": False}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}

HARD_STOP_S = 0.65
"""After Ctrl-C, a goodbye that takes longer is cut off by ending the process, within a second."""

GRACE_S = 0.35
"""After Ctrl-C, clients that are still closing are told to abort."""

CODES: dict[int, int] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


class Stopped(Exception):
    """The command was ended by a signal; `code` is the exit code for it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class Interruption:
    """What a signal does: first a goodbye is asked for, then insisted on, then done without.

    `on_grace` functions run in the event loop when the grace is over; `last_resorts` run in a
    thread just before the process is ended (both must not wait and not raise).
    """

    def __init__(self) -> None:
        self.code = 0
        self.on_grace: list[Callable[[], None]] = []
        self.last_resorts: list[Callable[[], None]] = []
        self._notify: Callable[[Callable[[], None]], None] | None = None
        self._cancel: Callable[[], None] | None = None
        self._pipe: tuple[int, int] | None = None
        self._over = threading.Event()
        self._ending = False

    @property
    def happened(self) -> bool:
        return self.code != 0

    def attach(
        self, notify: Callable[[Callable[[], None]], None], cancel: Callable[[], None]
    ) -> None:
        """Say how to reach the event loop, and what to do there at the first signal."""
        self._notify, self._cancel = notify, cancel
        if self.happened:
            cancel()

    def detach(self) -> None:
        self._notify = self._cancel = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM inside; only the main thread may."""
        receiver, sender = os.pipe()
        self._pipe = receiver, sender
        self._over.clear()
        watchdog = threading.Thread(target=self._watch, name="interruption", daemon=True)
        watchdog.start()
        before = {number: signal.signal(number, self._handle) for number in CODES}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._pipe = None
            self._over.set()
            os.close(sender)
            watchdog.join(HARD_STOP_S + GRACE_S)
            os.close(receiver)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # Runs between any two instructions of the main thread, its own included: takes no locks.
        if self._ending:
            return
        if self.code:
            # A flood of signals would nest one handler in another without end.
            for each in CODES:
                signal.signal(each, signal.SIG_IGN)
            self._end_now()
            return
        self.code = CODES[number]
        if self._pipe is not None:
            os.write(self._pipe[1], b"!")
        if self._cancel is not None:
            self._tell(self._cancel)

    def _tell(self, function: Callable[[], None]) -> None:
        # The loop may have ended meanwhile, which is what was asked for.
        if self._notify is not None:
            with contextlib.suppress(RuntimeError):
                self._notify(function)

    def _watch(self) -> None:
        """Count the time from a signal in a thread that no event loop can hold up."""
        assert self._pipe is not None
        receiver = self._pipe[0]
        if not os.read(receiver, 1):
            return
        if self._over.wait(GRACE_S):
            return
        for function in self.on_grace:
            self._tell(function)
        if not self._over.wait(HARD_STOP_S - GRACE_S):
            self._end_now()

    def _end_now(self) -> None:
        if self._ending:
            return
        self._ending = True
        for function in self.last_resorts:
            function()
        os._exit(self.code)


def run(
    function: Callable[[Interruption], Awaitable[None]],
    *,
    backend: str,
    interruption: Interruption | None = None,
) -> None:
    """Run a command to its end; raises `Stopped` if a signal ended it."""
    library, options = BACKENDS[backend]
    if importlib.util.find_spec(backend) is None:
        raise Failure(f"--backend {backend} needs {backend}: pip install {backend}")
    one = Interruption() if interruption is None else interruption
    with one.watching():
        try:
            anyio.run(_supervise, function, one, backend=library, backend_options=options)
        except Exception:
            # What fails because it was cut off is no news to the one who cut it off.
            if not one.happened:
                raise
    if one.happened:
        raise Stopped(one.code)


async def _supervise(
    function: Callable[[Interruption], Awaitable[None]], interruption: Interruption
) -> None:
    with anyio.CancelScope() as scope:
        interruption.attach(thread_notifier(), scope.cancel)
        try:
            await function(interruption)
        finally:
            interruption.detach()
