"""Transactions under random faults; `storm` runs more seeds."""

from __future__ import annotations

import pytest

from .storm import storm

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(3))
async def test_committed_records_are_visible_once_and_no_others(
    anyio_backend: object, seed: int, release: str
):
    found = await storm(seed, release)
    assert found.certain
