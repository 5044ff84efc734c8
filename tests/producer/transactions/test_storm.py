"""Transactions while everything fails now and then; more seeds: see `storm`."""

from __future__ import annotations

import pytest

from .storm import storm

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(3))
async def test_what_was_committed_is_seen_once_and_nothing_else(
    anyio_backend: object, seed: int, release: str
):
    found = await storm(seed, release)
    assert found.certain
