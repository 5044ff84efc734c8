"""Time that passes only when nobody can do anything before it has."""

from __future__ import annotations

import pytest

from aiokafkawire.runtime import NEVER
from aiokafkawire.testing.simulation import virtual_time
from aiokafkawire.testing.simulation import virtual_time as module


class StopRecorder:
    def __init__(self) -> None:
        self.stops: list[tuple[type[virtual_time.Stop], str]] = []
        self.time = virtual_time.VirtualTime(lambda kind, why: self.stops.append((kind, why)))


def test_it_goes_to_the_next_deadline() -> None:
    time = StopRecorder().time
    time.advance(5.0)
    assert time.now() == 5.0


def test_it_never_goes_back() -> None:
    time = StopRecorder().time
    time.advance(5.0)
    time.advance(4.0)
    assert time.now() == 5.0


def test_world_events_run_in_order() -> None:
    time = StopRecorder().time
    done: list[tuple[str, float]] = []
    for when, name in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        time.at(when, lambda name=name: done.append((name, time.now())))  # type: ignore[misc]
    time.advance(NEVER)
    assert done == [("a", 1.0), ("b", 1.0)]
    time.advance(1.5)
    assert time.now() == 1.5
    assert len(done) == 2
    time.advance(2.0)
    assert done[2:] == [("c", 2.0)]


def test_no_timer_and_no_event_is_a_deadlock() -> None:
    recorder = StopRecorder()
    recorder.time.advance(NEVER)
    assert recorder.stops == [(virtual_time.Deadlock, "nobody can ever go on")]


def test_what_would_come_after_the_limit_is_overdue() -> None:
    recorder = StopRecorder()
    recorder.time.limit_s = 10.0
    recorder.time.advance(5.0)
    assert recorder.stops == []
    recorder.time.advance(10.5)
    assert recorder.stops == [(virtual_time.Overdue, "the program has not ended in 10 s")]
    assert recorder.time.now() == 10.0


@pytest.mark.parametrize("by", ["turns", "the world"])
def test_no_progress_of_time_is_a_livelock(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(module, "MAX_ITERATIONS_WITHOUT_PROGRESS", 10)
    recorder = StopRecorder()
    for _ in range(3):
        for _ in range(10):
            if by == "turns":
                recorder.time.on_iteration()
            else:
                recorder.time.at(recorder.time.now(), lambda: None)
                recorder.time.advance(NEVER)
        assert recorder.stops == []
        recorder.time.advance(recorder.time.now() + 1)
    for _ in range(11):
        recorder.time.on_iteration()
    assert recorder.stops == [(virtual_time.Livelock, "no time passes in 10 turns")]
