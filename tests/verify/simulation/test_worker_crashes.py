"""Workers that end at events of their connections; many points are run by the command."""

from __future__ import annotations

import dataclasses

import pytest

from verify.simulation import worker_crashes
from verify.simulation.plan import Step
from verify.simulation.single_run import Failure, RunResult


def test_points_are_of_each_ending_and_differ_in_one_step() -> None:
    points = list(worker_crashes.crash_points(3))
    assert {point.ending for point in points} == set(worker_crashes.ENDINGS)
    assert all(len(point.plan.steps) == 1 for point in points)
    assert len({point.plan.steps[0].at_s for point in points}) * 4 == len(points) > 400


@pytest.mark.slow
def test_no_guarantee_is_violated(capsys: pytest.CaptureFixture[str]) -> None:
    assert worker_crashes.main(20, 3) == 0
    assert capsys.readouterr().out == "seed 3: 20 runs, 0 failed\n"


def test_a_violation_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = dataclasses.replace(worker_crashes.small_plan(3), steps=(Step(1.0, "cancel"),))
    point = worker_crashes.CrashPoint(3, "trio", "cancellation", plan)
    failure = Failure("invariant 3", "two records of 'k1'")
    result = RunResult("worker", 3, "trio", "", 1.0, 0, (failure,))
    monkeypatch.setattr(worker_crashes, "crash_points", lambda seed: iter([point]))
    monkeypatch.setattr(worker_crashes.single_run, "play", lambda *_, **__: result)
    assert worker_crashes.main(1, 3) == 1
    assert "invariant 3: two records of 'k1'" in capsys.readouterr().out
