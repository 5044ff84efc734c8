"""Effect of a close on the membership (KIP-1092), in both protocols."""

from __future__ import annotations

import uuid
from typing import Any

import anyio
import pytest

from aiokafkawire.admin import Admin
from aiokafkawire.consumer import Consumer
from tests.behaviour.features import needs
from tests.behaviour.support import WITHIN_S, poll_until

pytestmark = pytest.mark.slow

MEMBER: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}

LEFT: dict[tuple[str | None, Any], int] = {
    (None, "default"): 0,
    (None, "leave_group"): 0,
    (None, "remain_in_group"): 1,
    ("a", "default"): 1,
    ("a", "leave_group"): 0,
    ("a", "remain_in_group"): 1,
}
"""Members that the coordinator still has, by group_instance_id and operation."""


PROTOCOLS = ["classic", pytest.param("consumer", marks=needs("consumer protocol"))]


@needs("removing static members")
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_members_that_remain_after_a_close(
    bootstrap_servers: str, topic: str, protocol: str
) -> None:
    async with Admin(bootstrap_servers=bootstrap_servers) as admin:
        for (instance_id, operation), expected in LEFT.items():
            group_id = f"group-{uuid.uuid4().hex[:12]}"
            async with Consumer(
                topic,
                bootstrap_servers=bootstrap_servers,
                group_id=group_id,
                group_protocol=protocol,
                group_instance_id=instance_id,
                **MEMBER,
            ) as consumer:
                await poll_until(consumer, lambda: bool(consumer.assignment()))
                with anyio.fail_after(WITHIN_S):
                    await consumer.stop(group_membership_operation=operation)
            described = await admin.describe_consumer_groups([group_id])
            assert len(described[group_id].members) == expected, (instance_id, operation)


async def test_an_unknown_operation_is_refused(bootstrap_servers: str, topic: str) -> None:
    async with Consumer(topic, bootstrap_servers=bootstrap_servers) as consumer:
        with pytest.raises(ValueError, match="remain_in_group"):
            await consumer.stop(group_membership_operation="stay")  # type: ignore[arg-type]
