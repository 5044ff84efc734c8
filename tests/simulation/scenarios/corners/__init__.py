"""Situations that come about once in a thousand runs of the other programmes, each brought about on
purpose, in a run that is short. A seed draws which one, and how it is.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from tests.invariants.checker import Promises
from tests.simulation.harness import Stage
from tests.simulation.plan import Plan
from tests.simulation.scenario import Programme
from tests.simulation.scenarios.corners import connections, members, readers, senders
from tests.simulation.scenarios.corners.corner_case import Corner
from tests.simulation.shared_draws import draw_network

__all__ = ("CORNERS", "PROGRAMME")

CORNERS: Mapping[str, Corner] = {
    **senders.CORNERS,
    **connections.CORNERS,
    **readers.CORNERS,
    **members.CORNERS,
}
"""By their names."""

BROKER = {"nodes": 3, "auto_create_topics": False, "group_min_session_timeout_ms": 100}


def draw(rng: random.Random) -> Plan:
    name = rng.choice(list(CORNERS))
    corner = CORNERS[name]
    return Plan(
        broker={**BROKER, **corner.broker},
        network=draw_network(rng),
        topics=corner.topics,
        options={"corner": name, **corner.draw(rng)},
    )


async def run(stage: Stage) -> None:
    await stage.make_topics()
    await CORNERS[stage.plan.options["corner"]].run(stage)


def promises(plan: Plan) -> Promises:
    return Promises(resets=CORNERS[plan.options["corner"]].resets)


PROGRAMME = Programme("corners", draw, run, promises, share=80, limit_s=600.0)
