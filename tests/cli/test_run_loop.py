from __future__ import annotations

import signal
import subprocess
import sys

import anyio
import pytest

from aiokafkawire.cli import run_loop
from aiokafkawire.cli.error_text import CommandFailed
from tests.elapsed import ends_within

from .shell import interrupt

pytestmark = pytest.mark.slow

SCRIPT = """
import sys, time
import anyio
from aiokafkawire.cli.run_loop import StoppedBySignal, run_command

async def polite(interruption):
    try:
        print("ready", flush=True)
        await anyio.sleep_forever()
    finally:
        print("closed", flush=True)

async def until_grace_is_over(interruption):
    done = anyio.Event()
    interruption.on_grace_over.append(done.set)
    print("ready", flush=True)
    with anyio.CancelScope(shield=True):
        await done.wait()
    print("grace over", flush=True)

async def deaf(interruption):
    interruption.before_exit.append(lambda: print("before exit", flush=True))
    print("ready", flush=True)
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()

async def busy(interruption):
    print("ready", flush=True)
    while True:
        pass

async def failing(interruption):
    print("ready", flush=True)
    try:
        await anyio.sleep_forever()
    finally:
        raise OSError("cut off")

try:
    run_command(globals()[sys.argv[1]], backend=sys.argv[2])
except StoppedBySignal as stopped:
    sys.exit(stopped.code)
"""


@pytest.fixture(params=run_loop.BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("function", "number", "code", "words", "backend"),
    [
        ("polite", signal.SIGINT, 130, b"closed\n", "asyncio"),
        ("polite", signal.SIGINT, 130, b"closed\n", "uvloop"),
        ("polite", signal.SIGINT, 130, b"closed\n", "trio"),
        ("polite", signal.SIGTERM, 143, b"closed\n", "asyncio"),
        ("until_grace_is_over", signal.SIGINT, 130, b"grace over\n", "asyncio"),
        ("until_grace_is_over", signal.SIGINT, 130, b"grace over\n", "uvloop"),
        ("until_grace_is_over", signal.SIGINT, 130, b"grace over\n", "trio"),
        ("deaf", signal.SIGINT, 130, b"before exit\n", "asyncio"),
        ("busy", signal.SIGINT, 130, b"", "trio"),
        ("failing", signal.SIGINT, 130, b"", "asyncio"),
        ("failing", signal.SIGINT, 130, b"", "trio"),
    ],
)
def test_a_signal_ends_a_command_within_a_second(
    function: str, number: signal.Signals, code: int, words: bytes, backend: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, function, backend],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    assert interrupt(process, number) < run_loop.HARD_STOP_S + 0.7
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (code, words, b"")


# On Windows `select` waits for sockets alone, and a pipe is none.
SOCKETS_ONLY = """
import select

def refuse(*_):
    raise OSError("not a socket")

select.select = refuse
"""


def test_the_watchdog_needs_no_select_of_pipes() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SOCKETS_ONLY + SCRIPT, "deaf", "asyncio"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (130, b"before exit\n", b"")


def test_a_second_signal_ends_it_at_once() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "deaf", "asyncio"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    with ends_within(run_loop.HARD_STOP_S):
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == b"before exit\n"
    assert process.returncode == 130


def test_without_a_signal_the_command_ends_as_it_will(backend: str) -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[run_loop.Interruption] = []

    async def fine(interruption: run_loop.Interruption) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(interruption)

    async def broken(interruption: run_loop.Interruption) -> None:
        raise OSError("disk")

    run_loop.run_command(fine, backend=backend)
    assert not seen[0].happened
    with pytest.raises(OSError, match="disk"):
        run_loop.run_command(broken, backend=backend)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_before_the_loop_runs_counts(backend: str) -> None:
    interruption = run_loop.Interruption()
    interruption.code = 130

    async def never(_: run_loop.Interruption) -> None:
        await anyio.sleep_forever()

    with pytest.raises(run_loop.StoppedBySignal):
        run_loop.run_command(never, backend=backend, interruption=interruption)


def test_a_backend_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: run_loop.Interruption) -> None:
        pytest.fail("nothing to run it")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CommandFailed, match="--backend uvloop needs uvloop: pip install uvloop"):
        run_loop.run_command(never, backend="uvloop")
