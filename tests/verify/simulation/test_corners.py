"""Each situation on each backend, once: a seed draws one of them alone."""

import pytest

from aiokafkawire.testing.simulation.world import Backend
from verify.simulation.scenarios.corners import CORNERS, SCENARIO
from verify.simulation.single_run import BACKENDS, draw, play

ENOUGH = 2_000
"""Seeds among which each situation is drawn."""


def first_seed(corner: str) -> int:
    return next(seed for seed in range(ENOUGH) if draw(SCENARIO, seed).options["corner"] == corner)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("corner", CORNERS)
def test_a_client_masters_it(corner: str, backend: Backend) -> None:
    result = play(SCENARIO, first_seed(corner), backend)
    assert not result.failures, "\n".join([*map(str, result.failures), *result.trace])
