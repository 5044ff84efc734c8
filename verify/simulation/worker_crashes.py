"""End a worker at each event of its connections, and check what the next one makes of it.

`python -m verify.simulation.worker_crashes 100000 SEED`: runs of the scenario `worker` with one or
two workers and one step. The step is a crash, with or without the end of the connections, a
cancellation or a stop, at the time of an event of the run without it, or in between.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from aiokafkawire.testing.simulation.world import Backend
from verify.simulation import single_run
from verify.simulation.plan import Plan, Step
from verify.simulation.scenarios.worker import SCENARIO

__all__ = ("CrashPoint", "crash_points", "small_plan")

RECORDS = 12
SEND_S = 1.0
ALL_LINES = 1_000_000

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


def small_plan(seed: int) -> Plan:
    """Return a short plan of a seed, without steps."""
    plan = single_run.draw(SCENARIO, seed)
    sender, *workers = plan.clients
    sender = dataclasses.replace(sender, arguments={"for_s": SEND_S})
    workers = [dataclasses.replace(each, arguments={}) for each in workers[:2]]
    return dataclasses.replace(
        plan, records=RECORDS, clients=(sender, *workers), steps=(), network={"max_delay_s": 0.02}
    )


def crash_points(seed: int) -> Iterator[CrashPoint]:
    """Yield the runs of a seed: each event of the network and each pause, with each ending."""
    plan = small_plan(seed)
    backend = random.Random(seed).choice(single_run.BACKENDS)
    whole = single_run.play(SCENARIO, seed, backend, plan, shown_lines=ALL_LINES)
    assert not whole.failures, whole.failures
    times = sorted({float(line.split(" ", 1)[0]) for line in whole.trace})
    moments = [*times, *((before + after) / 2 for before, after in pairwise(times))]
    worker = plan.of("works")[0].name
    for at_s in sorted(moments):
        for ending, (kind, arguments) in ENDINGS.items():
            step = Step(at_s, kind, {"worker": worker, **arguments})
            yield CrashPoint(seed, backend, ending, dataclasses.replace(plan, steps=(step,)))


def main(count: int, first_seed: int) -> int:
    """Run this number of crash points; print those that violate a guarantee."""
    runs = failed = 0
    seed = first_seed
    while runs < count:
        points = list(crash_points(seed))
        random.Random(seed).shuffle(points)
        for point in points[: count - runs]:
            result = single_run.play(SCENARIO, seed, point.backend, point.plan, shown_lines=0)
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


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
