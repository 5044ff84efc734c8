from __future__ import annotations

import pytest

from aiokafkawire.testing.simulation.world import Backend


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """What a world runs on; the tests themselves run on nothing."""
    return request.param
