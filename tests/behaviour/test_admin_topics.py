"""The admin client's operations on topics, and the description of the cluster."""

from __future__ import annotations

import uuid

import pytest

from aiokafkawire import Admin
from aiokafkawire.admin import ConfigSource, NewTopic
from aiokafkawire.errors import BrokerError, PartialFailure, UnsupportedVersion
from tests.behaviour.features import needs, without
from tests.behaviour.support import eventually

UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, UNKNOWN_TOPIC_ID = (
    3,
    36,
    37,
    100,
)


def new_name() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


async def wait_listed(admin: Admin, *names: str) -> None:
    async def listed() -> bool:
        return {*names} <= (await admin.list_topics()).keys()

    await eventually(listed)


@needs("changing topics")
async def test_topics_from_creation_to_deletion(admin: Admin):
    first, second = new_name(), new_name()
    created = await admin.create_topics(
        [NewTopic(first, 3, 1, configs={"cleanup.policy": "compact"}), NewTopic(second, 1, 1)]
    )
    assert list(created) == [first, second]
    if (configs := created[first].configs) is not None:
        assert configs["cleanup.policy"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    await wait_listed(admin, first, second)
    described = await admin.describe_topics([first, second])
    assert {name: len(topic.partitions) for name, topic in described.items()} == {
        first: 3,
        second: 1,
    }
    for partition in described[first].partitions.values():
        assert partition.replicas == partition.isr == (partition.leader_id,)
    assert await admin.delete_topics([first]) == {first: None}

    async def gone() -> bool:
        return first not in await admin.list_topics()

    await eventually(gone)
    assert await admin.delete_topics([second]) == {second: None}


@needs("changing topics")
async def test_each_topic_that_failed_has_its_error(admin: Admin):
    name, other = new_name(), new_name()
    await admin.create_topics([NewTopic(name, 1, 1)])
    with pytest.raises(PartialFailure) as caught:
        await admin.create_topics([NewTopic(name, 1, 1), NewTopic(other, 1, 1)])
    assert list(caught.value.succeeded) == [other]
    error = caught.value.failed[name]
    assert isinstance(error, BrokerError)
    assert (error.code, error.topic, error.api) == (TOPIC_ALREADY_EXISTS, name, "CreateTopics")
    results = await admin.delete_topics([other, new_name()], return_errors=True)
    codes = [getattr(error, "code", None) for error in results.values()]
    assert codes == [None, UNKNOWN_TOPIC_OR_PARTITION]
    await admin.delete_topics([name])


async def test_a_topic_that_does_not_exist(admin: Admin, topic: str):
    with pytest.raises(PartialFailure) as caught:
        await admin.describe_topics([topic, "no-such-topic"])
    assert list(caught.value.succeeded) == [topic]
    error = caught.value.failed["no-such-topic"]
    assert isinstance(error, BrokerError)
    assert error.code == UNKNOWN_TOPIC_OR_PARTITION
    assert "no-such-topic" not in await admin.list_topics()


@needs("changing topics")
async def test_replicas_as_assigned(admin: Admin):
    name = new_name()
    nodes = [node.node_id for node in (await admin.describe_cluster()).nodes]
    await admin.create_topics([NewTopic(name, replica_assignments={0: nodes, 1: nodes[::-1]})])
    await wait_listed(admin, name)
    partitions = (await admin.describe_topics([name]))[name].partitions
    assert [info.replicas for info in partitions.values()] == [tuple(nodes), tuple(nodes[::-1])]
    await admin.delete_topics([name])


@needs("topic ids")
async def test_topics_by_id(admin: Admin, topic: str):
    topic_id = (await admin.list_topics())[topic].topic_id
    assert topic_id is not None
    described = await admin.describe_topics([topic_id])
    assert described[topic_id].name == topic
    unknown = uuid.uuid4()
    with pytest.raises(PartialFailure) as caught:
        await admin.delete_topics([topic_id, unknown])
    assert caught.value.succeeded == {topic_id: None}
    error = caught.value.failed[unknown]
    assert isinstance(error, BrokerError)
    assert error.code == UNKNOWN_TOPIC_ID


@needs("topic ids")
async def test_validate_only_creates_nothing(admin: Admin):
    name = new_name()
    created = await admin.create_topics([name], validate_only=True)
    assert list(created) == [name]
    with pytest.raises(PartialFailure) as caught:
        await admin.create_topics([NewTopic(name, -5, 1)], validate_only=True)
    error = caught.value.failed[name]
    assert isinstance(error, BrokerError)
    assert error.code == INVALID_PARTITIONS
    assert name not in await admin.list_topics()


async def test_the_cluster(admin: Admin, bootstrap_servers: str):
    described = await admin.describe_cluster()
    addresses = {f"{node.host}:{node.port}" for node in described.nodes}
    assert addresses & {*bootstrap_servers.split(",")}
    assert described.authorized_operations is None


@needs("authorized operations")
async def test_authorized_operations(admin: Admin, topic: str):
    cluster = await admin.describe_cluster(include_authorized_operations=True)
    assert cluster.authorized_operations
    topics = await admin.describe_topics([topic], include_authorized_operations=True)
    assert topics[topic].authorized_operations


@without("changing topics", as_of="0.9")
async def test_topics_cannot_be_changed_on_old_brokers(admin: Admin, topic: str):
    with pytest.raises(UnsupportedVersion, match=r"CreateTopics needs Kafka 0\.10\.1 or later"):
        await admin.create_topics([new_name()])
    with pytest.raises(UnsupportedVersion, match=r"DeleteTopics needs Kafka 0\.10\.1 or later"):
        await admin.delete_topics([topic])
    assert topic in await admin.list_topics()
    described = (await admin.describe_topics([topic]))[topic]
    assert (described.name, described.topic_id, list(described.partitions)) == (topic, None, [0])


@without("authorized operations", as_of="2.2")
async def test_authorized_operations_of_old_brokers(admin: Admin, topic: str):
    with pytest.raises(UnsupportedVersion, match=r"Metadata v8 needs Kafka 2\.3 or later"):
        await admin.describe_cluster(include_authorized_operations=True)
    with pytest.raises(UnsupportedVersion, match=r"Metadata v8 needs Kafka 2\.3 or later"):
        await admin.describe_topics([topic], include_authorized_operations=True)


@without("topic ids", as_of="2.7")
async def test_topic_ids_of_old_brokers(admin: Admin):
    with pytest.raises(UnsupportedVersion, match=r"Metadata v12 needs Kafka 3\.1 or later"):
        await admin.describe_topics([uuid.uuid4()])
