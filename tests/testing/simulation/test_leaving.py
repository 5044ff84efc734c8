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


@pytest.mark.parametrize("seed", range(5))
def test_leaving_an_old_broker_leaves_no_ghost(backend: Backend, seed: int) -> None:
    """It parks a first JoinGroup for three seconds, and has made a member by then."""
    took = leave(seed, backend, as_of="2.0", group_initial_rebalance_delay_ms=3_000)
    assert len(took) == 5
