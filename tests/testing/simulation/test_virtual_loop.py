"""asyncio's loop in virtual time, and in an order that no address decides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import anyio
import pytest
from anyio._backends import _asyncio as anyio_asyncio

from aiokafkawire.runtime import checkpoint
from aiokafkawire.testing.simulation.virtual_loop import (
    NumberedScope,
    VirtualLoop,
    scopes_in_order,
)
from aiokafkawire.testing.simulation.virtual_time import Stop, VirtualTime


def stop(kind: type[Stop], why: str) -> None:
    raise kind(why)


def run(main: Coroutine[Any, Any, Any]) -> VirtualLoop:
    loop = VirtualLoop(VirtualTime(stop))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main)
    return loop


def test_timers_run_in_their_order_and_at_once() -> None:
    order: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for days in (3, 1, 2):
            loop.call_later(days * 86_400, order.append, days)
        await asyncio.sleep(4 * 86_400)

    began = time.monotonic()
    loop = run(main())
    assert order == [1, 2, 3]
    assert loop.time() == pytest.approx(4 * 86_400)
    assert time.monotonic() - began < 5


def test_a_deadlock_is_reported() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stop):
        run(main())


def test_a_busy_loop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "aiokafkawire.testing.simulation.virtual_time.MAX_ITERATIONS_WITHOUT_PROGRESS", 50
    )

    async def main() -> None:
        while True:
            await checkpoint()

    with pytest.raises(Stop, match="50 turns"):
        run(main())


def test_it_lists_tasks_and_timers() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        sleeper = loop.create_task(asyncio.sleep(1), name="sleeper")
        await asyncio.sleep(0)
        loop.call_at(9, print).cancel()
        pending = dict(loop.tasks())
        assert pending[sleeper].task == "sleeper"
        assert pending[sleeper].line
        assert [timer.rpartition(" at ")[2] for timer in loop.timers()] == ["1.000000 s"]
        await sleeper
        assert list(loop.timers()) == []

    run(main())


def test_tasks_and_scopes_stand_in_sets_by_their_numbers() -> None:
    """Thirty of each: their addresses have them in another order."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(asyncio.sleep(1)) for _ in range(30)]
        backwards = tasks[::-1]
        assert list(set(backwards)) == tasks
        assert repr(tasks[0]) == f"<Task {tasks[0].get_name()}>"
        scopes = [anyio.CancelScope() for _ in range(30)]
        numbers = [hash(scope) for scope in scopes]
        assert numbers == [hash(scope) for scope in scopes] == sorted(set(numbers))
        scopes_backwards = scopes[::-1]
        assert list(set(scopes_backwards)) == scopes
        await asyncio.wait(tasks)

    with scopes_in_order():
        run(main())


def test_scopes_are_as_before_afterwards() -> None:
    before = anyio_asyncio.CancelScope
    with scopes_in_order():
        assert anyio_asyncio.CancelScope is NumberedScope
    assert anyio_asyncio.CancelScope is before
