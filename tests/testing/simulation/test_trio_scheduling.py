"""trio in virtual time, and in an order that a seed decides."""

from __future__ import annotations

import anyio
import pytest
import trio

from aiokafkawire.testing.simulation.trio_scheduling import (
    TrioScheduler,
    seeded,
    tasks,
    timers,
    virtual_clock,
)
from aiokafkawire.testing.simulation.virtual_time import Deadlock, Livelock, Stop, VirtualTime


def stop_reported(kind: type[Stop], why: str) -> None:
    raise kind(why)


def order_of(seed: int) -> list[int]:
    order: list[int] = []

    async def work(number: int) -> None:
        await trio.lowlevel.checkpoint()
        order.append(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(work, number)

    with seeded(seed):
        trio.run(main, clock=virtual_clock(VirtualTime(stop_reported)))
    return order


def test_a_seed_is_an_order() -> None:
    assert order_of(1) == order_of(1)
    assert order_of(1) != order_of(2)
    assert sorted(order_of(1)) == list(range(20))


def test_the_seed_ends_with_its_block() -> None:
    from trio._core import _run

    before = _run._ALLOW_DETERMINISTIC_SCHEDULING
    state = _run._r.getstate()
    with seeded(1):
        assert _run._ALLOW_DETERMINISTIC_SCHEDULING
    assert before == _run._ALLOW_DETERMINISTIC_SCHEDULING
    assert _run._r.getstate() == state


def test_time_jumps_to_the_next_deadline() -> None:
    async def main() -> float:
        await trio.sleep(86_400)
        return trio.current_time()

    assert trio.run(main, clock=virtual_clock(VirtualTime(stop_reported))) == 86_400


def test_a_deadlock_is_reported() -> None:
    calls: list[list[str]] = []
    scopes: list[anyio.CancelScope] = []

    def stop(kind: type[Stop], why: str) -> None:
        assert kind is Deadlock
        calls.append([str(waiting) for _, waiting in tasks()])
        scopes[0].cancel()

    async def main() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await trio.sleep_forever()

    trio.run(main, clock=virtual_clock(VirtualTime(stop)))
    assert len(calls) == 1
    assert any("main (test_trio_scheduling.py:" in line for line in calls[0])


def test_a_busy_loop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "aiokafkawire.testing.simulation.virtual_time.MAX_ITERATIONS_WITHOUT_PROGRESS", 50
    )
    calls: list[type[Stop]] = []
    time = VirtualTime(lambda kind, why: calls.append(kind))

    async def main() -> None:
        while not calls:
            await trio.lowlevel.checkpoint()

    trio.run(main, clock=virtual_clock(time), instruments=[TrioScheduler(time)])
    assert calls == [Livelock]


def test_world_events_wake_tasks() -> None:
    time = VirtualTime(stop_reported)

    async def main() -> float:
        event = trio.Event()
        time.at(5, event.set)
        await event.wait()
        assert list(timers()) == []
        with trio.move_on_at(70):
            assert list(timers()) == ["a deadline at 70.000000 s"]
            await trio.lowlevel.checkpoint()
        return trio.current_time()

    assert trio.run(main, clock=virtual_clock(time)) == 5
