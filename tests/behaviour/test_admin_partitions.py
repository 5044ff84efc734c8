"""The admin client's operations on partitions: their number, records, leaders and replicas."""

from __future__ import annotations

import pytest

from aiokafkawire import Admin, TopicPartition
from aiokafkawire.admin import (
    HIGH_WATERMARK,
    ElectionType,
    ListedOffset,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from aiokafkawire.errors import BrokerError, PartialFailure
from aiokafkawire.producer import Producer
from tests.behaviour.conftest import NewTopic as TopicFixture
from tests.behaviour.features import needs
from tests.behaviour.support import eventually, fill, reading, take

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION = 1, 3
INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT = 37, 39
ELECTION_NOT_NEEDED, NO_REASSIGNMENT_IN_PROGRESS = 84, 85


def code_of(error: object) -> int | None:
    assert error is None or isinstance(error, BrokerError)
    return None if error is None else error.code


async def count(admin: Admin, topic: str) -> int:
    return len((await admin.describe_topics([topic]))[topic].partitions)


@needs("adding partitions")
async def test_partitions_are_added(admin: Admin, topic: str):
    assert await admin.create_partitions({topic: 3}) == {topic: None}

    async def added() -> bool:
        return await count(admin, topic) == 3

    await eventually(added)
    with pytest.raises(PartialFailure) as caught:
        await admin.create_partitions({topic: 3})
    assert code_of(caught.value.failed[topic]) == INVALID_PARTITIONS
    results = await admin.create_partitions(
        {topic: NewPartitions(4), "no-such-topic": 2}, validate_only=True, return_errors=True
    )
    assert [code_of(each) for each in results.values()] == [None, UNKNOWN_TOPIC_OR_PARTITION]
    assert await count(admin, topic) == 3


@needs("adding partitions")
async def test_the_replicas_of_new_partitions(admin: Admin, topic: str):
    info = (await admin.describe_topics([topic]))[topic].partitions[0]
    await admin.create_partitions({topic: NewPartitions(2, [info.replicas])})

    async def added() -> bool:
        # Other brokers may not know the new partition yet, so one response decides.
        partitions = (await admin.describe_topics([topic]))[topic].partitions
        return len(partitions) == 2 and partitions[1].replicas == info.replicas

    await eventually(added)
    bad = NewPartitions(3, [[9_999, *info.replicas[1:]]])
    results = await admin.create_partitions({topic: bad}, return_errors=True)
    assert code_of(results[topic]) == INVALID_REPLICA_ASSIGNMENT


@needs("deleting records")
async def test_records_are_deleted(admin: Admin, bootstrap_servers: str, new_topic: TopicFixture):
    topic = await new_topic(partitions=2)
    for partition in (0, 1):
        await fill(bootstrap_servers, topic, [b"a", b"b", b"c"], partition)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert await admin.delete_records({first: 2, second: HIGH_WATERMARK}) == {first: 2, second: 3}
    listed = await admin.list_offsets({first: OffsetSpec.EARLIEST, second: OffsetSpec.EARLIEST})
    assert [each.offset for each in listed.values()] == [2, 3]
    async with reading(bootstrap_servers, topic) as consumer:
        assert [record.value for record in await take(consumer, 1)] == [b"c"]
    with pytest.raises(PartialFailure) as caught:
        await admin.delete_records({first: 99, second: 3, ("no-such-topic", 0): 1})
    assert caught.value.succeeded == {second: 3}
    assert {tp: code_of(error) for tp, error in caught.value.failed.items()} == {
        first: OFFSET_OUT_OF_RANGE,
        ("no-such-topic", 0): UNKNOWN_TOPIC_OR_PARTITION,
    }


@needs("reassignments")
async def test_leaders_are_elected(admin: Admin, topic: str):
    partition = TopicPartition(topic, 0)
    results = await admin.elect_leaders(
        ElectionType.PREFERRED, [partition, ("no-such-topic", 0)], return_errors=True
    )
    assert {tp: code_of(error) for tp, error in results.items()} == {
        partition: ELECTION_NOT_NEEDED,
        ("no-such-topic", 0): UNKNOWN_TOPIC_OR_PARTITION,
    }
    everywhere = await admin.elect_leaders(ElectionType.PREFERRED)
    assert partition not in everywhere


@needs("reassignments")
async def test_replicas_are_reassigned(admin: Admin):
    nodes = [node.node_id for node in (await admin.describe_cluster()).nodes]
    await admin.create_topics([NewTopic("moving", replica_assignments={0: nodes[:1]})])
    await admin.wait_for_topics(["moving"])
    partition = TopicPartition("moving", 0)
    target = nodes[-1:]
    try:
        assert await admin.alter_partition_reassignments({partition: target}) == {partition: None}

        async def moved() -> bool:
            if await admin.list_partition_reassignments([partition]):
                return False
            info = (await admin.describe_topics(["moving"]))["moving"].partitions[0]
            return list(info.replicas) == target

        await eventually(moved)
        results = await admin.alter_partition_reassignments(
            {partition: None, ("moving", 7): nodes[:1], ("no-such-topic", 0): [1]},
            return_errors=True,
        )
        assert [code_of(error) for error in results.values()] == [
            NO_REASSIGNMENT_IN_PROGRESS,
            UNKNOWN_TOPIC_OR_PARTITION,
            UNKNOWN_TOPIC_OR_PARTITION,
        ]
        failed = await admin.alter_partition_reassignments({partition: [9_999]}, return_errors=True)
        assert code_of(failed[partition]) == INVALID_REPLICA_ASSIGNMENT
        assert await admin.list_partition_reassignments() == {}
    finally:
        await admin.delete_topics(["moving"])


@needs("search by time")
async def test_offsets_are_listed(admin: Admin, bootstrap_servers: str, new_topic: TopicFixture):
    topic = await new_topic(partitions=2)
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for timestamp_ms in (1_000, 3_000, 2_000):
            await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=timestamp_ms)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def offsets(spec: OffsetSpec | int) -> list[tuple[int | None, int | None]]:
        listed = await admin.list_offsets({first: spec, second: spec})
        return [(each.offset, each.timestamp_ms) for each in listed.values()]

    assert await offsets(OffsetSpec.EARLIEST) == [(0, None), (0, None)]
    assert await offsets(OffsetSpec.LATEST) == [(3, None), (0, None)]
    assert await offsets(1_500) == [(1, 3_000), (None, None)]
    assert await offsets(9_000) == [(None, None), (None, None)]


@needs("search by highest timestamp")
async def test_the_highest_timestamp(admin: Admin, bootstrap_servers: str, topic: str):
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for timestamp_ms in (1_000, 3_000, 2_000):
            await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=timestamp_ms)
    partition = TopicPartition(topic, 0)
    listed = await admin.list_offsets({partition: OffsetSpec.MAX_TIMESTAMP})
    assert listed == {partition: ListedOffset(1, 3_000, 0)}


@needs("local offsets")
async def test_local_offsets(admin: Admin, bootstrap_servers: str, topic: str):
    await fill(bootstrap_servers, topic, [b"x"])
    partition = TopicPartition(topic, 0)
    local = await admin.list_offsets({partition: OffsetSpec.EARLIEST_LOCAL})
    assert local[partition].offset == 0
    tiered = await admin.list_offsets({partition: OffsetSpec.LATEST_TIERED})
    assert tiered[partition].offset is None


@needs("search by time")
async def test_an_offset_of_a_partition_that_does_not_exist(admin: Admin, topic: str):
    partition = TopicPartition(topic, 0)
    with pytest.raises(PartialFailure) as caught:
        await admin.list_offsets({partition: OffsetSpec.LATEST, (topic, 5): OffsetSpec.LATEST})
    assert list(caught.value.succeeded) == [partition]
    assert code_of(caught.value.failed[TopicPartition(topic, 5)]) == UNKNOWN_TOPIC_OR_PARTITION
    assert "has no partition 5" in str(caught.value)


@needs("changing topics")
async def test_topics_are_ready_after_the_wait(admin: Admin, bootstrap_servers: str):
    names = [f"waited-for-{number}" for number in range(3)]
    try:
        await admin.create_topics([NewTopic(name, 2, 1) for name in names])
        ready = await admin.wait_for_topics(names)
        assert [len(topic.partitions) for topic in ready.values()] == [2, 2, 2]
        with pytest.raises(PartialFailure) as caught:
            await admin.wait_for_topics([names[0], "no-such-topic"], timeout_ms=300)
        assert code_of(caught.value.failed["no-such-topic"]) == UNKNOWN_TOPIC_OR_PARTITION
    finally:
        await admin.delete_topics(names)
