"""Kills of the coordinator of a group on three real nodes."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import anyio
from anyio import to_thread

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType, ElectionType, NewTopic
from aiokafkawire.errors import KafkaError
from tests.brokers import raw
from tests.brokers.kafka import Kafka, Node

__all__ = ("KILLS", "SESSION_WITH_KILLS_MS", "CoordinatorKills")

KILLS = 2
SESSION_WITH_KILLS_MS = 20_000
"""Longer than a group is without a coordinator: the controller waits 9 s for a dead node."""
GROUP_CONFIGS = {
    "consumer.session.timeout.ms": str(SESSION_WITH_KILLS_MS),
    "consumer.heartbeat.interval.ms": "500",
}
"""As the options of members of the classic protocol."""
AWAY_SECONDS = 15.0
"""Time from a kill until the node starts again."""
LOOK_SECONDS = 0.5


class CoordinatorKills:
    """Kills the coordinator of a group with SIGKILL, and starts the node again."""

    def __init__(
        self, kafka: Kafka, group: str, saw: Callable[[str], object], seconds: float
    ) -> None:
        self._kafka = kafka
        self._group = group
        self._saw = saw
        self._pause = seconds / (KILLS + 1) - AWAY_SECONDS
        self.count = 0

    def _admin(self) -> Admin:
        return Admin(bootstrap_servers=self._kafka.bootstrap_servers)

    async def create_topic(self, partitions: int) -> str:
        """Create a topic without a replica on the coordinator, and set the configs of the group."""
        probe, topic = (f"churn-{uuid.uuid4().hex[:12]}" for _ in range(2))
        async with self._admin() as admin:
            await admin.create_topics([NewTopic(probe, 1)])
            await admin.wait_for_topics([probe])
            await admin.alter_consumer_group_offsets(self._group, {(probe, 0): 0})
            resource = ConfigResource(ConfigResourceType.GROUP, self._group)
            await admin.incremental_alter_configs({resource: GROUP_CONFIGS})
            away = await self._coordinator(admin)
            one, two = (node.node_id for node in self._kafka.nodes if node is not away)
            places = {each: (one, two) if each % 2 else (two, one) for each in range(partitions)}
            await admin.create_topics([NewTopic(topic, replica_assignments=places)])
            await admin.wait_for_topics([topic])
        self._saw(f"coordinator on node {away.node_id}, replicas of the topic on {one} and {two}")
        return topic

    async def _coordinator(self, admin: Admin) -> Node:
        described = (await admin.describe_consumer_groups([self._group]))[self._group]
        nodes = self._kafka.nodes
        return next(node for node in nodes if node.node_id == described.coordinator_id)

    async def _coordinator_after(self, admin: Admin, victim: Node) -> None:
        """Wait until another node is the coordinator."""
        while True:
            try:
                if await self._coordinator(admin) is not victim:
                    return
            except KafkaError as error:
                if not error.retriable:
                    raise
            await anyio.sleep(LOOK_SECONDS)

    async def work(self) -> None:
        began = anyio.current_time()
        async with self._admin() as admin:
            for _ in range(KILLS):
                await anyio.sleep(self._pause)
                victim = await self._coordinator(admin)
                victim.kill()
                self.count += 1
                killed_at = anyio.current_time()
                self._saw(
                    f"{killed_at - began:.1f} s: node {victim.node_id}, the coordinator, killed"
                )
                await self._coordinator_after(admin, victim)
                self._saw(f"another coordinator {anyio.current_time() - killed_at:.1f} s later")
                await anyio.sleep(max(killed_at + AWAY_SECONDS - anyio.current_time(), 0))
                self._saw(f"{anyio.current_time() - began:.1f} s: the node starts again")
                await to_thread.run_sync(self._kafka.start)
                await self._wait_until_in_sync(victim)
                # The group gets its first coordinator back.
                await admin.elect_leaders(ElectionType.PREFERRED, return_errors=True)

    async def _wait_until_in_sync(self, node: Node) -> None:
        while True:
            try:
                found = await to_thread.run_sync(raw.metadata, node.address)
            except OSError:
                pass
            else:
                if found.all_in_sync():
                    return
            await anyio.sleep(LOOK_SECONDS)
