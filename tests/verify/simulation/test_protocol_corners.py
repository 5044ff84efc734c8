"""Each corner case of the consumer protocol on each backend, once: a seed draws one of them."""

import pytest

from aiokafkawire.testing.simulation.world import Backend
from verify.simulation.scenarios.protocol_corners import CORNERS, SCENARIO
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
    assert draw(SCENARIO, 149).options["corner"] == "close while joining"
    assert not play(SCENARIO, 149, "trio").failures
