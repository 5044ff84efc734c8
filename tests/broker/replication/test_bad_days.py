"""What was acknowledged stays on bad days: one seed of many, as an example."""

from __future__ import annotations

import pytest

from .bad_days import live_through


@pytest.mark.slow
@pytest.mark.parametrize("as_of", ["0.11", "2.8", None])
def test_nothing_acknowledged_is_lost(as_of: str | None) -> None:
    world = live_through(1, "asyncio", as_of)
    assert any(" reset" in line for line in world.trace.lines)
