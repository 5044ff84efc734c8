"""A record through a listener and back, with this package's clients."""

from __future__ import annotations

from typing import Any

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition

WITHIN_S = 30.0
MEMBER: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}


async def use_all(bootstrap_servers: str, topic: str, options: dict[str, Any]) -> None:
    """Produce two records, consume and commit the first as a group, and go on from there.

    With what the release has: without headers and idempotence these work on 0.10 alike.
    """
    partition = TopicPartition(topic, 0)
    group: dict[str, Any] = {"group_id": topic, **MEMBER, **options}
    with anyio.fail_after(WITHIN_S):
        async with Producer(bootstrap_servers=bootstrap_servers, **options) as producer:
            await producer.send(topic, b"first", partition=0)
            await producer.send_and_wait(topic, b"second", partition=0)
        async with Consumer(topic, bootstrap_servers=bootstrap_servers, **group) as consumer:
            first = await consumer.getone()
            await consumer.commit({partition: first.offset + 1})
        async with Consumer(topic, bootstrap_servers=bootstrap_servers, **group) as consumer:
            second = await consumer.getone()
            committed = await consumer.committed([partition])
    assert (first.value, second.value) == (b"first", b"second")
    assert committed[partition] is not None
    assert committed[partition].offset == first.offset + 1
