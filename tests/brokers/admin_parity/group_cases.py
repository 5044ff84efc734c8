"""Operations on groups of all types."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from aiokafkawire.admin import GroupType
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafkawire.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from aiokafkawire.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatKeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatSubtopology,
    StreamsGroupHeartbeatTopicInfo,
    StreamsGroupHeartbeatTopology,
)
from tests.brokers.admin_parity.case import Case, World
from tests.brokers.admin_parity.java_admin import JavaAdmin

__all__ = ("CASES",)


async def classic_group(world: World, name: str) -> None:
    """A classic group with a member, one with offsets alone, and one without members."""
    await world.topic(name, records=3)
    consumer = await world.member(f"{name}-classic", name)
    await consumer.commit({TopicPartition(name, 0): OffsetAndMetadata(2, "note")})
    await world.commit(f"{name}-simple", name)


async def static_members(world: World, name: str) -> None:
    await world.topic(name)
    await world.member(f"{name}-classic", name, group_instance_id="one")


async def offsets_alone(world: World, name: str) -> None:
    await world.topic(name, records=3)
    await world.commit(name, name)


async def consumer_group(world: World, name: str) -> None:
    await world.topic(name)
    await world.heartbeat(
        name,
        ConsumerGroupHeartbeatRequest(
            group_id=name,
            member_id=str(uuid4()),
            member_epoch=0,
            rack_id="rack",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[name],
            topic_partitions=[],
        ),
    )


async def share_group(world: World, name: str) -> None:
    await world.topic(name, records=3)
    await world.heartbeat(
        name,
        ShareGroupHeartbeatRequest(
            group_id=name,
            member_id=str(uuid4()),
            member_epoch=0,
            rack_id="rack",
            subscribed_topic_names=[name],
        ),
    )


async def share_offsets(world: World, name: str) -> None:
    await world.topic(name, records=3)
    await world.admin.alter_share_group_offsets(name, {(name, 0): 1})


async def streams_group(world: World, name: str) -> None:
    await world.topic(name)
    changelog = StreamsGroupHeartbeatTopicInfo(
        name=f"{name}-store-changelog",
        partitions=0,
        replication_factor=0,
        topic_configs=[StreamsGroupHeartbeatKeyValue(key="cleanup.policy", value="compact")],
    )
    subtopology = StreamsGroupHeartbeatSubtopology(
        subtopology_id="0",
        source_topics=[name],
        source_topic_regex=[],
        state_changelog_topics=[changelog],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    await world.heartbeat(
        name,
        StreamsGroupHeartbeatRequest(
            group_id=name,
            member_id=str(uuid4()),
            member_epoch=0,
            endpoint_information_epoch=0,
            rebalance_timeout_ms=60_000,
            topology=StreamsGroupHeartbeatTopology(epoch=1, subtopologies=[subtopology]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="process",
            client_tags=[StreamsGroupHeartbeatKeyValue(key="zone", value="a")],
        ),
    )


def offset(java: JavaAdmin, number: int) -> Any:
    return java.gateway.jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(number)


def partition_results(java: JavaAdmin, result: Any, *partitions: tuple[str, int]) -> dict[str, Any]:
    return {
        f"{topic}-{number}": result.partitionResult(java.partition(topic, number))
        for topic, number in partitions
    }


CASES = (
    Case(
        "list_groups",
        lambda java, name: java.admin.listGroups().all(),
        lambda world, name: world.admin.list_groups(),
        classic_group,
        shared=True,
    ),
    Case(
        "list_groups",
        lambda java, name: java.admin.listGroups(
            java.type("ListGroupsOptions")()
            .withTypes({java.type("common.GroupType").SHARE})
            .inGroupStates({java.type("common.GroupState").EMPTY})
        ).all(),
        lambda world, name: world.admin.list_groups(types=[GroupType.SHARE], states=["Empty"]),
        share_offsets,
        shared=True,
        title="filtered",
    ),
    Case(
        "list_consumer_groups",
        lambda java, name: java.admin.listConsumerGroups().all(),
        lambda world, name: world.admin.list_consumer_groups(),
        classic_group,
        shared=True,
    ),
    Case(
        "describe_consumer_groups",
        lambda java, name: java.admin.describeConsumerGroups(
            [f"{name}-classic", f"{name}-simple", f"{name}-missing"]
        ).describedGroups(),
        lambda world, name: world.admin.describe_consumer_groups(
            [f"{name}-classic", f"{name}-simple", f"{name}-missing"], return_errors=True
        ),
        classic_group,
        shared=True,
    ),
    Case(
        "describe_consumer_groups",
        lambda java, name: java.admin.describeConsumerGroups(
            [name], java.type("DescribeConsumerGroupsOptions")().includeAuthorizedOperations(True)
        ).describedGroups(),
        lambda world, name: world.admin.describe_consumer_groups(
            [name], include_authorized_operations=True
        ),
        consumer_group,
        shared=True,
        title="consumer type",
    ),
    Case(
        "describe_classic_groups",
        lambda java, name: java.admin.describeClassicGroups(
            [f"{name}-classic", f"{name}-simple", f"{name}-missing"]
        ).describedGroups(),
        lambda world, name: world.admin.describe_classic_groups(
            [f"{name}-classic", f"{name}-simple", f"{name}-missing"], return_errors=True
        ),
        classic_group,
        shared=True,
    ),
    Case(
        "delete_consumer_groups",
        lambda java, name: java.admin.deleteConsumerGroups(
            [f"{name}-classic", f"{name}-simple", f"{name}-missing"]
        ).deletedGroups(),
        lambda world, name: world.admin.delete_consumer_groups(
            [f"{name}-classic", f"{name}-simple", f"{name}-missing"], return_errors=True
        ),
        classic_group,
    ),
    Case(
        "remove_members_from_consumer_group",
        lambda java, name: {
            instance: java.admin.removeMembersFromConsumerGroup(
                f"{name}-classic",
                java.type("RemoveMembersFromConsumerGroupOptions")(
                    {java.type("MemberToRemove")(instance)}
                ),
            ).memberResult(java.type("MemberToRemove")(instance))
            for instance in ("one", "two")
        },
        lambda world, name: world.admin.remove_members_from_consumer_group(
            f"{name}-classic", ["one", "two"], return_errors=True
        ),
        static_members,
    ),
    Case(
        "list_consumer_group_offsets",
        lambda java, name: java.admin.listConsumerGroupOffsets(
            {
                group: java.type("ListConsumerGroupOffsetsSpec")()
                for group in (f"{name}-classic", f"{name}-simple", f"{name}-missing")
            }
        ).all(),
        lambda world, name: world.admin.list_consumer_group_offsets(
            [f"{name}-classic", f"{name}-simple", f"{name}-missing"]
        ),
        classic_group,
        shared=True,
    ),
    Case(
        "list_consumer_group_offsets",
        lambda java, name: java.admin.listConsumerGroupOffsets(
            {
                f"{name}-classic": java.type("ListConsumerGroupOffsetsSpec")().topicPartitions(
                    [java.partition(name, 0), java.partition(name, 1)]
                )
            }
        ).all(),
        lambda world, name: world.admin.list_consumer_group_offsets(
            {f"{name}-classic": [(name, 0), (name, 1)]}
        ),
        classic_group,
        shared=True,
        title="of partitions",
    ),
    Case(
        "alter_consumer_group_offsets",
        lambda java, name: partition_results(
            java,
            java.admin.alterConsumerGroupOffsets(
                name,
                {
                    java.partition(name, 0): offset(java, 2),
                    java.partition(name, 9): offset(java, 1),
                },
            ),
            (name, 0),
            (name, 9),
        ),
        lambda world, name: world.admin.alter_consumer_group_offsets(
            name, {(name, 0): 2, (name, 9): 1}, return_errors=True
        ),
        offsets_alone,
    ),
    Case(
        "alter_consumer_group_offsets",
        lambda java, name: partition_results(
            java,
            java.admin.alterConsumerGroupOffsets(
                f"{name}-classic", {java.partition(name, 0): offset(java, 2)}
            ),
            (name, 0),
        ),
        lambda world, name: world.admin.alter_consumer_group_offsets(
            f"{name}-classic", {(name, 0): 2}, return_errors=True
        ),
        classic_group,
        title="with members",
    ),
    Case(
        "delete_consumer_group_offsets",
        lambda java, name: partition_results(
            java,
            java.admin.deleteConsumerGroupOffsets(
                name, {java.partition(name, 0), java.partition(name, 1)}
            ),
            (name, 0),
            (name, 1),
        ),
        lambda world, name: world.admin.delete_consumer_group_offsets(
            name, [(name, 0), (name, 1)], return_errors=True
        ),
        offsets_alone,
    ),
    Case(
        "describe_share_groups",
        lambda java, name: java.admin.describeShareGroups(
            [name, f"{name}-missing"]
        ).describedGroups(),
        lambda world, name: world.admin.describe_share_groups(
            [name, f"{name}-missing"], return_errors=True
        ),
        share_group,
        shared=True,
    ),
    Case(
        "delete_share_groups",
        lambda java, name: java.admin.deleteShareGroups([name, f"{name}-missing"]).deletedGroups(),
        lambda world, name: world.admin.delete_share_groups(
            [name, f"{name}-missing"], return_errors=True
        ),
        share_offsets,
    ),
    Case(
        "list_share_group_offsets",
        lambda java, name: java.admin.listShareGroupOffsets(
            {name: java.type("ListShareGroupOffsetsSpec")()}
        ).all(),
        lambda world, name: world.admin.list_share_group_offsets([name]),
        share_offsets,
        shared=True,
    ),
    Case(
        "list_share_group_offsets",
        lambda java, name: java.admin.listShareGroupOffsets(
            {
                name: java.type("ListShareGroupOffsetsSpec")().topicPartitions(
                    [java.partition(name, 0), java.partition(name, 1)]
                )
            }
        ).all(),
        lambda world, name: world.admin.list_share_group_offsets({name: [(name, 0), (name, 1)]}),
        share_offsets,
        shared=True,
        title="of partitions",
    ),
    Case(
        "alter_share_group_offsets",
        lambda java, name: partition_results(
            java,
            java.admin.alterShareGroupOffsets(
                name, java.longs({java.partition(name, 0): 2, java.partition(name, 9): 0})
            ),
            (name, 0),
            (name, 9),
        ),
        lambda world, name: world.admin.alter_share_group_offsets(
            name, {(name, 0): 2, (name, 9): 0}, return_errors=True
        ),
        share_offsets,
    ),
    Case(
        "delete_share_group_offsets",
        lambda java, name: topic_results(
            java.admin.deleteShareGroupOffsets(name, {name, f"{name}-missing"}),
            name,
            f"{name}-missing",
        ),
        lambda world, name: world.admin.delete_share_group_offsets(
            name, [name, f"{name}-missing"], return_errors=True
        ),
        share_offsets,
    ),
    Case(
        "describe_streams_groups",
        lambda java, name: java.admin.describeStreamsGroups(
            [name, f"{name}-missing"]
        ).describedGroups(),
        lambda world, name: world.admin.describe_streams_groups(
            [name, f"{name}-missing"], return_errors=True
        ),
        streams_group,
        shared=True,
    ),
    Case(
        "delete_streams_groups",
        lambda java, name: java.admin.deleteStreamsGroups(
            [name, f"{name}-missing"]
        ).deletedGroups(),
        lambda world, name: world.admin.delete_streams_groups(
            [name, f"{name}-missing"], return_errors=True
        ),
        streams_group,
    ),
    Case(
        "list_streams_group_offsets",
        lambda java, name: java.admin.listStreamsGroupOffsets(
            {name: java.type("ListStreamsGroupOffsetsSpec")()}
        ).all(),
        lambda world, name: world.admin.list_streams_group_offsets([name]),
        offsets_alone,
        shared=True,
    ),
    Case(
        "alter_streams_group_offsets",
        lambda java, name: partition_results(
            java,
            java.admin.alterStreamsGroupOffsets(name, {java.partition(name, 0): offset(java, 2)}),
            (name, 0),
        ),
        lambda world, name: world.admin.alter_streams_group_offsets(
            name, {(name, 0): 2}, return_errors=True
        ),
        streams_group,
    ),
    Case(
        "delete_streams_group_offsets",
        lambda java, name: partition_results(
            java,
            java.admin.deleteStreamsGroupOffsets(name, {java.partition(name, 0)}),
            (name, 0),
        ),
        lambda world, name: world.admin.delete_streams_group_offsets(
            name, [(name, 0)], return_errors=True
        ),
        offsets_alone,
    ),
)


def topic_results(result: Any, *topics: str) -> dict[str, Any]:
    return {topic: result.topicResult(topic) for topic in topics}
