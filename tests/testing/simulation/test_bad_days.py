"""What is promised holds on bad days too: one seed of many, as an example."""

from __future__ import annotations

import pytest

from aiokafkawire.testing.simulation.world import Backend
from tests.testing.simulation.bad_days import live_through

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_nothing_is_lost_on_bad_days(backend: Backend, strategy: str) -> None:
    world = live_through(1, backend, strategy)
    assert any(" reset" in line or "severed" in line for line in world.trace.lines)
