"""Measure the embedded coordinator of a consumer group (KIP-848) by its members.

Each member owns ten partitions. The heartbeats go to the coordinator without a connection.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from uuid import UUID

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.broker.groups.consumer_group.coordination import is_every_topic_visible
from aiokafkawire.broker.groups.consumer_group.events import ConsumerGroupHeartbeat
from aiokafkawire.broker.groups.events import HeartbeatResult
from aiokafkawire.broker.groups.group_coordinator import GroupCoordinator
from aiokafkawire.runtime import Future
from benchmarks.scaling.curve import Curve, gc_disabled

__all__ = ("MEMBERS", "curves", "measure")

MEMBERS = (10, 100, 1_000)
TOPICS = 10
PER_MEMBER = 10
ROUNDS = 5
INTERVAL_MS = 1_000
"""Least time between two target assignments of a group, as in Kafka 4.3."""
BEAT_S = 0.1
GROUP = "crowd"
NAMES = tuple(f"topic-{number}" for number in range(TOPICS))

Owned = Mapping[UUID, frozenset[int]]


class Crowd:
    """Members of one group, as their heartbeats see it."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Owned] = {}
        self.heartbeats = 0

    def heartbeat(
        self, member_id: str, epoch: int, owned: Owned | None = None, joins: bool = False
    ) -> HeartbeatResult:
        self.heartbeats += 1
        event = ConsumerGroupHeartbeat(
            reply=Future[HeartbeatResult](),
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_names=NAMES if joins else None,
            owned=owned,
        )
        result = self._coordinator.heartbeat(GROUP, event, is_every_topic_visible)
        assert not result.code, result
        return result

    def join(self, member_id: str) -> None:
        result = self.heartbeat(member_id, 0, {}, joins=True)
        self._take(member_id, result)

    def leave(self, member_id: str) -> None:
        self.heartbeat(member_id, -1)
        del self.epochs[member_id], self.owned[member_id]

    def _take(self, member_id: str, result: HeartbeatResult) -> bool:
        """Store a response; return True if it changed the member."""
        changed = self.epochs.get(member_id) != result.member_epoch
        self.epochs[member_id] = result.member_epoch
        if result.assignment is not None:
            changed = True
            self.owned[member_id] = {
                topic: frozenset(parts) for topic, parts in result.assignment.items()
            }
        return changed

    def beat(self) -> bool:
        """Let each member send a heartbeat; return True if one changed."""
        changed = False
        for member_id, epoch in list(self.epochs.items()):
            result = self.heartbeat(member_id, epoch)
            while self._take(member_id, result):
                changed = True
                result = self.heartbeat(member_id, self.epochs[member_id], self.owned[member_id])
        return changed

    def settle(self) -> None:
        while self.beat():
            pass


async def measure(
    members: int, rounds: int = ROUNDS, interval_ms: int = INTERVAL_MS
) -> dict[str, float]:
    """Return ms of CPU by action for a group of a size."""
    pause_s = interval_ms * 1.1 / 1000
    found: dict[str, list[float]] = {}

    def timed(name: str, *actions: Callable[[], object]) -> None:
        with gc_disabled():
            began = time.process_time()
            for action in actions:
                action()
            found.setdefault(name, []).append((time.process_time() - began) * 1000)

    async with Broker(group_consumer_assignment_interval_ms=interval_ms) as broker:
        for name in NAMES:
            await broker.create_topic(name, partitions=members * PER_MEMBER // TOPICS)
        state = broker._running
        crowd = Crowd(state.group_coordinator)
        names = [f"member-{number:04}" for number in range(members)]
        timed("all members join", lambda: [crowd.join(name) for name in names])
        await anyio.sleep(pause_s)
        timed("all members get their partitions", crowd.settle)
        last = names[-1]
        for _ in range(rounds):
            await anyio.sleep(pause_s)
            timed("a member leaves, until others own", partial(crowd.leave, last), crowd.settle)
            await anyio.sleep(pause_s)
            timed("a member joins, until it owns", partial(crowd.join, last), crowd.settle)
            assert sum(map(len, crowd.owned[last].values())) == PER_MEMBER
            timed("a heartbeat of each member", crowd.beat)
    return {name: statistics.median(values) for name, values in found.items()}


async def measure_client(members: int) -> dict[str, float]:
    """Return ms of CPU that a client of its own process pays for joining a group of a size."""
    command = [sys.executable, "-m", "benchmarks.scaling.worker", "join"]
    found: dict[str, float] = {}
    async with (
        Broker(
            group_consumer_assignment_interval_ms=INTERVAL_MS,
            group_consumer_min_heartbeat_interval_ms=200,
            group_consumer_heartbeat_interval_ms=200,
        ) as broker,
        anyio.create_task_group() as tasks,
    ):
        for name in NAMES:
            await broker.create_topic(name, partitions=members * PER_MEMBER // TOPICS)
        crowd = Crowd(broker._running.group_coordinator)
        for number in range(members - 1):
            crowd.join(f"member-{number:04}")

        async def join() -> None:
            arguments = [broker.bootstrap_servers, str(PER_MEMBER)]
            done = await anyio.run_process([*command, *arguments], stderr=None)
            found.update(json.loads(done.stdout))

        tasks.start_soon(join)
        while not found:
            crowd.beat()
            await anyio.sleep(BEAT_S)
    return found


def curves() -> Iterator[Curve]:
    """Yield the curves of all actions."""
    for who, one in (("coordinator", measure), ("client", measure_client)):
        found = {members: anyio.run(one, members) for members in MEMBERS}
        for action in found[MEMBERS[0]]:
            points = tuple((members, found[members][action]) for members in MEMBERS)
            yield Curve(f"{who}: {action}", "members", "ms", points)
