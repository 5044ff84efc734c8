"""Drivers as processes, with all that they start: to be killed as a whole, or in part."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

DEADLINE_S = 200
"""The longest that a driver may take."""

LOCAL = "local[2,4]"
"""Tasks are tried four times."""

CLUSTER = "local-cluster[2,1,512]"
"""Two executors, processes of their own."""

ENVIRONMENT = {
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "PYTHONDONTWRITEBYTECODE": "",
}
"""All is to start soon, since it does not live long."""


class Job:
    """A driver that runs `tests.spark.stream_job`."""

    def __init__(self, log: Path, arguments: dict[str, str], options: dict[str, str]) -> None:
        command = [sys.executable, "-m", "tests.spark.stream_job"]
        for name, value in arguments.items():
            command += [f"--{name}", value]
        for name, value in options.items():
            command += ["--option", f"{name}={value}"]
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        # Who starts in it belongs to it, also when those between are gone.
        self._family: set[int] = set()

    def wait(self) -> int:
        """Wait for the exit code, then kill all remaining child processes."""
        end = DEADLINE_S
        while True:
            try:
                code = self._process.wait(0.2)
            except subprocess.TimeoutExpired:
                self._family |= _family_of(self._process.pid)
                end -= 0.2
                if end > 0:
                    continue
                self.kill()
                raise AssertionError(f"no end after {DEADLINE_S} s:\n{self.tail()}") from None
            self._kill_family()
            return code

    def tail(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-8_000:]

    def kill(self) -> None:
        """The driver, with its JVM, its executors and their workers."""
        self._family |= _family_of(self._process.pid)
        self._kill_family()

    def kill_worker(self, rng: random.Random) -> bool:
        """One of the Python processes in which tasks run, and commits of sinks."""
        daemons = self._running("pyspark.daemon")
        workers = [pid for pid in daemons if _parent(pid) in daemons]
        return _kill_one_of(workers, rng)

    def kill_executor(self, rng: random.Random) -> bool:
        """The JVM of an executor."""
        return _kill_one_of(self._running("CoarseGrainedExecutorBackend"), rng)

    def _running(self, what: str) -> list[int]:
        return sorted(pid for pid in _family_of(self._process.pid) if what in _command(pid))

    def _kill_family(self) -> None:
        for pid in (self._process.pid, *self._family):
            if pid == self._process.pid or "spark" in _command(pid):
                _kill(pid)


@contextmanager
def job(log: Path, arguments: dict[str, str], options: dict[str, str]) -> Iterator[Job]:
    """A driver that does not outlive this."""
    started = Job(log, arguments, options)
    try:
        yield started
    finally:
        started.kill()
        started._process.wait(30)


def _kill_one_of(pids: list[int], rng: random.Random) -> bool:
    if not pids:
        return False
    _kill(rng.choice(pids))
    return True


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _family_of(pid: int) -> set[int]:
    """All processes that descend from this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(int(entry.name)), []).append(int(entry.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        more = children.get(waiting.pop(), [])
        found.update(more)
        waiting += more
    return found


def _parent(pid: int) -> int:
    try:
        # The name before may have spaces and parentheses in it.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return -1


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
