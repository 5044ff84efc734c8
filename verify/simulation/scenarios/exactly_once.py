"""The workers of the scenario `worker`, with transactions that write output and offsets."""

from __future__ import annotations

import dataclasses
import random

from verify.simulation.plan import Plan
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios import worker

__all__ = ("SCENARIO",)


def draw(rng: random.Random) -> Plan:
    plan = worker.draw(rng)
    return dataclasses.replace(
        plan,
        topics={**plan.topics, worker.BILLS: rng.randint(1, 2)},
        options={**plan.options, "exactly_once": True, "commit_finished_records": False},
    )


SCENARIO = Scenario("exactly_once", draw, worker.run, worker.guarantees)
