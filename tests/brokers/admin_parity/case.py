"""One comparison: what prepares it, the two calls, and what is left out of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import anyio

from aiokafkawire import Admin, Consumer, Producer
from aiokafkawire.admin import NewTopic
from aiokafkawire.cluster import ToCoordinator
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import Request
from tests.brokers.admin_parity.java_admin import JavaAdmin

__all__ = ("Case", "World", "nothing")

WITHIN_S = 60.0
SETTLED_S = 1.0
NODE_IDS = [1, 2, 3]


@dataclass(frozen=True)
class World:
    """The cluster of a comparison, and what prepares it.

    Attributes:
        admin: Our client.
        options: Options of our clients.
        stack: Keeps clients alive until the end of the case.
    """

    admin: Admin
    options: dict[str, Any]
    stack: AsyncExitStack

    async def topic(self, name: str, partitions: int = 2, records: int = 0) -> str:
        """Create a topic with records in partition 0."""
        replicas = {number: _rotated(number) for number in range(partitions)}
        await self.admin.create_topics([NewTopic(name, replica_assignments=replicas)])
        await self.settle()
        if records:
            async with Producer(**self.options) as producer:
                for number in range(records):
                    await producer.send_and_wait(name, b"%d" % number, partition=0)
        return name

    async def member(self, group: str, topic: str, **options: Any) -> Consumer:
        """Join a classic group; the member stays until the end of the case."""
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "client_id": "member"}
        consumer = Consumer(topic, **(self.options | settings | {"group_id": group} | options))
        await self.stack.enter_async_context(consumer)
        with anyio.fail_after(WITHIN_S):
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
        return consumer

    async def commit(self, group: str, topic: str, offset: int = 1) -> None:
        """Commit an offset for partition 0."""
        await self.admin.alter_consumer_group_offsets(group, {TopicPartition(topic, 0): offset})

    async def heartbeat(self, group: str, message: Request[Any]) -> Any:
        """Send a heartbeat to the coordinator of a group until it is accepted."""
        requester = self.admin._requester(None)
        with anyio.fail_after(WITHIN_S):
            while True:
                response = await requester.cluster.request(
                    message, to=ToCoordinator(group), deadline=requester.deadline
                )
                if not response.error_code:
                    return response
                await anyio.sleep(0.1)

    async def transaction(self, transactional_id: str, topic: str, *, finish: bool) -> None:
        """Run a transaction; if it is not finished, its producer stays open with it."""
        producer = Producer(**self.options, transactional_id=transactional_id)
        if finish:
            async with producer, producer.transaction():
                await producer.send(topic, b"x", partition=0)
            return await self.settle()
        await self.stack.enter_async_context(producer)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"x", partition=0)

    async def settle(self) -> None:
        """Wait until all brokers know of a change, and markers of a transaction are written."""
        await anyio.sleep(SETTLED_S)


def _rotated(partition: int) -> list[int]:
    """Return the replicas of a partition."""
    first = partition % len(NODE_IDS)
    return NODE_IDS[first:] + NODE_IDS[:first]


async def nothing(world: World, name: str) -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class Case:
    """The same call to Java's Admin and to ours.

    Attributes:
        operation: Name of the operation.
        java: Calls Java's Admin; gets the client and the name of what was prepared. Futures in the
            result are waited for.
        ours: Calls our Admin, likewise.
        prepare: Prepares the call under a name.
        shared: Both calls use what was prepared once; otherwise each has its own.
        ignored: Fields that differ from call to call, such as times.
        adapt: Changes Java's result into the shape of ours.
        adapt_ours: Changes our result into a shape that can be compared.
        title: Distinguishes the cases of one operation.
        needs: Release that the operation needs, if the cluster lacks it.
    """

    operation: str
    java: Callable[[JavaAdmin, str], Any] | None
    ours: Callable[[World, str], Awaitable[Any]]
    prepare: Callable[[World, str], Awaitable[Any]] = nothing
    shared: bool = False
    ignored: frozenset[str] = frozenset()
    adapt: Callable[[Any], Any] = field(default=lambda result: result)
    adapt_ours: Callable[[Any], Any] = field(default=lambda result: result)
    title: str = ""
    needs: str = ""
