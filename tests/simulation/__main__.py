"""Programmes by seed: `python -m tests.simulation --seeds 2000`, or one with `--seed N --trace`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from aiokafkawire.testing.simulation.world import Backend
from tests.simulation.plan import Plan
from tests.simulation.report import Tally, failures, table, told
from tests.simulation.runner import Job, jobs_of, perform, perform_all, shortest
from tests.simulation.scenario import Programme
from tests.simulation.scenarios import NAMES, load
from tests.simulation.shrink import MAX_RUNS
from tests.simulation.single_run import BACKENDS, draw

MAX_SHRUNK = 3
"""Failing seeds of one command that are made short."""


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--programme", choices=NAMES, action="append", help="only this, or these")
    parser.add_argument("--backend", choices=BACKENDS, help="on this alone")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--stop-at-first", action="store_true", help="end at the first that fails")
    parser.add_argument("--no-shrink", action="store_true", help="leave failing runs as they are")
    parser.add_argument("--trace", action="store_true", help="with --seed: print what happened")
    parser.add_argument("--history", action="store_true", help="with --seed: what clients saw")
    parser.add_argument("--plan", action="store_true", help="with --seed: print the plan alone")
    parser.add_argument("--steps", type=_numbers, help="with --seed: these of its steps alone")
    parser.add_argument("--clients", type=_numbers, help="with --seed: these of its clients alone")
    parser.add_argument("--records", type=int, help="with --seed: so many records")
    return parser


def _numbers(text: str) -> list[int]:
    return [] if text == "none" else [int(number) for number in text.split(",")]


def main(given: Sequence[str] | None = None) -> int:
    """0 if nothing failed, else 1."""
    asked = arguments().parse_args(given)
    programmes = load(tuple(asked.programme or NAMES))
    if asked.seed is not None:
        return one(asked, programmes)
    return many(asked, programmes)


def one(asked: argparse.Namespace, programmes: dict[str, Programme]) -> int:
    """Run one seed and say what happened."""
    (job,) = jobs_of([asked.seed], programmes, asked.backend)
    plan: Plan = draw(programmes[job.programme], job.seed)
    plan = plan.only(steps=asked.steps, clients=asked.clients, records=asked.records)
    print(f"{job.programme} on {job.backend}\n{plan}")
    if asked.plan:
        return 0
    lines = sys.maxsize if asked.trace else 0
    played = perform(job, plan, shown_lines=lines, with_history=asked.history)
    for line in (*played.trace, *played.history):
        print(line)
    print(f"{played.events} events in {played.seconds:.1f} s, digest {played.digest}")
    print(failures(played.failures) or "  nothing failed")
    return int(bool(played.failures))


def many(asked: argparse.Namespace, programmes: dict[str, Programme]) -> int:
    """Run many seeds; say of those that fail how."""
    began = time.monotonic()
    backend: Backend | None = asked.backend
    jobs = jobs_of(range(asked.first, asked.first + asked.seeds), programmes, backend)
    tallies: dict[str, Tally] = {}
    failed = 0
    for job, played, cpu_s in perform_all(jobs, asked.jobs):
        tallies.setdefault(job.programme, Tally()).add(played, cpu_s)
        if not played.failures:
            continue
        failed += 1
        short = not asked.no_shrink and failed <= MAX_SHRUNK
        print(explained(job, short), flush=True)
        if asked.stop_at_first:
            break
    print(table(tallies))
    print(f"{failed} failed, in {time.monotonic() - began:.0f} s")
    return int(bool(failed))


def explained(job: Job, short: bool) -> str:
    """The report of a failing seed, its shortest plan with it."""
    played = perform(job)
    if not short:
        return told(job, played, None, None)
    shrunk = shortest(job, played, MAX_RUNS)
    return told(job, played, shrunk, perform(job, shrunk.made()))


if __name__ == "__main__":
    sys.exit(main())
