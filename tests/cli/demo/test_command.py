"""The whole demo, as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import Cli
from ..shell import SECOND, aiokafkawire, end, interrupt, running, serving

pytestmark = pytest.mark.slow

LINES = 3_000


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_bytes(b"".join(b"the line number %d, the %d\n" % (n, n % 7) for n in range(LINES)))
    return path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, which is empty again afterwards."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def demo_processes(temporary: Path) -> list[str]:
    """The worker processes of demos whose files are in this folder."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if str(temporary) in line]


def until_it_plays(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    while b"has partitions" not in process.stdout.readline():
        assert process.poll() is None, end(process)[1].decode()


LAST_LINE = f"sent {LINES}, processed {LINES}, lost 0, counted twice 0"


@pytest.mark.slow
def test_the_demo_survives_a_killed_worker_and_a_restarted_node(
    text: Path, temporary: Path
) -> None:
    done = aiokafkawire("demo", env={"INPUT": str(text), "BOOTSTRAP": ""})
    lines = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (0, b""), done
    assert lines[-1] == LAST_LINE
    for event in ("killed worker 1", "started worker 4", "stopped node 3", "node 3 is up again"):
        assert any(event in line for line in lines), event
    assert any("worker 4 has partitions" in line for line in lines)
    assert "DIFFERENT" not in done.stdout.decode()
    assert demo_processes(temporary) == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["uvloop", "trio"])
def test_the_demo_runs_on_another_kafka(backend: str, text: Path, temporary: Path) -> None:
    with serving("--nodes", "2", "--no-auto-create") as (servers, _):
        given = {"INPUT": str(text.parent / "text"), "BOOTSTRAP": servers}
        done = aiokafkawire("demo", "--backend", backend, env=given)
        lines = done.stdout.decode().splitlines()
        assert (done.returncode, done.stderr) == (0, b""), done
        assert lines[-1] == LAST_LINE
        assert "stopped node" not in done.stdout.decode()
        # Its topic is gone again.
        left = aiokafkawire("consume", "-b", servers, "-G", "g", "^.*", "-e")
        assert b"no topic matches" in left.stderr
    assert demo_processes(temporary) == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_ends_every_process(backend: str, text: Path, temporary: Path) -> None:
    given = ("demo", "--input", str(text), "--backend", backend)
    with running(*given, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        assert process.stdout is not None
        until_it_plays(process)
        assert len(demo_processes(temporary)) == 3
        assert interrupt(process) < SECOND
        assert process.returncode == 130
        assert (
            end(process)[1]
            == b"aiokafkawire: interrupted; topics and files of the demo are removed\n"
        )
    assert demo_processes(temporary) == []


def test_ctrl_c_names_the_topic_that_may_not_be_deleted(text: Path, temporary: Path) -> None:
    with serving("--no-auto-create") as (servers, broker):
        given = ("demo", "--input", str(text), "-b", servers)
        with running(*given, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
            until_it_plays(process)
            broker.send_signal(signal.SIGSTOP)
            assert interrupt(process) < SECOND
            last = end(process)[1].decode().splitlines()[-1]
        broker.send_signal(signal.SIGCONT)
    assert last.startswith("aiokafkawire: interrupted; topic aiokafkawire-demo-")
    assert last.endswith(" may remain")


@pytest.mark.slow
def test_the_processes_end_when_the_demo_is_killed(text: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with running("demo", "--input", str(text), env=environment) as process:
        assert process.stdout is not None
        until_it_plays(process)
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 20
    while demo_processes(tmp_path):
        assert time.monotonic() < until


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/no/such/file", "/no/such/file does not exist; give another INPUT"),
        ("/dev/null", "neither a file nor a folder"),
    ],
)
def test_an_invalid_input_is_an_error_of_one_line(
    path: str, message: str, cli: Cli, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INPUT", path)
    code, out, err = cli("demo")
    assert (code, out, err.count("\n")) == (1, b"", 1)
    assert message in err


def test_an_empty_input_is_an_error(tmp_path: Path, cli: Cli, temporary: Path) -> None:
    (tmp_path / "empty").touch()
    code, out, err = cli("demo", "--input", str(tmp_path / "empty"))
    assert (code, out) == (1, b"")
    assert err == f"aiokafkawire: {tmp_path}/empty is empty; give another INPUT\n"
    assert cli("demo", "--input", "")[0] == 1


def test_a_closed_stdout_ends_the_demo_without_a_traceback(text: Path, temporary: Path) -> None:
    with running("demo", "--input", str(text)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert demo_processes(temporary) == []
