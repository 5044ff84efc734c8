"""Time that passes only when nobody can do anything before it has."""

from __future__ import annotations

import pytest

from aiokafkawire.runtime import NEVER
from aiokafkawire.testing.simulation import virtual_time as module
from aiokafkawire.testing.simulation.virtual_time import (
    Deadlock,
    Livelock,
    Overdue,
    Stop,
    VirtualTime,
)


class Told:
    def __init__(self) -> None:
        self.stops: list[tuple[type[Stop], str]] = []
        self.time = VirtualTime(lambda kind, why: self.stops.append((kind, why)))


def test_it_goes_to_the_next_deadline() -> None:
    time = Told().time
    time.idle(5.0)
    assert time.now() == 5.0


def test_it_never_goes_back() -> None:
    time = Told().time
    time.idle(5.0)
    time.idle(4.0)
    assert time.now() == 5.0


def test_what_the_world_does_comes_in_its_order() -> None:
    time = Told().time
    done: list[tuple[str, float]] = []
    for when, name in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        time.at(when, lambda name=name: done.append((name, time.now())))  # type: ignore[misc]
    time.idle(NEVER)
    assert done == [("a", 1.0), ("b", 1.0)]
    time.idle(1.5)
    assert time.now() == 1.5
    assert len(done) == 2
    time.idle(2.0)
    assert done[2:] == [("c", 2.0)]


def test_nothing_ahead_is_a_deadlock() -> None:
    told = Told()
    told.time.idle(NEVER)
    assert told.stops == [(Deadlock, "nobody can ever go on")]


def test_what_would_come_after_the_limit_is_overdue() -> None:
    told = Told()
    told.time.limit_s = 10.0
    told.time.idle(5.0)
    assert told.stops == []
    told.time.idle(10.5)
    assert told.stops == [(Overdue, "the program has not ended in 10 s")]
    assert told.time.now() == 10.0


@pytest.mark.parametrize("by", ["turns", "the world"])
def test_a_circle_is_a_livelock(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(module, "MAX_ITERATIONS_WITHOUT_PROGRESS", 10)
    told = Told()
    for _ in range(3):
        for _ in range(10):
            if by == "turns":
                told.time.on_iteration()
            else:
                told.time.at(told.time.now(), lambda: None)
                told.time.idle(NEVER)
        assert told.stops == []
        told.time.idle(told.time.now() + 1)
    for _ in range(11):
        told.time.on_iteration()
    assert told.stops == [(Livelock, "no time passes in 10 turns")]
