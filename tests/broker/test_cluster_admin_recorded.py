"""The embedded cluster answers requests about the cluster as Kafka 4.3.0."""

from __future__ import annotations

import pytest

from .cluster_admin_cases import embedded_responses, recorded_responses


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True, scope="module")
async def test_responses_equal_those_of_kafka() -> None:
    recorded, found = recorded_responses(), await embedded_responses()
    assert list(found) == list(recorded), "record the responses again"
    for step, response in found.items():
        assert response == recorded[step], step
