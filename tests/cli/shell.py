"""Run the command line in a process, as a shell does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.elapsed import Elapsed

__all__ = ("LIMIT_S", "SECOND", "aiokafkawire", "end", "interrupt", "running", "serving")

SECOND = 1.0
LIMIT_S = 60.0
"""Time limit of a command."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "aiokafkawire", *arguments]


def aiokafkawire(
    *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None, limit_s: float = LIMIT_S
) -> subprocess.CompletedProcess[bytes]:
    """Run one command to its end."""
    return subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        timeout=limit_s,
        check=False,
        env=None if env is None else {**os.environ, **env},
    )


@contextmanager
def running(*arguments: str, **popen: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command; kill it on exit if it still runs."""
    settings: dict[str, object] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **popen,
    }
    process = subprocess.Popen(command(*arguments), **settings)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run `aiokafkawire broker` on free ports; yield its bootstrap servers and its process."""
    with running("broker", "--port", "0", "-q", *arguments) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip(), process


def interrupt(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGINT) -> float:
    """Send SIGINT or another signal; return the seconds until the process has ended.

    The time is divided by the load per core, because each process gets only a share of a core.
    """
    elapsed = Elapsed()
    elapsed.start()
    try:
        process.send_signal(number)
        process.wait(timeout=LIMIT_S)
    finally:
        elapsed.stop()
    shares = os.getloadavg()[0] / (os.cpu_count() or 1)
    return elapsed.seconds / max(shares, 1.0)


def end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return stdout and stderr of a process that has ended or ends soon."""
    return process.communicate(timeout=LIMIT_S)
