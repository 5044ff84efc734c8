"""Run many seeds in several processes, and shrink failing ones."""

from __future__ import annotations

import gc
import random
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from types import FrameType

from aiokafkawire.testing.simulation.world import Backend
from verify.simulation.plan import Plan
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios import LATER, load
from verify.simulation.shrink import Shrunk, shrink
from verify.simulation.single_run import BACKENDS, MAX_SHOWN_LINES, Failure, RunResult, draw, play

__all__ = ("Job", "TookTooLong", "find_shortest", "make_jobs", "run_job", "run_jobs")

MAX_CPU_S = 60
"""CPU limit of a seed; above it the run is in a loop."""

AHEAD = 4
"""Queued jobs per process."""


class TookTooLong(SystemExit):
    """A run took too much CPU. Like Ctrl-C it ends the event loop."""


@dataclass(frozen=True, slots=True)
class Job:
    """One seed of a scenario on a backend."""

    seed: int
    scenario: str
    backend: Backend


def make_jobs(
    seeds: Iterable[int],
    scenarios: Mapping[str, Scenario],
    backend: Backend | None = None,
) -> Iterator[Job]:
    """Yield a job per seed, which draws the scenario by its share, and the backend unless given."""
    names = [name for name in scenarios if name not in LATER] or list(scenarios)
    later = [name for name in scenarios if name not in names]
    shares = [scenarios[name].share for name in names]
    for seed in seeds:
        rng = random.Random(f"{seed}/run")
        name = rng.choices(names, shares)[0]
        chosen = rng.choice(BACKENDS)
        total = sum(shares)
        for added in later:
            total += scenarios[added].share
            if random.Random(f"{seed}/{added}").random() < scenarios[added].share / total:
                name = added
        yield Job(seed, name, backend or chosen)


def run_job(
    job: Job,
    plan: Plan | None = None,
    *,
    shown_lines: int = MAX_SHOWN_LINES,
    with_history: bool = False,
) -> RunResult:
    """Run one job in this process, within `MAX_CPU_S`."""
    scenario = load((job.scenario,))[job.scenario]
    before = signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)
    try:
        return play(
            scenario,
            job.seed,
            job.backend,
            plan,
            shown_lines=shown_lines,
            with_history=with_history,
        )
    except TookTooLong as error:
        failure = Failure("took too long", str(error))
        return RunResult(job.scenario, job.seed, job.backend, "", 0.0, 0, (failure,))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _too_long(number: int, frame: FrameType | None) -> None:
    where = [] if frame is None else [f"{frame.f_code.co_qualname}:{frame.f_lineno}"]
    raise TookTooLong(f"not over after {MAX_CPU_S} s of CPU {where}")


def tune_garbage_collector() -> None:
    """Exclude imported objects from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _timed(job: Job) -> tuple[Job, RunResult, float]:
    began = time.process_time()
    result = run_job(job)
    return job, result, time.process_time() - began


def run_jobs(jobs: Iterable[Job], processes: int) -> Iterator[tuple[Job, RunResult, float]]:
    """Run jobs; yield each with its result and its CPU seconds, in order of completion."""
    if processes == 1:
        yield from map(_timed, jobs)
        return
    left = iter(jobs)
    with ProcessPoolExecutor(processes, initializer=tune_garbage_collector) as pool:
        running: set[Future[tuple[Job, RunResult, float]]] = set()
        try:
            while True:
                for job in left:
                    running.add(pool.submit(_timed, job))
                    if len(running) >= processes * AHEAD:
                        break
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in running:
                future.cancel()


def find_shortest(job: Job, failed: RunResult, max_runs: int) -> Shrunk:
    """Return the shortest plan found that fails in one of the ways of the job."""
    scenario = load((job.scenario,))[job.scenario]

    def fails(plan: Plan) -> bool:
        return bool(run_job(job, plan).kinds & failed.kinds)

    return shrink(draw(scenario, job.seed), fails, max_runs)
