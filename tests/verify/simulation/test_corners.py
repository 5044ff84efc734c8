"""Each situation on each backend, once: a seed draws one of them alone."""

import pytest

from aiokafkawire.testing.simulation.world import Backend
from verify.simulation.scenarios.corners import CORNERS, SCENARIO
from verify.simulation.single_run import BACKENDS, draw, play

ENOUGH = 2_000
"""Seeds among which each situation is drawn."""


def first_seed(corner: str) -> int:
    return next(seed for seed in range(ENOUGH) if draw(SCENARIO, seed).options["corner"] == corner)


def test_the_seeds_of_a_mutation_draw_each_corner() -> None:
    assert max(first_seed(corner) for corner in CORNERS) < 500 // 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("corner", CORNERS)
def test_a_client_masters_it(corner: str, backend: Backend) -> None:
    result = play(SCENARIO, first_seed(corner), backend)
    assert not result.failures, "\n".join([*map(str, result.failures), *result.trace])
