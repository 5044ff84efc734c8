"""Random conversations of consumer groups: the embedded broker answers as Kafka 4.3.0."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import anyio
import pytest

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType
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
MEMBERS = ("alpha", "beta", "gamma", "delta", "m5")
STATIC = {"gamma": "inst-gamma"}
CONVERSATIONS, STEPS = 40, 40
GROUPS = [f"kip848-{number}" for number in range(CONVERSATIONS)]
READY_S = 60


class Side:
    """One broker, with a connection for each member."""

    def __init__(self, address: Address) -> None:
        self.names: dict[UUID, str] = {}
        self.topics: dict[str, int] = {}
        self._address = address
        self._connections: dict[str, Connection] = {}

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
        ids = {name: topic for topic, name in self.names.items()}
        request = messages.ConsumerGroupHeartbeatRequest(
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
        answer = await (await self.connection(member)).call(request, 1)
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
        topic = cluster.topics[name]
        del cluster._by_id[topic.topic_id]
        topic.topic_id = topic_id
        cluster._by_id[topic_id] = topic
    cluster.topics_version += 1
    ours.names = dict(real.names)


async def converse(real: Side, ours: Side, group: str, rng: random.Random) -> int:
    """Send random heartbeats to both; return the number of equal responses."""
    epochs: dict[str, int] = {}
    owned: dict[str, Any] = {}
    for step in range(STEPS):
        member, action = rng.choice(MEMBERS), rng.random()
        fields: dict[str, Any] = {}
        if member in STATIC:
            fields["instance_id"] = STATIC[member]
        names = sorted(rng.sample(list(real.topics), rng.randint(1, 3)))
        epoch, report = epochs.get(member, 0), owned.get(member, {})
        if member not in epochs or action < 0.1:
            epoch, report = 0, {}
            fields |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": names}
            if rng.random() < 0.2:
                fields["server_assignor"] = "range"
        elif action < 0.2:
            epoch, report = -1, None
        elif action < 0.25 and member in STATIC:
            epoch, report = -2, None
        elif action < 0.35:
            report = None
        elif action < 0.42:
            fields["subscribed_topic_names"] = names
        elif action < 0.47:
            epoch -= 1
        expected = await real.heartbeat(group, member, epoch, report, **fields)
        answer = await ours.heartbeat(group, member, epoch, report, **fields)
        assert answer == expected, (group, step, member, epoch, report, fields)
        if step % 10 == 9:
            assert await ours.describe(group) == await real.describe(group), (group, step)
        if answer[0] in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH} or epoch == -1:
            epochs.pop(member, None)
            owned.pop(member, None)
        elif not answer[0] and epoch >= 0:
            epochs[member] = answer[3]
            if answer[4] is not None:
                owned[member] = answer[4]
    return STEPS + STEPS // 10


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_random_conversations(
    kafka_43_server: Kafka, record_property: Callable[[str, object], None]
) -> None:
    host, _, port = kafka_43_server.bootstrap_servers.split(",")[0].rpartition(":")
    # Sessions of the tests end within seconds; here, none may end.
    configs = {"consumer.session.timeout.ms": "45000"}
    async with Admin(bootstrap_servers=kafka_43_server.bootstrap_servers) as admin:
        await admin.incremental_alter_configs(
            {ConfigResource(ConfigResourceType.GROUP, group): configs for group in GROUPS}
        )
    async with Broker(as_of="4.3") as broker:
        real = Side(Address(host, int(port)))
        ours = Side(next(iter(broker.nodes.values())))
        try:
            await create_topics(kafka_43_server, real)
            for name, count in real.topics.items():
                await broker.create_topic(name, partitions=count)
            use_ids_of(real, ours, broker)
            await wait_until_ready(real)
            rng = random.Random(848)
            equal = 0
            for group in GROUPS:
                equal += await converse(real, ours, group, rng)
        finally:
            await real.close()
            await ours.close()
    record_property("summary", f"{equal} responses equal Kafka's")
    print(f"{equal} responses of {CONVERSATIONS} conversations equal Kafka's")
