"""The embedded broker responds about transactions as the releases did."""

from __future__ import annotations

import pytest

from aiokafkawire.broker import Broker

from .conversation import RELEASES, ask, recordings


@pytest.mark.parametrize("version", RELEASES)
async def test_responses_equal_those_of_the_release(version: str) -> None:
    as_of = RELEASES[version]
    async with Broker(as_of=as_of) as broker:
        await broker.create_topic("t", 2)
        found = await ask(broker.nodes[1], as_of, short_ms=100)
    assert found == recordings()[version]
