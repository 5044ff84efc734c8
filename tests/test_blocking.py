"""The event loop for callers without one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire import Admin, blocking
from aiokafkawire.testing import KafkaBroker


async def double(number: int) -> int:
    await anyio.lowlevel.checkpoint()
    return 2 * number


async def fail() -> None:
    raise LookupError("as it is")


def test_a_call_returns_the_result_or_raises():
    assert [blocking.call(double, number) for number in range(3)] == [0, 2, 4]
    with pytest.raises(LookupError, match="as it is"):
        blocking.call(fail)


def test_an_admin_client_without_an_event_loop():
    with KafkaBroker() as broker:
        admin = Admin(bootstrap_servers=broker.bootstrap_servers)
        blocking.call(admin.start)
        try:
            blocking.call(admin.create_topics, ["orders"])
            assert list(blocking.call(admin.list_topics)) == ["orders"]
        finally:
            blocking.call(admin.stop)


def test_all_calls_run_in_one_thread():
    async def where() -> threading.Thread:
        return threading.current_thread()

    (thread,) = {blocking.call(where) for _ in range(3)}
    assert thread is not threading.current_thread()
    assert thread.daemon


class Source:
    """Counts up; records how far it was read, and that it was closed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.given = 0
        self.closed = False

    async def items(self) -> AsyncGenerator[int, None]:
        try:
            while self.given < self.count:
                self.given += 1
                yield self.given
                await anyio.lowlevel.checkpoint()
            if self.count < 0:
                raise LookupError("as it is")
        finally:
            self.closed = True


def test_an_iteration_returns_all_items_in_order():
    source = Source(50)
    assert list(blocking.iterate(source.items(), 3)) == list(range(1, 51))
    assert source.closed


def test_an_iteration_does_not_exceed_the_prefetch():
    source = Source(50)
    items = blocking.iterate(source.items(), 3)
    assert next(items) == 1
    blocking.call(anyio.sleep, 0.05)
    assert source.given <= 1 + 3 + 1
    items.close()
    assert source.closed


def test_an_exception_of_the_source_is_raised():
    source = Source(-1)
    with pytest.raises(LookupError, match="as it is"):
        list(blocking.iterate(source.items(), 3))


PROGRAM = """
import os, anyio
from aiokafkawire import Admin, blocking
from aiokafkawire.testing import KafkaBroker

async def announce(what):
    print(what, os.getpid() == parent, flush=True)

parent = os.getpid()
blocking.at_exit(lambda: announce("first"))
blocking.at_exit(lambda: announce("second"))
blocking.call(announce, "called")
"""


def run(code: str) -> list[str]:
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert finished.stderr == ""
    return finished.stdout.split("\n")[:-1]


def test_clients_are_closed_in_reverse_order_at_exit():
    assert run(PROGRAM) == ["called True", "second True", "first True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_has_its_own_loop_and_does_not_close_the_parents_clients():
    forked = PROGRAM + (
        "import warnings\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"  # of forks beside threads, 3.12
        "child = os.fork()\n"
        "if not child:\n"
        "    blocking.call(announce, 'in child')\n"
        "else:\n"
        "    os.waitpid(child, 0)\n"
    )
    assert run(forked) == ["called True", "in child False", "second True", "first True"]


def test_a_close_that_hangs_does_not_block_the_exit():
    stuck = (
        PROGRAM + "blocking.EXIT_CALLBACKS_TIMEOUT_S = 0.1\nblocking.at_exit(anyio.sleep_forever)\n"
    )
    assert run(stuck) == ["called True"]
