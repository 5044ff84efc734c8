"""Seeds choose scenarios, run in two processes as in one, and a failing one is made short."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from verify.simulation import runner
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan, Step
from verify.simulation.report import Tally, format_failed_run, replay_command, table
from verify.simulation.runner import Job, find_shortest, make_jobs, run_job, run_jobs
from verify.simulation.scenarios import LATER, NAMES, load, plain


def test_every_scenario_and_backend_gets_its_share() -> None:
    scenarios = load()
    jobs = list(make_jobs(range(2_000), scenarios))
    counts = Counter(job.scenario for job in jobs)
    assert set(counts) == set(NAMES)
    total = sum(scenario.share for scenario in scenarios.values())
    for name, scenario in scenarios.items():
        assert counts[name] == pytest.approx(2_000 * scenario.share / total, abs=90)
    assert Counter(job.backend for job in jobs)["trio"] == pytest.approx(1_000, abs=100)
    assert jobs == list(make_jobs(range(2_000), scenarios))


def test_seeds_that_draw_no_later_scenario_stay_as_they_were() -> None:
    before = make_jobs(range(500), load(tuple(name for name in NAMES if name not in LATER)))
    changed = {
        after.scenario
        for job, after in zip(before, make_jobs(range(500), load()), strict=True)
        if after != job
    }
    assert changed == set(LATER)
    assert {job.scenario for job in make_jobs(range(50), load(LATER))} == set(LATER)


def test_one_backend_alone() -> None:
    assert {job.backend for job in make_jobs(range(50), load(), "trio")} == {"trio"}


@pytest.mark.slow
def test_two_processes_give_what_one_gives() -> None:
    jobs = [Job(seed, "plain", "asyncio") for seed in range(4)]
    here = {job.seed: run_job(job).digest for job in jobs}
    there = {job.seed: result.digest for job, result, _ in run_jobs(jobs, 2)}
    assert there == here


def broken_plain() -> object:
    """The plain scenario, with a step that breaks it."""

    def draw(rng: random.Random) -> Plan:
        plan = plain.draw(rng)
        steps = [*plan.steps, Step(0.2, "break", {"n": 0}), Step(0.3, "break", {"n": 1})]
        return replace(plan, steps=tuple(sorted(steps, key=lambda step: step.at_s)))

    async def run(harness: Harness) -> None:
        async def broken(n: int) -> None:
            if n == 1:
                harness.violated(1, "gone")

        harness.on("break", broken)
        await plain.run(harness)

    return replace(plain.SCENARIO, draw=draw, run=run)


def test_a_failing_seed_is_reported_with_its_shortest_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "load", lambda names: {"plain": broken_plain()})
    job = Job(5, "plain", "asyncio")
    result = run_job(job)
    assert [failure.kind for failure in result.failures] == ["invariant 1"]
    shrunk = find_shortest(job, result, max_runs=40)
    (step,) = shrunk.made().steps
    assert (step.kind, step.arguments) == ("break", {"n": 1})
    assert (shrunk.clients, shrunk.records) == ([], 0)
    text = format_failed_run(job, result, shrunk, run_job(job, shrunk.made()))
    number = shrunk.steps[0]
    command = f"--seed 5 --scenario plain --backend asyncio --trace --steps {number} --clients none"
    assert command in text
    assert "violated: (1) gone" in text


def test_a_run_that_takes_too_long_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_CPU_S", 0.3)

    async def run(harness: Harness) -> None:
        while True:
            pass

    broken = replace(plain.SCENARIO, run=run)
    monkeypatch.setattr(runner, "load", lambda names: {"plain": broken})
    (failure,) = run_job(Job(1, "plain", "asyncio")).failures
    assert failure.kind == "took too long"


def test_the_table_has_a_line_for_each_scenario_and_one_for_all() -> None:
    tallies = {
        "plain": Tally(seeds=3, failed=1, events=40, hours=0.5, cpu_s=1.4, rebalances=31),
        "leaving": Tally(seeds=2, failed=0, events=2, hours=1.0, cpu_s=0.2),
    }
    assert table(tallies).splitlines() == [
        "scenario  seeds  events  rebalances  hours  s CPU  failed",
        "leaving       2       2           -    1.0      0       0",
        "plain         3      40          31    0.5      1       1",
        "all           5      42          31    1.5      2       1",
    ]


def test_the_command_of_a_seed() -> None:
    assert replay_command(Job(7, "leaving", "trio")) == (
        "python -m verify.simulation --seed 7 --scenario leaving --backend trio --trace"
    )
