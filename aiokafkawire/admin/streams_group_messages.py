"""StreamsGroupDescribe responses as descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aiokafkawire.admin.types.acl_operation import authorized_operations
from aiokafkawire.admin.types.groups import GroupState
from aiokafkawire.admin.types.streams_groups import (
    StreamsEndpoint,
    StreamsGroupDescription,
    StreamsGroupMemberAssignment,
    StreamsGroupMemberDescription,
    StreamsGroupSubtopologyDescription,
    StreamsTaskIds,
    StreamsTaskOffset,
    StreamsTopicInfo,
)
from aiokafkawire.types import NodeId
from aiokafkawire.wire.messages.streams_group_describe import (
    DescribedStreamsGroup,
    StreamsGroupDescribeAssignment,
    StreamsGroupDescribeKeyValue,
    StreamsGroupDescribeMember,
    StreamsGroupDescribeSubtopology,
    StreamsGroupDescribeTaskIds,
    StreamsGroupDescribeTaskOffset,
    StreamsGroupDescribeTopicInfo,
)

__all__ = ("streams_description",)


def streams_description(
    group: DescribedStreamsGroup, coordinator: NodeId
) -> StreamsGroupDescription:
    """Return the description of a streams group."""
    topology = group.topology
    subtopologies: Sequence[StreamsGroupDescribeSubtopology] = ()
    if topology is not None and topology.subtopologies is not None:
        subtopologies = topology.subtopologies
    return StreamsGroupDescription(
        group_id=group.group_id,
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.assignment_epoch,
        topology_epoch=-1 if topology is None else topology.epoch,
        subtopologies=tuple(map(_subtopology, subtopologies)),
        members=tuple(map(_member, group.members)),
        group_state=GroupState(group.group_state),
        coordinator_id=coordinator,
        authorized_operations=authorized_operations(group.authorized_operations),
    )


def _subtopology(part: StreamsGroupDescribeSubtopology) -> StreamsGroupSubtopologyDescription:
    return StreamsGroupSubtopologyDescription(
        subtopology_id=part.subtopology_id,
        source_topics=tuple(part.source_topics),
        repartition_sink_topics=tuple(part.repartition_sink_topics),
        state_changelog_topics=_topics(part.state_changelog_topics),
        repartition_source_topics=_topics(part.repartition_source_topics),
    )


def _topics(topics: Iterable[StreamsGroupDescribeTopicInfo]) -> dict[str, StreamsTopicInfo]:
    return {
        topic.name: StreamsTopicInfo(
            topic.partitions, topic.replication_factor, _mapping(topic.topic_configs)
        )
        for topic in topics
    }


def _mapping(pairs: Iterable[StreamsGroupDescribeKeyValue]) -> dict[str, str]:
    return {pair.key: pair.value for pair in pairs}


def _member(member: StreamsGroupDescribeMember) -> StreamsGroupMemberDescription:
    endpoint = member.user_endpoint
    return StreamsGroupMemberDescription(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else StreamsEndpoint(endpoint.host, endpoint.port),
        client_tags=_mapping(member.client_tags),
        task_offsets=_task_offsets(member.task_offsets),
        task_end_offsets=_task_offsets(member.task_end_offsets),
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
        is_classic=member.is_classic,
    )


def _task_offsets(
    offsets: Iterable[StreamsGroupDescribeTaskOffset],
) -> tuple[StreamsTaskOffset, ...]:
    return tuple(
        StreamsTaskOffset(each.subtopology_id, each.partition, each.offset) for each in offsets
    )


def _assignment(assignment: StreamsGroupDescribeAssignment) -> StreamsGroupMemberAssignment:
    return StreamsGroupMemberAssignment(
        active_tasks=_tasks(assignment.active_tasks),
        standby_tasks=_tasks(assignment.standby_tasks),
        warmup_tasks=_tasks(assignment.warmup_tasks),
    )


def _tasks(tasks: Iterable[StreamsGroupDescribeTaskIds]) -> tuple[StreamsTaskIds, ...]:
    return tuple(StreamsTaskIds(each.subtopology_id, tuple(each.partitions)) for each in tasks)
