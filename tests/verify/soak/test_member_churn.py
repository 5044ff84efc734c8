"""A short run of joining and leaving members, on the embedded broker."""

from __future__ import annotations

import pytest

from aiokafkawire.broker import Broker
from verify.soak.member_churn import Plan, run

SECONDS = 6.0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", "consumer"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_members_join_and_leave_at_random(strategy: str) -> None:
    seen: list[str] = []
    classic = {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 100}
    async with Broker(
        nodes=3,
        group_min_session_timeout_ms=500,
        group_consumer_min_heartbeat_interval_ms=100,
        group_consumer_heartbeat_interval_ms=100,
    ) as broker:
        await broker.create_topic("orders", partitions=Plan.partitions)
        plan = Plan(
            broker.bootstrap_servers,
            topic="orders",
            group="churn",
            strategy=strategy,
            seed=4,
            seconds=SECONDS,
            pause_seconds=(0.05, 0.4),
            messages_per_second=480,
            options={"fetch_max_wait_ms": 100, **(classic if strategy != "consumer" else {})},
        )
        problems, _ = await run(plan, seen.append)
    assert problems == [], seen
