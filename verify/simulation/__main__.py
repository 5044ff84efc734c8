"""Scenarios by seed: `python -m verify.simulation --seeds 2000`, or one with `--seed N --trace`."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence

from aiokafkawire.testing.simulation.world import Backend
from verify.simulation.plan import Plan
from verify.simulation.report import Tally, failures, format_failed_run, table
from verify.simulation.runner import Job, find_shortest, make_jobs, run_job, run_jobs
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios import NAMES, load
from verify.simulation.shrink import MAX_RUNS
from verify.simulation.single_run import BACKENDS, draw

MAX_SHRUNK = 3
"""Number of failing seeds of one command that are shrunk."""


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m verify.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--rebalances", type=int, help="as many seeds as cause this number")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--scenario", choices=NAMES, action="append", help="only this, or these")
    parser.add_argument("--backend", choices=BACKENDS, help="on this alone")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--stop-at-first", action="store_true", help="end at the first that fails")
    parser.add_argument("--no-shrink", action="store_true", help="leave failing runs as they are")
    parser.add_argument("--trace", action="store_true", help="with --seed: print what happened")
    parser.add_argument("--history", action="store_true", help="with --seed: what clients saw")
    parser.add_argument("--plan", action="store_true", help="with --seed: print the plan alone")
    parser.add_argument("--steps", type=_numbers, help="with --seed: these of its steps alone")
    parser.add_argument("--clients", type=_numbers, help="with --seed: these of its clients alone")
    parser.add_argument("--records", type=int, help="with --seed: number of records")
    return parser


def _numbers(text: str) -> list[int]:
    return [] if text == "none" else [int(number) for number in text.split(",")]


def main(given: Sequence[str] | None = None) -> int:
    """Return 0 if nothing failed, else 1."""
    options = arguments().parse_args(given)
    scenarios = load(tuple(options.scenario or NAMES))
    if options.seed is not None:
        return run_one(options, scenarios)
    return run_many(options, scenarios)


def run_one(options: argparse.Namespace, scenarios: dict[str, Scenario]) -> int:
    """Run one seed and print the result."""
    (job,) = make_jobs([options.seed], scenarios, options.backend)
    plan: Plan = draw(scenarios[job.scenario], job.seed)
    plan = plan.only(steps=options.steps, clients=options.clients, records=options.records)
    print(f"{job.scenario} on {job.backend}\n{plan}")
    if options.plan:
        return 0
    lines = sys.maxsize if options.trace else 0
    result = run_job(job, plan, shown_lines=lines, with_history=options.history)
    for line in (*result.trace, *result.history):
        print(line)
    print(f"{result.events} events in {result.seconds:.1f} s, digest {result.digest}")
    print(failures(result.failures) or "  nothing failed")
    return int(bool(result.failures))


def run_many(options: argparse.Namespace, scenarios: dict[str, Scenario]) -> int:
    """Run many seeds and report those that fail."""
    began = time.monotonic()
    backend: Backend | None = options.backend
    last = None if options.rebalances else options.first + options.seeds
    seeds = itertools.islice(itertools.count(), options.first, last)
    jobs = make_jobs(seeds, scenarios, backend)
    tallies: dict[str, Tally] = {}
    failed = 0
    for job, result, cpu_s in run_jobs(jobs, options.jobs):
        tallies.setdefault(job.scenario, Tally()).add(result, cpu_s)
        if result.failures:
            failed += 1
            short = not options.no_shrink and failed <= MAX_SHRUNK
            print(explain_failure(job, short), flush=True)
            if options.stop_at_first:
                break
        rebalances = sum(tally.rebalances for tally in tallies.values())
        if options.rebalances and rebalances >= options.rebalances:
            break
    print(table(tallies))
    print(f"{failed} failed, in {time.monotonic() - began:.0f} s")
    return int(bool(failed))


def explain_failure(job: Job, short: bool) -> str:
    """Return the report of a failing seed, with its shortest plan."""
    result = run_job(job)
    if not short:
        return format_failed_run(job, result, None, None)
    shrunk = find_shortest(job, result, MAX_RUNS)
    return format_failed_run(job, result, shrunk, run_job(job, shrunk.made()))


if __name__ == "__main__":
    sys.exit(main())
