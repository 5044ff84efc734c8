"""Run a command's coroutine on a backend; stop it within a second of Ctrl-C."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any, Literal

import anyio

from aiokafkawire.cli.error_text import INTERRUPTED, TERMINATED, CommandFailed
from aiokafkawire.runtime.supervisor import get_call_soon_threadsafe

__all__ = (
    "BACKENDS",
    "GRACE_S",
    "HARD_STOP_S",
    "Interruption",
    "StoppedBySignal",
    "installed_backend",
    "run_command",
)

BACKENDS: dict[str, tuple[Literal["asyncio", "trio"], dict[str, Any]]] = {
    "asyncio": ("asyncio", {"use_uvloop": False}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}

HARD_STOP_S = 0.65
"""After Ctrl-C, the process exits after this time even if clients are still closing."""

GRACE_S = 0.35
"""After Ctrl-C, clients that are still closing after this time abort."""

EXIT_CODES: dict[int, int] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


class StoppedBySignal(Exception):
    """Raised when a signal stopped the command; `code` is the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class Interruption:
    """Shutdown after a signal: cancel the command, then abort its clients, then exit.

    `on_grace_over` callbacks run in the event loop after `GRACE_S`. `before_exit` callbacks run in
    a thread just before the process exits. Neither may block or raise.
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
        """Register the event loop and the callback for the first signal."""
        self._notify, self._cancel = notify, cancel
        if self.happened:
            cancel()

    def detach(self) -> None:
        self._notify = self._cancel = None

    @contextlib.contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM in the context; main thread only."""
        receiver, sender = os.pipe()
        self._pipe = receiver, sender
        self._finished.clear()
        watchdog = threading.Thread(
            target=self._enforce_deadlines, name="interruption", daemon=True
        )
        watchdog.start()
        previous_handlers = {number: signal.signal(number, self._handle) for number in EXIT_CODES}
        try:
            yield
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)
            self._pipe = None
            self._finished.set()
            os.close(sender)
            watchdog.join(HARD_STOP_S + GRACE_S)
            os.close(receiver)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # Runs between any two instructions of the main thread, also its own: take no locks.
        if self._exiting:
            return
        if self.code:
            # Repeated signals would nest handlers without limit.
            for signal_number in EXIT_CODES:
                signal.signal(signal_number, signal.SIG_IGN)
            self._exit_now()
            return
        self.code = EXIT_CODES[number]
        if self._pipe is not None:
            os.write(self._pipe[1], b"!")
        if self._cancel is not None:
            self._call_in_loop(self._cancel)

    def _call_in_loop(self, function: Callable[[], None]) -> None:
        # RuntimeError: the loop has already ended, as intended.
        if self._notify is not None:
            with contextlib.suppress(RuntimeError):
                self._notify(function)

    def _enforce_deadlines(self) -> None:
        """Enforce the deadlines after a signal, in a thread that the event loop cannot block."""
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


def installed_backend(name: str) -> tuple[Literal["asyncio", "trio"], dict[str, Any]]:
    """Return the library of `--backend` and its options of `anyio.run`.

    Raises:
        CommandFailed: The package is not installed.
    """
    if importlib.util.find_spec(name) is None:
        raise CommandFailed(f"--backend {name} needs {name}: pip install {name}")
    return BACKENDS[name]


def run_command(
    function: Callable[[Interruption], Awaitable[None]],
    *,
    backend: str,
    interruption: Interruption | None = None,
) -> None:
    """Run a command to its end. Raises `StoppedBySignal` if a signal stopped it."""
    library, options = installed_backend(backend)
    active = Interruption() if interruption is None else interruption
    with active.handling_signals():
        try:
            anyio.run(_supervise, function, active, backend=library, backend_options=options)
        except Exception:
            # Errors after a signal are a consequence of the cancellation: do not report them.
            if not active.happened:
                raise
    if active.happened:
        raise StoppedBySignal(active.code)


async def _supervise(
    function: Callable[[Interruption], Awaitable[None]], interruption: Interruption
) -> None:
    with anyio.CancelScope() as scope:
        interruption.attach(get_call_soon_threadsafe(), scope.cancel)
        try:
            await function(interruption)
        finally:
            interruption.detach()
