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

from aiokafkawire.cli.error_text import INTERRUPTED, TERMINATED, CommandFailed
from aiokafkawire.runtime.host import thread_notifier

__all__ = ("BACKENDS", "GRACE_S", "HARD_STOP_S", "Interruption", "StoppedBySignal", "run_command")

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


class StoppedBySignal(Exception):
    """The command was ended by a signal; `code` is the exit code for it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class Interruption:
    """What a signal does: first a goodbye is asked for, then insisted on, then done without.

    `on_grace_over` functions run in the event loop when the grace is over; `before_exit` run in a
    thread just before the process is ended (both must not wait and not raise).
    """

    def __init__(self) -> None:
        self.code = 0
        self.on_grace_over: list[Callable[[], None]] = []
        self.before_exit: list[Callable[[], None]] = []
        self._notify: Callable[[Callable[[], None]], None] | None = None
        self._cancel: Callable[[], None] | None = None
        self._pipe: tuple[int, int] | None = None
        self._finished = threading.Event()
        self._exiting = False

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
    def handling_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM inside; only the main thread may."""
        receiver, sender = os.pipe()
        self._pipe = receiver, sender
        self._finished.clear()
        watchdog = threading.Thread(
            target=self._enforce_deadlines, name="interruption", daemon=True
        )
        watchdog.start()
        before = {number: signal.signal(number, self._handle) for number in CODES}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._pipe = None
            self._finished.set()
            os.close(sender)
            watchdog.join(HARD_STOP_S + GRACE_S)
            os.close(receiver)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # Runs between any two instructions of the main thread, its own included: takes no locks.
        if self._exiting:
            return
        if self.code:
            # A flood of signals would nest one handler in another without end.
            for signal_number in CODES:
                signal.signal(signal_number, signal.SIG_IGN)
            self._exit_now()
            return
        self.code = CODES[number]
        if self._pipe is not None:
            os.write(self._pipe[1], b"!")
        if self._cancel is not None:
            self._call_in_loop(self._cancel)

    def _call_in_loop(self, function: Callable[[], None]) -> None:
        # The loop may have ended meanwhile, which is what was asked for.
        if self._notify is not None:
            with contextlib.suppress(RuntimeError):
                self._notify(function)

    def _enforce_deadlines(self) -> None:
        """Count the time from a signal in a thread that no event loop can hold up."""
        assert self._pipe is not None
        receiver = self._pipe[0]
        if not os.read(receiver, 1):
            return
        if self._finished.wait(GRACE_S):
            return
        for function in self.on_grace_over:
            self._call_in_loop(function)
        if not self._finished.wait(HARD_STOP_S - GRACE_S):
            self._exit_now()

    def _exit_now(self) -> None:
        if self._exiting:
            return
        self._exiting = True
        for function in self.before_exit:
            function()
        os._exit(self.code)


def run_command(
    function: Callable[[Interruption], Awaitable[None]],
    *,
    backend: str,
    interruption: Interruption | None = None,
) -> None:
    """Run a command to its end; raises `Stopped` if a signal ended it."""
    library, options = BACKENDS[backend]
    if importlib.util.find_spec(backend) is None:
        raise CommandFailed(f"--backend {backend} needs {backend}: pip install {backend}")
    active = Interruption() if interruption is None else interruption
    with active.handling_signals():
        try:
            anyio.run(_supervise, function, active, backend=library, backend_options=options)
        except Exception:
            # What fails because it was cut off is no news to the one who cut it off.
            if not active.happened:
                raise
    if active.happened:
        raise StoppedBySignal(active.code)


async def _supervise(
    function: Callable[[Interruption], Awaitable[None]], interruption: Interruption
) -> None:
    with anyio.CancelScope() as scope:
        interruption.attach(thread_notifier(), scope.cancel)
        try:
            await function(interruption)
        finally:
            interruption.detach()
