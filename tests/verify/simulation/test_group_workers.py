"""Shared parts of group scenarios: the return of workers, and the progress of an upgrade."""

from __future__ import annotations

import random

from verify.simulation.plan import PlannedClient
from verify.simulation.scenarios.churn import UPGRADE, Rounds
from verify.simulation.scenarios.group_workers import draw_worker_steps, host_of

WORKERS = [PlannedClient(f"worker-{number}", host_of(number), "works") for number in range(3)]


def test_no_two_workers_are_two_rounds_of_the_upgrade_apart() -> None:
    rounds = Rounds(WORKERS)
    first, second, third = (worker.name for worker in WORKERS)
    for worker in (first, second, third):
        assert rounds.assignors(worker) is UPGRADE[0]
        rounds.wanted[worker] = 2
    assert rounds.assignors(first) is UPGRADE[1]
    # The others are still in the first round.
    assert rounds.assignors(first) is UPGRADE[1]
    assert rounds.assignors(second) is UPGRADE[1]
    assert rounds.assignors(third) is UPGRADE[1]
    assert rounds.assignors(first) is UPGRADE[2]
    rounds.wanted[first] = 9
    assert rounds.assignors(first) is UPGRADE[2]


def test_steps_of_life_are_of_the_workers_there_are_and_in_order() -> None:
    steps = draw_worker_steps(random.Random(1), WORKERS, 20, 10.0)
    assert len(steps) == 20
    assert [step.at_s for step in steps] == sorted(step.at_s for step in steps)
    assert {step.arguments["worker"] for step in steps} <= {worker.name for worker in WORKERS}
    assert {step.kind for step in steps} == {"leave", "die", "stall"}
    assert draw_worker_steps(random.Random(1), [], 20, 10.0) == ()
