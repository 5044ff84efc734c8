"""A record through a listener and back, with this package's clients."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from tests.brokers.security.cases import OLDER_IN_SHORT, OLDER_RELEASES

WITHIN_S = 30.0
ON_ASYNCIO = pytest.mark.parametrize(
    "anyio_backend", [pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio")]
)
"""For tests of brokers, which would see the same on each event loop."""

OLDER = pytest.mark.parametrize(
    "version",
    [
        pytest.param(each, marks=() if each in OLDER_IN_SHORT else pytest.mark.slow)
        for each in OLDER_RELEASES
    ],
)
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
