"""Other scenarios on listeners with SASL, with sessions that end soon or never."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from aiokafkawire.broker.releases import RELEASE_NAMES
from verify.simulation.harness import Harness
from verify.simulation.plan import Plan
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios import churn, leaving, plain, producing, topics, transacting
from verify.simulation.security import PASSWORDS, Security, draw_mechanism, first_release

BASES = {
    scenario.name: scenario
    for scenario in (
        *(plain.SCENARIO, producing.SCENARIO, transacting.SCENARIO),
        *(leaving.SCENARIO, churn.SCENARIO, topics.SCENARIO),
    )
}
"""Scenarios whose clients run on these listeners."""

SHORT_SESSIONS_MS = (0, 1_500, 4_000, 4_000)
"""A broker refuses to authenticate again within a second."""


def draw(rng: random.Random) -> Plan:
    name = rng.choice(list(BASES))
    security = Security("SASL_PLAINTEXT", draw_mechanism(rng), rng.choice(SHORT_SESSIONS_MS))
    plan = BASES[name].draw(rng)
    broker, as_of = dict(plan.broker), plan.broker.get("as_of")
    since = first_release(security)
    if as_of is not None and RELEASE_NAMES.index(as_of) < RELEASE_NAMES.index(since):
        # Workers may be static members on all releases but 2.0.
        broker["as_of"] = max(since, "2.8", key=RELEASE_NAMES.index) if name == "churn" else since
    options = {**plan.options, "base": name}
    return replace(plan, broker=broker, options=options, security=security)


async def run(harness: Harness) -> None:
    await BASES[harness.plan.options["base"]].run(harness)


def guarantees(plan: Plan) -> Any:
    return replace(BASES[plan.options["base"]].guarantees(plan), secrets=PASSWORDS)


SCENARIO = Scenario("secure", draw, run, guarantees)
