from __future__ import annotations

import subprocess
import sys
import threading
import time

import anyio
import pytest

from aiokafkawire.runtime import DaemonThreads


async def test_results_and_exceptions_come_back() -> None:
    threads = DaemonThreads("worker", 2)
    name, is_daemon = await threads.run(
        lambda: (threading.current_thread().name, threading.current_thread().daemon)
    )
    assert (name, is_daemon) == ("worker", True)

    def fail() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await threads.run(fail)


async def test_a_cancelled_caller_leaves_its_thread_which_still_counts() -> None:
    threads = DaemonThreads("worker", 2)
    released = threading.Event()
    for _ in range(2):
        began = time.monotonic()
        with anyio.move_on_after(0.02) as scope:
            await threads.run(lambda: released.wait(20))
        assert scope.cancelled_caught
        assert time.monotonic() - began < 2
    with pytest.raises(OSError, match="2 earlier calls of worker still block"):
        await threads.run(lambda: True)
    released.set()
    with anyio.fail_after(5):
        while True:
            try:
                assert await threads.run(lambda: 7) == 7
            except OSError:
                await anyio.sleep(0.01)
            else:
                break


async def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = DaemonThreads("worker", 1)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(OSError, match="no thread for worker"):
            await threads.run(lambda: 7)
    assert await threads.run(lambda: 7) == 7


PROGRAM = """
import threading, anyio
from aiokafkawire.runtime import DaemonThreads

async def main():
    with anyio.move_on_after(0.05):
        await DaemonThreads("worker", 1).run(lambda: threading.Event().wait(60))

anyio.run(main, backend="{backend}")
print("ended")
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_thread_that_blocks_does_not_delay_the_exit(backend: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(backend=backend)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (finished.stdout, finished.stderr) == ("ended\n", "")
