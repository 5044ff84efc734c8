"""End a worker at each event of a run, and check what the next one makes of it.

`python -m verify.simulation.worker_crashes 100000 SEED`: runs of the scenario `worker` with one or
two workers and one step. The step is a crash, with or without the end of the connections, a
cancellation or a stop. It happens at each iteration of the event loop in which tasks run, so that
each await of a worker is interrupted, and between two events. With `--exactly-once` the workers
write in transactions.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from aiokafkawire.testing.simulation.world import Backend, World
from verify.simulation import single_run
from verify.simulation.plan import Plan, Step
from verify.simulation.runner import tune_garbage_collector
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios import exactly_once, worker

__all__ = ("CrashPoint", "crash_points", "small_plan")

RECORDS = 8
SEND_S = 1.0
POINTS_PER_SEED = 500

ENDINGS = {
    "crash": ("die", {"for_s": 0.1, "silent": False}),
    "power loss": ("die", {"for_s": 0.1, "silent": True}),
    "cancellation": ("cancel", {}),
    "stop": ("leave", {"for_s": 0.1}),
}
"""Steps that end a worker, which starts again soon after."""


class CrashPoint(NamedTuple):
    """A run that differs from another one in its only step."""

    seed: int
    backend: Backend
    ending: str
    plan: Plan


class IterationCounter:
    """Counts the iterations of the event loop at each time of a run."""

    def __init__(self) -> None:
        self.iterations: Counter[float] = Counter()

    def watch(self, world: World) -> None:
        """Count the iterations of a world."""
        time = world._time
        count, advance = time.on_iteration, time.advance

        def on_iteration() -> None:
            self.iterations[time.now()] += 1
            count()

        def on_advance(until: float) -> None:
            advance(until)
            self.iterations[time.now()] += 1

        time.on_iteration = on_iteration  # type: ignore[method-assign]
        time.advance = on_advance  # type: ignore[method-assign]


def small_plan(seed: int, scenario: Scenario = worker.SCENARIO) -> Plan:
    """Return a short plan of a seed, without steps."""
    plan = single_run.draw(scenario, seed)
    sender, *workers = plan.clients
    sender = dataclasses.replace(sender, arguments={"for_s": SEND_S})
    workers = [dataclasses.replace(each, arguments={}) for each in workers[:2]]
    return dataclasses.replace(
        plan,
        broker={**plan.broker, "nodes": 1},
        records=RECORDS,
        clients=(sender, *workers),
        steps=(),
        network={"max_delay_s": 0.02},
    )


def crash_points(seed: int, scenario: Scenario = worker.SCENARIO) -> Iterator[CrashPoint]:
    """Yield the runs of a seed: each iteration and each pause, with each ending."""
    plan = small_plan(seed, scenario)
    backend = random.Random(seed).choice(single_run.BACKENDS)
    counter = IterationCounter()
    whole = single_run.play(scenario, seed, backend, plan, shown_lines=0, prepare=counter.watch)
    assert not whole.failures, whole.failures
    times = sorted(counter.iterations)
    moments = [(at_s, later) for at_s in times for later in range(counter.iterations[at_s])]
    moments += [((before + after) / 2, 0) for before, after in pairwise(times)]
    ended = plan.of("works")[0].name
    for at_s, later in sorted(moments):
        for ending, (kind, arguments) in ENDINGS.items():
            step = Step(at_s, kind, {"worker": ended, **arguments}, later)
            yield CrashPoint(seed, backend, ending, dataclasses.replace(plan, steps=(step,)))


def main(
    count: int,
    first_seed: int,
    scenario: Scenario = worker.SCENARIO,
    per_seed: int = POINTS_PER_SEED,
) -> int:
    """Run this number of crash points; print those that violate a guarantee."""
    runs = failed = 0
    seed = first_seed
    while runs < count:
        points = list(crash_points(seed, scenario))
        random.Random(seed).shuffle(points)
        for point in points[: min(per_seed, count - runs)]:
            result = single_run.play(scenario, seed, point.backend, point.plan, shown_lines=0)
            runs += 1
            if result.failures:
                failed += 1
                where = f"seed {seed}, {point.ending} on {point.backend}"
                print(f"{where}: {point.plan.steps[0]}", flush=True)
                for failure in result.failures:
                    print(f"  {failure.kind}: {failure.text}")
        print(f"seed {seed}: {runs} runs, {failed} failed", flush=True)
        seed += 1
    return int(failed > 0)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m verify.simulation.worker_crashes")
    parser.add_argument("count", type=int, help="number of runs")
    parser.add_argument("first_seed", type=int)
    parser.add_argument("--exactly-once", action="store_true", help="write in transactions")
    parser.add_argument(
        "--per-seed", type=int, default=POINTS_PER_SEED, help="random points of a seed, at most"
    )
    return parser.parse_args()


if __name__ == "__main__":
    asked = parse_arguments()
    chosen = exactly_once.SCENARIO if asked.exactly_once else worker.SCENARIO
    tune_garbage_collector()
    sys.exit(main(asked.count, asked.first_seed, chosen, asked.per_seed))
