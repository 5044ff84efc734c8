"""Child processes that report their actions as JSON lines. They are ended by their own id, and do
not outlive their parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.brokers.process import start_guard

ROOT = Path(__file__).parents[2]
POLL_INTERVAL_S = 0.05
END_TIMEOUT_SECONDS = 15.0


class WaitFailed(RuntimeError):
    """A condition was not met in time, or a process ended unexpectedly."""


class ReportingProcess:
    def __init__(self, name: str, module: str, arguments: Iterable[object]) -> None:
        self.name = name
        self.events: list[dict[str, Any]] = []
        self.alive = True
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
            # In a new session: Ctrl-C at the terminal is for the parent.
            start_new_session=True,
        )
        self._guard: subprocess.Popen[bytes] | None = start_guard(self._process.pid)
        self._reader = threading.Thread(target=self._listen, name=name, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # ignore an incomplete last line
                self.events.append(json.loads(line))

    @property
    def ended(self) -> int | None:
        """The exit code of a process that exited by itself."""
        return self._process.poll() if self.alive else None

    def send(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.alive = False
        self._process.kill()
        self._process.wait(END_TIMEOUT_SECONDS)
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        self._reader.join(END_TIMEOUT_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def leave(self, timeout_seconds: float = END_TIMEOUT_SECONDS) -> None:
        """Ask it to end; a process that does not, or fails, is a problem."""
        self.ask_to_end()
        self.finish(timeout_seconds)

    def ask_to_end(self) -> None:
        self.send(signal.SIGTERM)

    def finish(self, timeout_seconds: float) -> None:
        """Wait until it ends."""
        try:
            code = self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise WaitFailed(f"{self.name} did not end in {timeout_seconds:.0f} s") from error
        finally:
            self.kill()
        if code != 0:
            raise WaitFailed(f"{self.name} ended with {code}")


def until(
    what: str, holds: Callable[[], bool], timeout_seconds: float, *watched: ReportingProcess
) -> float:
    """Wait until a condition holds; return the time. A watched process that exits with an error
    ends the wait."""
    began = time.monotonic()
    while not holds():
        for process in watched:
            if process.ended:
                raise WaitFailed(
                    f"{process.name} ended with {process.ended} by itself; awaited: {what}"
                )
        if time.monotonic() - began > timeout_seconds:
            raise WaitFailed(f"not in {timeout_seconds:.0f} s: {what}")
        time.sleep(POLL_INTERVAL_S)
    return time.monotonic() - began
