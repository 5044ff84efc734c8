"""Raw requests to the group coordinators of real Kafka and of the embedded broker."""

from __future__ import annotations

import functools
from typing import Any
from uuid import UUID

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.broker.groups.consumer_group.java_order import topic_hash
from aiokafkawire.runtime import Address, RealRuntime
from aiokafkawire.wire import ZERO_UUID, ErrorCode
from aiokafkawire.wire.messages import consumer_group_describe as describe
from aiokafkawire.wire.messages import consumer_group_heartbeat as messages
from aiokafkawire.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokafkawire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.consumer_group.replay import Connection
from tests.brokers.kafka import Kafka

SIZES = (3, 2, 7)
ATTEMPTS = 8
READY_S = 60


class Side:
    """One broker, with a connection for each member."""

    def __init__(self, address: Address) -> None:
        self.names: dict[UUID, str] = {}
        self.topics: dict[str, int] = {}
        self._address = address
        self._connections: dict[str, Connection] = {}

    def another(self) -> Side:
        """Return the same broker with connections of its own."""
        side = Side(self._address)
        side.names, side.topics = self.names, self.topics
        return side

    async def connection(self, name: str = "admin") -> Connection:
        if name not in self._connections:
            transport = await RealRuntime().connect(self._address)
            self._connections[name] = Connection(transport, f"lab-{name}")
        return self._connections[name]

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()

    async def look_up_topics(self) -> None:
        connection = await self.connection()
        topics = [MetadataRequestTopic(name=name, topic_id=ZERO_UUID) for name in self.topics]
        response = await connection.call(MetadataRequest(topics=topics), 12)
        self.names = {topic.topic_id: topic.name for topic in response.topics}

    async def heartbeat(
        self, group: str, member: str, epoch: int, owned: Any = None, **fields: Any
    ) -> tuple[Any, ...]:
        request = self.heartbeat_request(group, member, epoch, owned, **fields)
        return self.plain_heartbeat(await (await self.connection(member)).call(request, 1))

    def heartbeat_request(
        self, group: str, member: str, epoch: int, owned: Any = None, **fields: Any
    ) -> messages.ConsumerGroupHeartbeatRequest:
        """Return a heartbeat; `owned` are the partitions by the name of their topic."""
        ids = {name: topic for topic, name in self.names.items()}
        return messages.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            topic_partitions=None
            if owned is None
            else [
                messages.ConsumerGroupHeartbeatTopicPartitions(topic_id=ids[name], partitions=parts)
                for name, parts in owned.items()
            ],
            **fields,
        )

    def plain_heartbeat(self, answer: messages.ConsumerGroupHeartbeatResponse) -> tuple[Any, ...]:
        """Return the fields of a response that do not depend on the broker's settings."""
        return (
            answer.error_code,
            answer.error_message,
            answer.member_id,
            answer.member_epoch,
            self._plain(answer.assignment),
        )

    async def describe(self, group: str) -> tuple[Any, ...]:
        request = describe.ConsumerGroupDescribeRequest(
            group_ids=[group], include_authorized_operations=False
        )
        [found] = (await (await self.connection()).call(request, 1)).groups
        members = sorted(
            (
                member.member_id,
                member.member_epoch,
                sorted(self._plain(member.assignment).items()),
                sorted(self._plain(member.target_assignment).items()),
            )
            for member in found.members
        )
        epochs = found.group_epoch, found.assignment_epoch
        return found.group_state, epochs, found.assignor_name, members

    def _plain(self, assignment: Any) -> Any:
        if assignment is None:
            return None
        return {
            self.names[topic.topic_id]: sorted(topic.partitions)
            for topic in assignment.topic_partitions
        }


async def create_topics(kafka: Kafka, real: Side) -> None:
    """Create topics whose ids are in different buckets of a hash map.

    Those of one bucket are assigned in the order in which they came in, which is not known.
    """
    for attempt in range(ATTEMPTS):
        real.topics = {f"kip848-{attempt}-{size}": size for size in SIZES}
        for name, count in real.topics.items():
            create = functools.partial(kafka.create_topic, name, partitions=count)
            await anyio.to_thread.run_sync(create)
        await real.look_up_topics()
        buckets = {(topic_hash(each) ^ topic_hash(each) >> 16) & 15 for each in real.names}
        if len(buckets) == len(SIZES):
            return
    raise AssertionError("the ids of the topics are never in different buckets")


async def wait_until_ready(side: Side) -> None:
    """Wait until the coordinator answers and knows the topics."""
    # This request creates __consumer_offsets.
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["kip848-ready"])
    with anyio.fail_after(READY_S):
        while True:
            await (await side.connection()).call(request, 4)
            fields = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": list(side.topics)}
            answer = await side.heartbeat("kip848-ready", "m", 0, {}, **fields)
            if answer[0] == ErrorCode.NONE and len(answer[4]) == len(side.topics):
                await side.heartbeat("kip848-ready", "m", -1)
                return
            await anyio.sleep(0.2)


def use_ids_of(real: Side, ours: Side, broker: Broker) -> None:
    """Give the topics the same ids, as assignments depend on their hashes."""
    cluster = broker._running.cluster
    for topic_id, name in real.names.items():
        cluster.topics[name].topic_id = topic_id
    cluster.topics.replace_all([*cluster.topics.values()])
    ours.names = dict(real.names)
