"""Operations on topics, their partitions, records and offsets."""

from __future__ import annotations

from typing import Any

import anyio

from aiokafkawire.admin import ElectionType, NewPartitions, NewTopic, OffsetSpec
from aiokafkawire.types import TopicPartition
from tests.brokers.admin_parity.case import Case, World
from tests.brokers.admin_parity.comparable import Failure, Struct
from tests.brokers.admin_parity.java_admin import JavaAdmin

__all__ = ("CASES",)

MINUS_ONE_IS_NONE = {"offset", "timestamp_ms"}
CREATED_CONFIG = ("name", "value", "source", "is_read_only", "is_sensitive")
FUTURE_MS = 4_102_444_800_000


async def a_topic(world: World, name: str) -> None:
    await world.topic(name, records=3)


def java_topics(java: JavaAdmin, name: str) -> list[Any]:
    new = java.type("NewTopic")
    return [
        new(name, 2, 3).configs({"cleanup.policy": "compact"}),
        new(f"{name}-large", 1, 9),
        new(f"{name} invalid", 1, 1),
        new(f"{name}-config", 1, 1).configs({"retention.ms": "soon"}),
    ]


def our_topics(name: str) -> list[NewTopic]:
    return [
        NewTopic(name, 2, 3, configs={"cleanup.policy": "compact"}),
        NewTopic(f"{name}-large", 1, 9),
        NewTopic(f"{name} invalid", 1, 1),
        NewTopic(f"{name}-config", 1, 1, configs={"retention.ms": "soon"}),
    ]


def java_created(java: JavaAdmin, name: str) -> dict[str, Any]:
    result = java.admin.createTopics(java_topics(java, name))
    created: dict[str, Any] = {}
    for topic, future in result.values().items():
        outcome = java.call(future)
        if not isinstance(outcome, Failure):
            configs = java.call(result.config(topic))
            outcome = Struct(
                name=topic,
                num_partitions=java.call(result.numPartitions(topic)),
                replication_factor=java.call(result.replicationFactor(topic)),
                configs={
                    key: Struct({field: entry[field] for field in CREATED_CONFIG})
                    for key, entry in configs.items()
                },
            )
        created[topic] = outcome
    return created


def partitions_by_number(described: dict[str, Any]) -> dict[str, Any]:
    """Give the partitions of descriptions the shape of ours."""
    for topic in described.values():
        if isinstance(topic, Struct):
            topic["partitions"] = {each["partition"]: each for each in topic["partitions"]}
    return described


def without_minus_one(listed: dict[str, Any]) -> dict[str, Any]:
    """Use None where Java has -1."""
    for each in listed.values():
        if isinstance(each, Struct):
            for field in MINUS_ONE_IS_NONE:
                each[field] = None if each[field] == -1 else each[field]
    return listed


def java_offsets(java: JavaAdmin, name: str, spec: Any, *partitions: int) -> dict[str, Any]:
    wanted = {number: java.partition(name, number) for number in partitions}
    result = java.admin.listOffsets(dict.fromkeys(wanted.values(), spec))
    return {f"{name}-{number}": result.partitionResult(tp) for number, tp in wanted.items()}


def offset_case(title: str, java_spec: str, spec: OffsetSpec | int) -> Case:
    """Compare the offsets of a spec; `java_spec` is the method of Java's `OffsetSpec`."""

    def java_call(java: JavaAdmin, name: str) -> Any:
        method = getattr(java.type("OffsetSpec"), java_spec)
        return java_offsets(
            java, name, method(spec) if java_spec == "forTimestamp" else method(), 0, 1
        )

    return Case(
        "list_offsets",
        java_call,
        lambda world, name: world.admin.list_offsets(
            {(name, 0): spec, (name, 1): spec}, return_errors=True
        ),
        a_topic,
        shared=True,
        adapt=without_minus_one,
        title=title,
    )


async def until_reassigned(world: World, name: str) -> None:
    with anyio.fail_after(60):
        while await world.admin.list_partition_reassignments([(name, 0)]):
            await world.settle()


CASES = (
    Case(
        "create_topics",
        java_created,
        lambda world, name: world.admin.create_topics(our_topics(name), return_errors=True),
        ignored=frozenset({"topic_id"}),
    ),
    Case(
        "create_topics",
        lambda java, name: java.admin.createTopics(java_topics(java, name)[:1]).values(),
        lambda world, name: world.admin.create_topics(our_topics(name)[:1], return_errors=True),
        a_topic,
        title="that exists",
    ),
    Case(
        "delete_topics",
        lambda java, name: java.admin.deleteTopics([name, f"{name}-missing"]).topicNameValues(),
        lambda world, name: world.admin.delete_topics(
            [name, f"{name}-missing"], return_errors=True
        ),
        a_topic,
    ),
    Case(
        "list_topics",
        lambda java, name: java.admin.listTopics(
            java.type("ListTopicsOptions")().listInternal(True)
        ).namesToListings(),
        lambda world, name: world.admin.list_topics(include_internal=True),
        a_topic,
        shared=True,
    ),
    Case(
        "describe_topics",
        lambda java, name: java.admin.describeTopics(
            [name, f"{name}-missing"],
            java.type("DescribeTopicsOptions")().includeAuthorizedOperations(True),
        ).topicNameValues(),
        lambda world, name: world.admin.describe_topics(
            [name, f"{name}-missing"], include_authorized_operations=True, return_errors=True
        ),
        a_topic,
        shared=True,
        adapt=partitions_by_number,
    ),
    Case(
        "create_partitions",
        lambda java, name: java.admin.createPartitions(
            {
                name: java.type("NewPartitions").increaseTo(3),
                f"{name}-missing": java.type("NewPartitions").increaseTo(3),
            }
        ).values(),
        lambda world, name: world.admin.create_partitions(
            {name: NewPartitions(3), f"{name}-missing": NewPartitions(3)}, return_errors=True
        ),
        a_topic,
    ),
    Case(
        "create_partitions",
        lambda java, name: java.admin.createPartitions(
            {name: java.type("NewPartitions").increaseTo(1)}
        ).values(),
        lambda world, name: world.admin.create_partitions(
            {name: NewPartitions(1)}, return_errors=True
        ),
        a_topic,
        title="fewer",
    ),
    Case(
        "delete_records",
        lambda java, name: java.admin.deleteRecords(
            {
                java.partition(name, 0): java.records_to_delete(2),
                java.partition(name, 1): java.records_to_delete(99),
            }
        ).lowWatermarks(),
        lambda world, name: world.admin.delete_records(
            {TopicPartition(name, 0): 2, TopicPartition(name, 1): 99}, return_errors=True
        ),
        a_topic,
    ),
    Case(
        "elect_leaders",
        lambda java, name: java.admin.electLeaders(
            java.type("common.ElectionType").PREFERRED,
            {java.partition(name, 0), java.partition(name, 9)},
        ).partitions(),
        lambda world, name: world.admin.elect_leaders(
            ElectionType.PREFERRED, [(name, 0), (name, 9)], return_errors=True
        ),
        a_topic,
    ),
    Case(
        "alter_partition_reassignments",
        lambda java, name: java.admin.alterPartitionReassignments(
            {
                java.partition(name, 0): java.some(java.type("NewPartitionReassignment")([1, 2])),
                java.partition(name, 1): java.some(java.type("NewPartitionReassignment")([1, 99])),
            }
        ).values(),
        lambda world, name: world.admin.alter_partition_reassignments(
            {TopicPartition(name, 0): [1, 2], TopicPartition(name, 1): [1, 99]},
            return_errors=True,
        ),
        a_topic,
    ),
    Case(
        "alter_partition_reassignments",
        lambda java, name: java.admin.alterPartitionReassignments(
            {java.partition(name, 0): java.gateway.jvm.java.util.Optional.empty()}
        ).values(),
        lambda world, name: world.admin.alter_partition_reassignments(
            {TopicPartition(name, 0): None}, return_errors=True
        ),
        a_topic,
        title="cancelled",
    ),
    Case(
        "list_partition_reassignments",
        lambda java, name: java.admin.listPartitionReassignments().reassignments(),
        lambda world, name: world.admin.list_partition_reassignments(),
        until_reassigned,
        shared=True,
    ),
    offset_case("latest", "latest", OffsetSpec.LATEST),
    offset_case("earliest", "earliest", OffsetSpec.EARLIEST),
    offset_case("max timestamp", "maxTimestamp", OffsetSpec.MAX_TIMESTAMP),
    offset_case("earliest local", "earliestLocal", OffsetSpec.EARLIEST_LOCAL),
    offset_case("latest tiered", "latestTiered", OffsetSpec.LATEST_TIERED),
    offset_case("of a time", "forTimestamp", 0),
    offset_case("of a time to come", "forTimestamp", FUTURE_MS),
)
