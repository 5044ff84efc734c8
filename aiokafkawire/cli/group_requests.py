"""Requests that list, describe and change groups without joining them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafkawire.cli.arguments import OffsetArgument, OffsetKind
from aiokafkawire.cli.client_session import ClientSession, response_error
from aiokafkawire.cli.error_text import CommandFailed
from aiokafkawire.cli.tables import pluralize
from aiokafkawire.cluster import ToCoordinator
from aiokafkawire.cluster.all_nodes import request_all_nodes
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.consumer.list_offsets import OffsetLister
from aiokafkawire.errors import KafkaError, MalformedMessage, ProtocolError
from aiokafkawire.group.offsets import CommitIdentity, offset_commit_request
from aiokafkawire.types import OffsetAndMetadata, TopicPartition, partitions_by_topic
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.consumer_protocol import decode_assignment, flatten_by_topic
from aiokafkawire.wire.messages.delete_groups import DeleteGroupsRequest
from aiokafkawire.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
)
from aiokafkawire.wire.messages.list_groups import ListedGroup, ListGroupsRequest
from aiokafkawire.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokafkawire.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

__all__ = (
    "GroupDescription",
    "MemberDescription",
    "PartitionLag",
    "delete_groups",
    "delete_offsets",
    "describe_group",
    "list_groups",
    "reset_offsets",
    "resolve_offsets",
)

READ_UNCOMMITTED = 0
EARLIEST, LATEST = -2, -1
"""Special timestamps of ListOffsets: the log start offset and the log end offset."""

FIRST_AT_COORDINATOR = 1
FIRST_WITH_GROUPS = 8
FIRST_FOR_ALL_TOPICS = 2
LAST_WITH_TOPIC_NAMES = 9
"""Later versions of OffsetFetch and OffsetCommit name topics by topic id only."""

IDLE_STATES = frozenset({"Empty", "Dead"})


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group; `partitions` is its assignment, empty during a rebalance."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Committed offset and log end offset of a partition, None if unknown."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    member_id: str | None = None

    @property
    def lag(self) -> int | None:
        """Offsets between the committed offset and the log end, None if either is unknown."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Description of a group by its coordinator."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...] = ()
    offsets: tuple[PartitionLag, ...] = field(default=())

    @property
    def lag(self) -> int:
        """Total lag of all partitions whose lag is known."""
        return sum(each.lag or 0 for each in self.offsets)


async def list_groups(session: ClientSession) -> tuple[list[ListedGroup], list[KafkaError]]:
    """Return the groups of all brokers sorted by name, and the errors of brokers that failed."""
    responses = await request_all_nodes(
        session.cluster, ListGroupsRequest(), deadline=session.deadline
    )
    groups: dict[str, ListedGroup] = {}
    failed: list[KafkaError] = []
    for node_id, response in responses.items():
        if isinstance(response, KafkaError):
            failed.append(response)
            continue
        error = response_error(response.error_code, api="ListGroups", broker=str(node_id))
        if error is not None:
            failed.append(error)
        groups.update({group.group_id: group for group in response.groups})
    return [groups[name] for name in sorted(groups)], failed


async def describe_group(session: ClientSession, group_id: str) -> GroupDescription:
    """Return a group with its members and its lag per partition.

    The session's metadata must cover all topics. Raises `CommandFailed` for a group that does not
    exist.
    """
    description, node_id = await _describe(session, group_id)
    members = tuple(map(_to_member, description.members))
    committed = await _fetch_committed(session, group_id)
    if description.group_state == "Dead" and not committed:
        raise _group_not_found(group_id)
    owners = {tp: member.member_id for member in members for tp in member.partitions}
    partitions = sorted({*committed, *owners})
    ends = await resolve_offsets(session, partitions, OffsetArgument(OffsetKind.END))
    return GroupDescription(
        group_id=group_id,
        state=description.group_state,
        protocol_type=description.protocol_type,
        protocol=description.protocol_data,
        coordinator=node_id,
        members=members,
        offsets=tuple(
            PartitionLag(tp, committed.get(tp), ends.get(tp), owners.get(tp)) for tp in partitions
        ),
    )


async def delete_groups(session: ClientSession, group_ids: Iterable[str]) -> list[KafkaError]:
    """Delete empty groups and their offsets; return the errors of groups that remain."""
    errors: list[KafkaError] = []
    for group_id in dict.fromkeys(group_ids):
        response = await session.request(
            DeleteGroupsRequest(groups_names=[group_id]), ToCoordinator(group_id)
        )
        for result in response.results:
            errors += _group_errors(group_id, result.error_code, "DeleteGroups")
    return errors


async def delete_offsets(
    session: ClientSession, group_id: str, partitions: Sequence[TopicPartition]
) -> list[KafkaError]:
    """Delete committed offsets of a group for some partitions; return the errors."""
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=tp.partition) for tp in tps
                ],
            )
            for name, tps in partitions_by_topic(partitions).items()
        ],
    )
    response = await session.request(request, ToCoordinator(group_id))
    errors = _group_errors(group_id, response.error_code, "OffsetDelete")
    for topic in response.topics:
        # An error applies to all partitions of a topic: report it once.
        codes = dict.fromkeys(partition.error_code for partition in topic.partitions)
        for code in codes:
            errors += _group_errors(group_id, code, "OffsetDelete", topic=topic.name)
    return errors


async def reset_offsets(
    session: ClientSession, group_id: str, offsets: Mapping[TopicPartition, int]
) -> list[KafkaError]:
    """Commit offsets for a group without members; return the errors.

    Raises `CommandFailed` while the group has members: they would not see the new offsets.
    """
    description, _ = await _describe(session, group_id, may_be_missing=True)
    if description.group_state not in IDLE_STATES:
        raise CommandFailed(
            f"group {group_id!r} is {description.group_state}"
            f" with {pluralize(len(description.members), 'member')},"
            " which keep their current positions: stop the group first"
        )
    wanted = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
    message = offset_commit_request(group_id, CommitIdentity(), wanted, {})
    response = await session.cluster.request(
        message,
        to=ToCoordinator(group_id),
        deadline=session.deadline,
        min_version=FIRST_AT_COORDINATOR,
        max_version=LAST_WITH_TOPIC_NAMES,
    )
    errors: list[KafkaError] = []
    for topic in response.topics:
        for partition in topic.partitions:
            errors += _group_errors(
                group_id,
                partition.error_code,
                "OffsetCommit",
                topic=topic.name,
                partition=partition.partition_index,
            )
    return errors


async def resolve_offsets(
    session: ClientSession, partitions: Sequence[TopicPartition], target: OffsetArgument
) -> dict[TopicPartition, int]:
    """Resolve an offset argument in each partition with a leader, within the bounds of its log."""
    metadata = session.cluster.metadata
    led = [tp for tp in partitions if metadata.leader(tp) is not None]
    if not led:
        return {}
    lister = OffsetLister(session.cluster, session.runtime, READ_UNCOMMITTED)

    async def list_offsets(timestamp: int) -> dict[TopicPartition, int]:
        offsets = await lister.list_all(dict.fromkeys(led, timestamp), session.deadline)
        return {tp: offset.offset for tp, offset in offsets.items() if offset is not None}

    ends = await list_offsets(LATEST)
    if target == OffsetArgument(OffsetKind.END):
        return ends
    log_starts = await list_offsets(EARLIEST)
    match target.kind:
        case OffsetKind.BEGINNING:
            return log_starts
        case OffsetKind.END:
            return {tp: max(log_starts[tp], ends[tp] - target.number) for tp in led}
        case OffsetKind.FROM_TIME:
            return ends | await list_offsets(target.number)
        case _:
            return {tp: min(max(log_starts[tp], target.number), ends[tp]) for tp in led}


async def _describe(
    session: ClientSession, group_id: str, *, may_be_missing: bool = False
) -> tuple[DescribedGroup, int]:
    """Return the coordinator's description of a group and the coordinator's node id."""
    node_id = await session.cluster.find_coordinator(group_id, deadline=session.deadline)
    response = await session.request(
        DescribeGroupsRequest(groups=[group_id]), ToCoordinator(group_id)
    )
    description = next((group for group in response.groups if group.group_id == group_id), None)
    if description is None:
        raise ProtocolError(
            f"the response does not contain group {group_id!r}", api="DescribeGroups"
        )
    if description.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        if may_be_missing:
            description.group_state = "Dead"
            return description, node_id
        raise _group_not_found(group_id)
    for error in _group_errors(
        group_id, description.error_code, "DescribeGroups", description.error_message
    ):
        error.broker = str(node_id)
        raise error
    return description, node_id


async def _fetch_committed(session: ClientSession, group_id: str) -> dict[TopicPartition, int]:
    """Fetch all committed offsets of a group."""

    def build(version: int) -> OffsetFetchRequest:
        if version < FIRST_WITH_GROUPS:
            return OffsetFetchRequest(group_id=group_id, topics=None)
        group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        return OffsetFetchRequest(groups=[group])

    request: VersionedRequest[OffsetFetchResponse] = VersionedRequest(ApiKey.OFFSET_FETCH, build)
    response = await session.cluster.request(
        request,
        to=ToCoordinator(group_id),
        deadline=session.deadline,
        min_version=FIRST_FOR_ALL_TOPICS,
        max_version=LAST_WITH_TOPIC_NAMES,
    )
    topics: Sequence[Any] = response.topics
    code = response.error_code
    for group in response.groups:
        topics, code = group.topics, group.error_code
    for error in _group_errors(group_id, code, "OffsetFetch"):
        raise error
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE and partition.committed_offset >= 0
    }


def _to_member(member: DescribedGroupMember) -> MemberDescription:
    try:
        partitions = flatten_by_topic(
            decode_assignment(member.member_assignment).assigned_partitions
        )
    except MalformedMessage:
        # The protocol type is not "consumer": the assignment does not hold partitions.
        partitions = []
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        tuple(sorted(partitions)),
    )


def _group_errors(
    group_id: str, code: int, api: str, message: str | None = None, **context: Any
) -> list[KafkaError]:
    """Return the error for a code, with the group in its reason; an empty list for code 0."""
    error = response_error(code, message, api=api, **context)
    if error is None:
        return []
    error.reason = f"group {group_id!r}: {error.reason}"
    return [error]


def _group_not_found(group_id: str) -> CommandFailed:
    return CommandFailed(
        f"group {group_id!r} does not exist; `aiokafkawire groups list` lists the groups"
    )
