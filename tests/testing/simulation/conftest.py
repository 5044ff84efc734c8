from __future__ import annotations

import pytest

from aiokafkawire.testing.simulation.world import Backend


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Backend of the simulated world; the tests themselves need no event loop."""
    return request.param
