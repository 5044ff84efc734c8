"""Corner cases: situations that other scenarios reach once in a thousand runs, each caused on
purpose in a short run.

The seed draws the corner case and its details.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from verify.invariants.checker import Guarantees
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.corners import connections, members, readers, senders
from verify.simulation.scenarios.corners.corner_case import CornerCase
from verify.simulation.shared_draws import draw_network

__all__ = ("CORNERS", "SCENARIO")

CORNERS: Mapping[str, CornerCase] = {
    **senders.CORNERS,
    **connections.CORNERS,
    **readers.CORNERS,
    **members.CORNERS,
}
"""Corner cases by name."""

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


async def run(harness: Harness) -> None:
    await harness.make_topics()
    await CORNERS[harness.plan.options["corner"]].run(harness)


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(resets=CORNERS[plan.options["corner"]].resets)


SCENARIO = Scenario("corners", draw, run, guarantees, share=80, limit_s=600.0)
