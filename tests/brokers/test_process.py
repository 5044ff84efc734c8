from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import process as process_module
from tests.brokers.process import HOST, Process, free_ports

ANSWER_SECONDS = 10.0

STUBBORN = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"
PARENT = """
import sys
from pathlib import Path
from tests.brokers.process import Process
print(Process(["sleep", "60"], Path(sys.argv[1])).pid, flush=True)
sys.stdin.read()
"""


def has_written(process: Process, text: str) -> bool:
    """Wait until `text` stands in its log."""
    for _ in range(int(ANSWER_SECONDS / 0.01)):
        if text in process.output() or process.wait(0.01):
            break
    return text in process.output()


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    process = Process(["sleep", "60"], tmp_path / "log")
    yield process
    process.kill()


def test_stop_ends_it_by_sigterm_and_may_be_repeated(sleeper: Process) -> None:
    assert not sleeper.wait(0)
    sleeper.stop()
    assert sleeper.returncode == -signal.SIGTERM
    sleeper.stop()


def test_a_suspended_process_has_stopped_each_time(sleeper: Process) -> None:
    for _ in range(3):
        sleeper.suspend()
        stat = Path(f"/proc/{sleeper.pid}/stat").read_text()
        assert stat.rpartition(")")[2].split()[0] == "T"
        sleeper.resume()


def test_a_suspended_process_can_be_stopped(sleeper: Process) -> None:
    sleeper.suspend()
    _, status = os.waitpid(sleeper.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    sleeper.stop()
    assert sleeper.returncode == -signal.SIGTERM


def test_a_process_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "STOP_TIMEOUT_SECONDS", 0.2)
    process = Process(["sh", "-c", STUBBORN], tmp_path / "log")
    assert has_written(process, "deaf")
    process.stop()
    assert process.returncode == -signal.SIGKILL


def test_the_output_is_its_own(tmp_path: Path) -> None:
    for word in ("first", "second"):
        process = Process(["sh", "-c", f"echo {word}; exit 3"], tmp_path / "log")
        assert process.wait(ANSWER_SECONDS)
        assert process.returncode == 3
        process.stop()
    assert process.output() == "second\n"
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches a foreign child by pidfd: Linux")
def test_it_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            ended, _, _ = select.select([child], [], [], ANSWER_SECONDS)
        finally:
            os.close(child)
    assert ended


def test_free_ports_are_distinct_and_can_be_listened_on() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        socket.create_server((HOST, port)).close()


def test_a_port_with_a_listener_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free, other = free_ports(2)
    drawn = iter([free, other])

    class Draw:
        def randrange(self, _low: int, _high: int) -> int:
            return next(drawn)

    monkeypatch.setattr(process_module, "_ports", Draw())
    with socket.create_server((HOST, free)):
        assert free_ports(1) == [other]
