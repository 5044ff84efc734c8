"""One Java process that a test owns: started, watched, suspended, stopped by its own id."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

HOST = "127.0.0.1"
STOP_TIMEOUT_SECONDS = 20.0
KILL_TIMEOUT_SECONDS = 10.0
STOPPED_WITHIN_SECONDS = 10.0
OUTPUT_BYTES = 256 * 1024
PORT_ATTEMPTS = 1000

_LOWEST_PORT = 10_000
_USUAL_EPHEMERAL_FLOOR = 32_768
# Hypothesis seeds the module-level generator: two brokers would then want the same ports.
_ports = random.SystemRandom()


class Process:
    """A child process with its output in a log file. Stopping it twice is no error."""

    def __init__(self, command: Sequence[str | os.PathLike[str]], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._log_start = output.tell()
            # A session of its own: Ctrl-C at the terminal ends the tests, and these end it.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                start_new_session=True,
            )
        self._guard: subprocess.Popen[bytes] | None = None
        try:
            self._guard = start_guard(self._process.pid)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal's number if a signal ended it."""
        return self._process.poll()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Return whether it ended within the time."""
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def suspend(self) -> None:
        """Freeze it (SIGSTOP): its sockets stay open and nobody answers."""
        self._process.send_signal(signal.SIGSTOP)
        # The last of its threads may run on for a moment, and answer.
        end = time.monotonic() + STOPPED_WITHIN_SECONDS
        while not self._frozen():
            assert time.monotonic() < end, f"not frozen after {STOPPED_WITHIN_SECONDS} s"
            time.sleep(0.001)

    def _frozen(self) -> bool:
        states = set()
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with suppress(OSError):  # a thread may have ended meanwhile
                states.add(stat.read_text().rpartition(")")[2].split()[0])
        return states <= {"T", "Z", "X"}

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to end, without waiting."""
        self._process.terminate()
        self.resume()  # a frozen process hears SIGTERM only when it goes on

    def stop(self) -> None:
        """Ask it to end; kill it if it has not within STOP_TIMEOUT_SECONDS."""
        self.terminate()
        if not self.wait(STOP_TIMEOUT_SECONDS):
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self._process.kill()
        self._reap()

    def output(self) -> str:
        """The last OUTPUT_BYTES that it wrote itself: the log may begin with a predecessor's."""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, size - OUTPUT_BYTES))
            return file.read().decode(errors="replace")

    def resident_mib(self) -> float | None:
        """Resident memory; None where /proc does not have it."""
        with suppress(FileNotFoundError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
        return None

    def _reap(self) -> None:
        self._process.wait(KILL_TIMEOUT_SECONDS)
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None


def start_guard(pid: int) -> subprocess.Popen[bytes]:
    """Kill `pid` when this process ends without having stopped it (itself killed, say).

    The guard's standard input is a pipe that only this process holds: it reads its end.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; kill -9 "$1"', "guard", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports on which nobody listens.

    They lie below the system's ephemeral range: a port from within it may become the
    source port of a client's connection while its broker restarts (on loopback even of
    a connection to itself), and the broker could not have it back.
    """
    ceiling = _ephemeral_floor()
    found: list[int] = []
    with ExitStack() as held:
        for _ in range(PORT_ATTEMPTS):
            if len(found) == count:
                return found
            port = _ports.randrange(_LOWEST_PORT, ceiling)
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind((HOST, port))
                found.append(port)
    raise OSError(f"no {count} free ports between {_LOWEST_PORT} and {ceiling}")


def _ephemeral_floor() -> int:
    """The first port that the system gives to outgoing connections, made usable as a bound."""
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    floor = int(setting.read_text().split()[0]) if setting.exists() else _USUAL_EPHEMERAL_FLOOR
    return floor if floor > _LOWEST_PORT + PORT_ATTEMPTS else _USUAL_EPHEMERAL_FLOOR
