"""Child processes of the demo. They exchange JSON lines and never outlive the demo.

A child runs in its own process group, so that Ctrl-C in the terminal reaches only the demo. It
ends when its stdin closes, which also happens when the demo is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from aiokafkawire.cli.error_text import one_line
from aiokafkawire.cli.streams import InputStream, RecordSplitter

__all__ = ("Child", "Children", "Commands", "cancel_at_end_of_stdin", "send_event")

STOP_TIMEOUT_S = 10.0
"""Timeout for a child to stop."""

ORPHAN_LIMIT_S = 8.0
KILL_TIMEOUT_S = 2.0
LOG_TAIL_BYTES = 4096


def send_event(event: str, **details: Any) -> None:
    """Send an event from a child to the parent: a few hundred bytes, which fit into the pipe."""
    line = json.dumps({"event": event, **details}) + "\n"
    os.write(sys.stdout.fileno(), line.encode())


class Commands:
    """Commands from the parent, read in a child until stdin closes."""

    def __init__(self) -> None:
        self._input = InputStream(sys.stdin.fileno())
        self._splitter = RecordSplitter(b"\n")
        self._lines: deque[bytes] = deque()

    async def next(self) -> list[str] | None:
        """Return the next command, split into words; None at the end."""
        while not self._lines:
            chunk = await self._input.read()
            if not chunk:
                return None
            self._lines.extend(self._splitter.feed(chunk))
        return self._lines.popleft().decode().split()


async def cancel_at_end_of_stdin(scope: anyio.CancelScope) -> None:
    """Cancel `scope` in a child when the parent closes stdin or has ended.

    After that, the process exits at the latest after `ORPHAN_LIMIT_S`.
    """
    commands = Commands()
    while await commands.next() is not None:
        continue
    limit = threading.Timer(ORPHAN_LIMIT_S, os._exit, (1,))
    limit.daemon = True
    limit.start()
    scope.cancel()


class Child:
    """One child process."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.expected_to_end = False
        self.ended = anyio.Event()
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    async def listen(self, on_event: Callable[[dict[str, Any]], None]) -> None:
        """Pass the events of the child to `on_event` until it ends."""
        assert self._process.stdout is not None
        output = InputStream(self._process.stdout.fileno())
        splitter = RecordSplitter(b"\n")
        while chunk := await output.read():
            for line in splitter.feed(chunk):
                on_event(json.loads(line))
        self.ended.set()

    def send(self, *words: object) -> None:
        """Send a command; ignored by a child that has ended."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")

    def kill(self) -> None:
        """Kill the process. May be called again."""
        self.expected_to_end = True
        if self._process.poll() is None:
            self._process.kill()

    async def stop(self) -> bool:
        """Ask the child to end; kill it after a timeout. Return True if it ended by itself."""
        self.expected_to_end = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        with anyio.move_on_after(STOP_TIMEOUT_S) as scope:
            await self.ended.wait()
        if scope.cancelled_caught:
            self.kill()
        return not scope.cancelled_caught

    def reap(self) -> None:
        """Reap a killed child and close its pipes."""
        self.kill()
        self._process.wait(KILL_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def last_stderr_line(self) -> str:
        """Return the last line that the child wrote to stderr."""
        text = self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
        return one_line(text.splitlines()[-1]) if text else "it wrote nothing to stderr"


class Children:
    """All children of the demo, in start order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Child] = []

    def start(self, name: str, module: str, *arguments: object) -> Child:
        log = self._folder / f"{name.replace(' ', '-')}.log"
        child = Child(name, module, [str(argument) for argument in arguments], log)
        self._all.append(child)
        return child

    def kill_all(self) -> None:
        """Kill all children. May be called from any thread, and again."""
        for child in list(self._all):
            child.kill()

    def reap_all(self) -> None:
        self.kill_all()
        for child in self._all:
            child.reap()
