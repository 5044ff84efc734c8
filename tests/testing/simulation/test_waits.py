"""Where a suspended task stands."""

from __future__ import annotations

from collections.abc import Generator
from types import coroutine

from aiokafkawire.testing.simulation.waits import SHOWN_FRAMES, waiting


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
    assert str(found).startswith("name: outer (test_waits.py:")
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
