"""Random conversations of consumer groups: the embedded broker answers as Kafka 4.3.0."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType
from aiokafkawire.broker import Broker
from aiokafkawire.runtime import Address
from aiokafkawire.wire import ErrorCode
from tests.brokers.group_side import Side, create_topics, use_ids_of, wait_until_ready
from tests.brokers.kafka import Kafka

MEMBERS = ("alpha", "beta", "gamma", "delta", "m5")
STATIC = {"gamma": "inst-gamma"}
CONVERSATIONS, STEPS = 40, 40
GROUPS = [f"kip848-{number}" for number in range(CONVERSATIONS)]


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
