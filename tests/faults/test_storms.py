"""Faults of every kind, one after the other, while records flow all the time.

Records must arrive again after each fault before the next one, so a client that gets stuck is found
by the fault that stopped it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable
from itertools import count

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Close, Drop
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import CommitFailed
from aiokafkawire.producer import Producer
from aiokafkawire.records import Record
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.faults.support import IMPATIENT, MEMBER, stored

# That many faults take minutes on a busy machine; each has its own limit.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 6
FAULTS = 25
RECORDS_BETWEEN = 60
PATIENCE_S = 30.0
"""A disconnected member returns after its session; several of these may add up."""

HANG_S = 1.5 * IMPATIENT["request_timeout_ms"] / 1_000


class FaultSchedule:
    """Injects the faults. At least one node stays up."""

    def __init__(self, broker: Broker, topic: str, rng: random.Random) -> None:
        self.broker, self.topic, self.rng = broker, topic, rng

    async def inject(self) -> str:
        name, fault = self.rng.choice(
            [
                ("kill", self.kill),
                ("restart", self.restart),
                ("hang", self.hang),
                ("move leaders", self.move_leaders),
                ("close", self.close),
                ("drop", self.drop),
                ("refuse", self.refuse),
            ]
        )
        await fault()
        return name

    async def kill(self) -> None:
        if len(self.broker.live_nodes) > 1:
            await self.broker.kill(self.rng.choice(self.broker.live_nodes))

    async def restart(self) -> None:
        for node in self.broker.nodes:
            if node not in self.broker.live_nodes:
                await self.broker.restart(node)

    async def hang(self) -> None:
        """Longer than clients wait for a response."""
        node = self.rng.choice(self.broker.live_nodes)
        self.broker.pause(node)
        with anyio.move_on_after(HANG_S):
            await anyio.Event().wait()
        self.broker.resume(node)

    async def move_leaders(self) -> None:
        for partition in range(PARTITIONS):
            node = self.rng.choice(self.broker.live_nodes)
            self.broker.move_leader(self.topic, partition, node)

    async def close(self) -> None:
        api = self.rng.choice([ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT, None])
        self.broker.on(api, Close(carried_out=self.rng.random() < 0.5), times=3)

    async def drop(self) -> None:
        api = self.rng.choice([ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT])
        self.broker.on(api, Drop(carried_out=self.rng.random() < 0.5), times=1)

    async def refuse(self) -> None:
        api, code = self.rng.choice(
            [
                (ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
                (ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
                (ApiKey.FETCH, ErrorCode.FENCED_LEADER_EPOCH),
                (ApiKey.OFFSET_COMMIT, ErrorCode.NOT_COORDINATOR),
                (ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID),
                (ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS),
            ]
        )
        self.broker.on(api, Answer(code), times=2)


class RecordFlow:
    """A producer and two members of a group, and the records of each."""

    def __init__(self, broker: Broker, topic: str, group_id: str) -> None:
        self.servers, self.topic, self.group_id = broker.bootstrap_servers, topic, group_id
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.seen: set[bytes | None] = set()
        self.out_of_order: list[Record] = []
        self.stopping = False
        self.ended = anyio.Event()
        self.progress = anyio.Event()

    async def produce(self) -> None:
        async with Producer(bootstrap_servers=self.servers, linger_ms=1, **IMPATIENT) as producer:
            for number in count():
                if self.stopping:
                    break
                deliveries = []
                for partition in range(PARTITIONS):
                    value = b"%d/%06d" % (partition, number)
                    deliveries.append(await producer.send(self.topic, value, partition=partition))
                    self.sent[partition].append(value)
                for delivery in deliveries:
                    await delivery
        self.ended.set()

    async def consume(self) -> None:
        options = MEMBER | {"session_timeout_ms": 1_000}
        async with Consumer(
            self.topic, bootstrap_servers=self.servers, group_id=self.group_id, **options
        ) as consumer:
            while True:
                found = await consumer.getmany(timeout_ms=100)
                for records in found.values():
                    offsets = records.offsets()
                    if offsets != sorted(set(offsets)):
                        self.out_of_order.extend(records)
                    self.seen.update(records.values())
                if found:
                    # Another member reads records again that this one could not commit.
                    with contextlib.suppress(CommitFailed):
                        await consumer.commit()
                    self.progress.set()
                    self.progress = anyio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self.progress.wait()

    @property
    def complete(self) -> bool:
        return self.seen >= {value for values in self.sent for value in values}


@pytest.mark.parametrize("seed", range(3))
async def test_through_a_storm_everything_arrives_once_in_the_log_and_in_the_group(
    broker: Broker, new_topic: Callable[..., Awaitable[str]], group_id: str, seed: int
):
    topic = await new_topic(partitions=PARTITIONS)
    fault_schedule = FaultSchedule(broker, topic, random.Random(seed))
    flow = RecordFlow(broker, topic, group_id)
    faults: list[str] = []
    async with anyio.create_task_group() as group:
        for work in (flow.produce, flow.consume, flow.consume):
            group.start_soon(work)
        try:
            for _ in range(FAULTS):
                goal = len(flow.seen) + RECORDS_BETWEEN
                with anyio.fail_after(PATIENCE_S):
                    await flow.until(lambda goal=goal: len(flow.seen) >= goal)
                faults.append(await fault_schedule.inject())
        except TimeoutError:
            pytest.fail(f"nothing arrived any more after: {', '.join(faults)}")
        broker.clear_faults()
        await fault_schedule.restart()
        flow.stopping = True
        with anyio.fail_after(PATIENCE_S):
            await flow.ended.wait()
            await flow.until(lambda: flow.complete)
        group.cancel_scope.cancel()
    assert await stored(broker.bootstrap_servers, topic, PARTITIONS) == [
        value for values in flow.sent for value in values
    ]
    assert flow.out_of_order == []
