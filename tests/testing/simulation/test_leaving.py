"""Leaving takes no longer than is promised, at any moment of a bad day: a few seeds of many."""

from __future__ import annotations

import pytest

from aiokafkawire.testing.simulation.world import Backend
from tests.testing.simulation.leaving import leave

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(5))
def test_leaving_at_any_moment(backend: Backend, seed: int) -> None:
    took = leave(seed, backend)
    assert took["idle producer"] < 0.1
    assert len(took) == 5
