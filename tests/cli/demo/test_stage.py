from __future__ import annotations

import pytest

from aiokafkawire.cli.demo.stage import RATE_WINDOW_S, Rate, Stage, WorkerProcess, ranges


@pytest.fixture
def stage() -> Stage:
    stage = Stage(partitions=4, total=100, sent=50)
    for name in ("worker 1", "worker 2"):
        stage.workers[name] = WorkerProcess(name, 1)
    return stage


def test_events_of_a_worker_are_applied(stage: Stage) -> None:
    text = stage.apply("worker 1", {"event": "assigned", "partitions": [0, 1, 3], "positions": {}})
    assert text == "worker 1 has partitions 0-1, 3"
    assert stage.owners == {0: "worker 1", 1: "worker 1", 3: "worker 1"}
    report = {"event": "counted", "records": 7, "positions": {"0": 4, "3": 3}}
    assert stage.apply("worker 1", report) is None
    assert (stage.processed, stage.lag, stage.workers["worker 1"].processed) == (7, 43, 7)
    stage.apply("worker 1", {"event": "revoked"})
    assert stage.owners == {}


def test_positions_come_with_an_assignment_and_never_go_back(stage: Stage) -> None:
    stage.apply("worker 2", {"event": "assigned", "partitions": [0], "positions": {"0": 9}})
    stage.apply("worker 1", {"event": "counted", "records": 2, "positions": {"0": 5}})
    assert stage.processed == 9


def test_late_events_of_a_killed_worker_are_ignored(stage: Stage) -> None:
    stage.workers["worker 1"].state = "killed"
    stage.apply("worker 1", {"event": "assigned", "partitions": [0], "positions": {"0": 2}})
    assert stage.owners == {}
    assert stage.processed == 2
    assert stage.workers["worker 1"].state == "killed"


def test_a_late_worker_is_shown(stage: Stage) -> None:
    text = stage.apply("worker 1", {"event": "late", "partitions": [2]})
    assert text == "worker 1 was too late: partition 2 was counted by another worker"


def test_rates_cover_the_last_seconds() -> None:
    rate = Rate()
    assert rate.note(0.0, 0) == 0.0
    assert rate.note(1.0, 100) == 100.0
    for second in range(2, 10):
        last = rate.note(float(second), 100)
    assert last == 0.0
    assert RATE_WINDOW_S < 8


@pytest.mark.parametrize(
    ("numbers", "text"), [([], "none"), ([2], "2"), ([3, 0, 1], "0-1, 3"), ([0, 2, 4], "0, 2, 4")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
