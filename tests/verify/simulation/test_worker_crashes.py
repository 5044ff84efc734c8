"""Workers that end at events of their connections; many points are run by the command."""

from __future__ import annotations

import dataclasses

import pytest

from verify.simulation import worker_crashes
from verify.simulation.plan import Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios import exactly_once, worker
from verify.simulation.single_run import Failure, RunResult


def test_points_are_of_each_ending_and_differ_in_one_step() -> None:
    points = list(worker_crashes.crash_points(3))
    assert {point.ending for point in points} == set(worker_crashes.ENDINGS)
    steps = [point.plan.steps for point in points]
    assert all(len(each) == 1 for each in steps)
    assert len({(step.at_s, step.iterations) for (step,) in steps}) * 4 == len(points) > 2_000


def test_each_iteration_at_a_time_is_a_point() -> None:
    steps = [point.plan.steps[0] for point in worker_crashes.crash_points(3)]
    found: dict[float, set[int]] = {}
    for step in steps:
        found.setdefault(step.at_s, set()).add(step.iterations)
    assert max(map(len, found.values())) > 5
    assert all(iterations == set(range(len(iterations))) for iterations in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [worker.SCENARIO, exactly_once.SCENARIO])
def test_no_guarantee_is_violated(scenario: Scenario, capsys: pytest.CaptureFixture[str]) -> None:
    assert worker_crashes.main(20, 3, scenario, per_seed=10) == 0
    assert capsys.readouterr().out == "seed 3: 10 runs, 0 failed\nseed 4: 20 runs, 0 failed\n"


def test_a_violation_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = dataclasses.replace(worker_crashes.small_plan(3), steps=(Step(1.0, "cancel"),))
    point = worker_crashes.CrashPoint(3, "trio", "cancellation", plan)
    failure = Failure("invariant 3", "two records of 'k1'")
    result = RunResult("worker", 3, "trio", "", 1.0, 0, (failure,))
    monkeypatch.setattr(worker_crashes, "crash_points", lambda *_: iter([point]))
    monkeypatch.setattr(worker_crashes.single_run, "play", lambda *_, **__: result)
    assert worker_crashes.main(1, 3) == 1
    assert "invariant 3: two records of 'k1'" in capsys.readouterr().out
