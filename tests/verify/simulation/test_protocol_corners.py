"""Each corner case of the consumer protocol on each backend, once: a seed draws one of them."""

import pytest

from aiokafkawire.testing.simulation.world import Backend
from verify.simulation.plan import Plan
from verify.simulation.scenarios.protocol_corners import BROKER, CORNERS, SCENARIO
from verify.simulation.single_run import BACKENDS, draw, play

ENOUGH = 1_000
"""Seeds among which each corner case is drawn."""


def first_seed(corner: str) -> int:
    return next(seed for seed in range(ENOUGH) if draw(SCENARIO, seed).options["corner"] == corner)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("corner", CORNERS)
def test_a_member_masters_it(corner: str, backend: Backend) -> None:
    result = play(SCENARIO, first_seed(corner), backend)
    assert not result.failures, "\n".join([*map(str, result.failures), *result.trace])


def test_a_member_leaves_that_is_closed_while_it_connects() -> None:
    """The heartbeat that joins was sent after the one that leaves."""
    options = {"corner": "close while joining", "by_s": 0.815, "times": 1}
    network = {"max_delay_s": 0.1}
    plan = Plan(broker=BROKER, network=network, topics={"orders": 1}, options=options)
    assert not play(SCENARIO, 149, "trio", plan).failures
