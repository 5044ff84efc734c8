"""Each situation on each backend, once: a seed draws one of them alone."""

import pytest

from aiokafkawire.testing.simulation.world import Backend
from tests.simulation.scenarios.corners import CORNERS, PROGRAMME
from tests.simulation.single_run import BACKENDS, draw, play

ENOUGH = 2_000
"""Seeds among which each situation is drawn."""


def first_seed(corner: str) -> int:
    return next(seed for seed in range(ENOUGH) if draw(PROGRAMME, seed).options["corner"] == corner)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("corner", CORNERS)
def test_a_client_masters_it(corner: str, backend: Backend) -> None:
    played = play(PROGRAMME, first_seed(corner), backend)
    assert not played.failures, "\n".join([*map(str, played.failures), *played.trace])
