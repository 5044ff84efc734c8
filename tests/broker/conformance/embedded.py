"""Responses of the embedded broker to the conformance cases."""

from __future__ import annotations

from typing import Any

from aiokafkawire.broker import Broker
from tests.broker.conformance.cases import (
    MIN_SESSION_TIMEOUT_MS,
    NODES,
    PARTITIONS,
    TOPICS,
    as_of,
    run_cases,
    supported,
)

SILENCE_S = 0.1
"""Short, as an unexpected response would come at once."""


async def embedded(version: str) -> tuple[dict[str, list[int]], dict[str, Any]]:
    """Return the APIs and the responses of the embedded broker as that release."""
    async with Broker(
        nodes=NODES,
        as_of=as_of(version),
        default_partitions=PARTITIONS,
        group_min_session_timeout_ms=MIN_SESSION_TIMEOUT_MS,
    ) as broker:
        cluster = broker._running.cluster
        for name, (replicas, configs) in TOPICS.items():
            cluster.create_topic(name, assignments=dict(enumerate(replicas)), configs=configs)
        apis = await supported(as_of(version), broker.nodes[1])
        return apis, await run_cases(as_of(version), broker.nodes, SILENCE_S)
