"""Results of the operations on streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafkawire.admin.types.acl_operation import AclOperation
from aiokafkawire.admin.types.groups import GroupState
from aiokafkawire.types import NodeId

__all__ = (
    "StreamsEndpoint",
    "StreamsGroupDescription",
    "StreamsGroupMemberAssignment",
    "StreamsGroupMemberDescription",
    "StreamsGroupSubtopologyDescription",
    "StreamsTaskIds",
    "StreamsTaskOffset",
    "StreamsTopicInfo",
)


@dataclass(frozen=True, slots=True)
class StreamsTopicInfo:
    """An internal topic of a subtopology; 0 partitions or replicas are the brokers' default."""

    partitions: int
    replication_factor: int
    topic_configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StreamsGroupSubtopologyDescription:
    """A part of a topology; each task runs one partition of it.

    Attributes:
        subtopology_id: Id of the subtopology.
        source_topics: Topics that it reads.
        repartition_sink_topics: Repartition topics that it writes.
        state_changelog_topics: Changelog topics of its state stores, by name.
        repartition_source_topics: Repartition topics that it reads, by name.
    """

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: Mapping[str, StreamsTopicInfo]
    repartition_source_topics: Mapping[str, StreamsTopicInfo]


@dataclass(frozen=True, slots=True)
class StreamsTaskIds:
    """Tasks of a subtopology, by partition."""

    subtopology_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StreamsTaskOffset:
    """Offset of a task in its changelog, cumulative over its state stores."""

    subtopology_id: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class StreamsEndpoint:
    """Address for interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsGroupMemberAssignment:
    """Tasks of a member."""

    active_tasks: tuple[StreamsTaskIds, ...]
    standby_tasks: tuple[StreamsTaskIds, ...]
    warmup_tasks: tuple[StreamsTaskIds, ...]


@dataclass(frozen=True, slots=True)
class StreamsGroupMemberDescription:
    """A member of a streams group.

    Attributes:
        member_id: Id of the member.
        member_epoch: Epoch of the member.
        instance_id: Id of a static member; None for a dynamic one.
        rack_id: Rack of the member; None if unknown.
        client_id: Client id that the member sends.
        client_host: Address from which the member connects.
        topology_epoch: Epoch of the member's topology.
        process_id: Id of the process; members of one process share its state.
        user_endpoint: Address for interactive queries; None without one.
        client_tags: Tags by which standby tasks are spread.
        task_offsets: Changelog offsets of the member's tasks.
        task_end_offsets: End offsets of these changelogs.
        assignment: Tasks that the member has.
        target_assignment: Tasks that the member will have after the reconciliation.
        is_classic: True if the member uses the classic protocol.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: StreamsEndpoint | None
    client_tags: Mapping[str, str]
    task_offsets: tuple[StreamsTaskOffset, ...]
    task_end_offsets: tuple[StreamsTaskOffset, ...]
    assignment: StreamsGroupMemberAssignment
    target_assignment: StreamsGroupMemberAssignment
    is_classic: bool


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    """A streams group.

    Attributes:
        group_id: Name of the group.
        group_epoch: Epoch of the group.
        target_assignment_epoch: Epoch of the target assignment.
        topology_epoch: Epoch of the topology.
        subtopologies: Parts of the topology.
        members: The members, in the broker's order.
        group_state: State of the group.
        coordinator_id: Node id of the coordinator.
        authorized_operations: Operations of the principal on the group; None unless asked for.
    """

    group_id: str
    group_epoch: int
    target_assignment_epoch: int
    topology_epoch: int
    subtopologies: tuple[StreamsGroupSubtopologyDescription, ...]
    members: tuple[StreamsGroupMemberDescription, ...]
    group_state: GroupState
    coordinator_id: NodeId
    authorized_operations: frozenset[AclOperation] | None = None
