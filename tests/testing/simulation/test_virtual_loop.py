"""asyncio's loop in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from aiokafkawire.testing.simulation.virtual_loop import VirtualLoop
from tests.elapsed import ends_within


class Stuck(Exception):
    pass


def stuck() -> None:
    raise Stuck


def run(main: object) -> VirtualLoop:
    turns: list[None] = []
    loop = VirtualLoop(stuck, lambda: turns.append(None))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main)  # type: ignore[arg-type]
    assert turns
    return loop


def test_timers_run_in_their_order_and_at_once() -> None:
    order: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for days in (3, 1, 2):
            loop.call_later(days * 86_400, order.append, days)
        await asyncio.sleep(4 * 86_400)

    with ends_within(5):
        loop = run(main())
        assert order == [1, 2, 3]
        assert loop.time() == pytest.approx(4 * 86_400)


def test_whoever_waits_for_ever_is_told() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck):
        run(main())


def test_it_tells_who_waits() -> None:
    async def main() -> list[str]:
        task = asyncio.get_running_loop().create_task(asyncio.sleep(1), name="sleeper")
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        found = [waiting.task for waiting in loop.waiting()]
        await task
        assert "sleeper" in found
        return found

    run(main())
