"""The source line at which a task is suspended."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import coroutine

import anyio

from aiokafkawire.runtime import Future
from aiokafkawire.testing.simulation.task_dump import SHOWN_FRAMES, SuspendedTask, waiting

FAR_AWAY = 1e9


@coroutine
def suspended() -> Generator[None, None, None]:
    yield


async def inner() -> None:
    await suspended()


async def outer(depth: int = 0) -> None:
    await (outer(depth - 1) if depth else inner())


def test_frames_go_inwards() -> None:
    task = outer()
    task.send(None)
    found = waiting("name", task)
    assert [place.partition(" ")[0] for place in found.where] == ["outer", "inner", "suspended"]
    assert str(found).startswith("name: outer (test_task_dump.py:")
    assert str(found).endswith(": yield")
    task.close()


def test_the_innermost_are_shown() -> None:
    task = outer(20)
    task.send(None)
    found = waiting("name", task)
    assert len(found.where) == SHOWN_FRAMES
    assert found.where[-1].startswith("suspended")
    task.close()


def test_one_that_ended_has_no_place() -> None:
    task = outer()
    task.close()
    assert str(waiting("name", task)) == "name: not started"


def test_waiting_primitives_are_left_out_of_the_dump() -> None:
    async def wait() -> None:
        await Future[None]().wait(deadline=FAR_AWAY)

    async def main() -> SuspendedTask:
        async with anyio.create_task_group() as group:
            group.start_soon(wait, name="hopeful")
            await anyio.wait_all_tasks_blocked()
            loop = asyncio.get_running_loop()
            task = next(task for task in asyncio.all_tasks(loop) if task.get_name() == "hopeful")
            found = waiting("hopeful", task.get_coro())
            group.cancel_scope.cancel()
        return found

    found = anyio.run(main)
    assert "wait (test_task_dump.py:" in found.where[-1]
    assert found.line == "await Future[None]().wait(deadline=FAR_AWAY)"
    assert str(found).endswith(f" (until {FAR_AWAY:.3f} s)")
