"""Groups with members of both protocols: the embedded broker converts them as Kafka 4.3.0."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType
from aiokafkawire.broker import Broker
from aiokafkawire.runtime import Address
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.group_side import Side, create_topics, use_ids_of, wait_until_ready
from tests.brokers.kafka import Kafka
from tests.brokers.mixed_group import Conversation

CONVERSATIONS, STEPS = 12, 60
MOST_OTHER_ORDERS = 2
"""Limit of conversations that end at a target of another order."""


async def compare(kafka: Kafka, policy: str, seed: int) -> int:
    """Return the number of responses of random conversations that are equal."""
    host, _, port = kafka.bootstrap_servers.split(",")[0].rpartition(":")
    groups = [f"mixed-{policy}-{number}" for number in range(CONVERSATIONS)]
    configs = {"consumer.session.timeout.ms": "45000"}
    async with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.incremental_alter_configs(
            {ConfigResource(ConfigResourceType.GROUP, group): configs for group in groups}
        )
    options = {"group_initial_rebalance_delay_ms": 0, "group_consumer_migration_policy": policy}
    async with Broker(as_of="4.3", **options) as broker:
        real = Side(Address(host, int(port)))
        ours = Side(next(iter(broker.nodes.values())))
        equal = other_orders = 0
        try:
            await create_topics(kafka, real)
            for name, count in real.topics.items():
                await broker.create_topic(name, partitions=count)
            use_ids_of(real, ours, broker)
            await wait_until_ready(real)
            for number, group in enumerate(groups):
                rng = random.Random(seed + number)
                # Requests of the previous conversation may still wait on its connections.
                sides = real.another(), ours.another()
                try:
                    conversation = Conversation(*sides, broker, group, rng)
                    equal += await conversation.run(STEPS)
                    other_orders += conversation.has_other_order
                finally:
                    for side in sides:
                        await side.close()
        finally:
            await real.close()
            await ours.close()
    assert other_orders <= MOST_OTHER_ORDERS
    return equal


@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_random_conversations(
    policy: str, record_property: Callable[[str, object], None]
) -> None:
    properties = {"group.consumer.migration.policy": policy}
    with what_real_kafka_needs(), Kafka("4.3.0", properties=properties) as kafka:
        equal = await compare(kafka, policy, 848)
    record_property("summary", f"{equal} responses equal Kafka's under policy {policy}")
