"""Requests about groups, and their responses as descriptions and listings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from aiokafkawire.admin.items import ItemRequest, ItemResult
from aiokafkawire.admin.types.acl_operation import authorized_operations
from aiokafkawire.admin.types.groups import (
    ClassicGroupDescription,
    ConsumerGroupDescription,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
)
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import UnsupportedVersion
from aiokafkawire.types import NodeId, TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode, Request
from aiokafkawire.wire.consumer_protocol import decode_assignment, flatten_by_topic
from aiokafkawire.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    DescribedConsumerGroup,
)
from aiokafkawire.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from aiokafkawire.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from aiokafkawire.wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from aiokafkawire.wire.messages.share_group_describe import ShareGroupDescribeRequest
from aiokafkawire.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

__all__ = (
    "CONSUMER_PROTOCOL",
    "FIRST_WITH_AUTHORIZED_OPERATIONS",
    "FIRST_WITH_STATES",
    "FIRST_WITH_TYPES",
    "classic_description",
    "consumer_description",
    "delete_groups_request",
    "describe_request",
    "list_groups_request",
    "listing",
    "read_deleted_groups",
    "read_groups",
)

CONSUMER_PROTOCOL = "consumer"
"""Protocol type of groups of consumers."""

FIRST_WITH_STATES = 4
FIRST_WITH_TYPES = 5
FIRST_WITH_AUTHORIZED_OPERATIONS = 3
"""Versions of ListGroups and DescribeGroups."""

_UPGRADED = {0: False, 1: True}


def list_groups_request(
    states: Collection[GroupState], types: Collection[GroupType]
) -> VersionedRequest[ListGroupsResponse]:
    """Return the request; building it fails for a version that lacks a filter."""

    def build(version: int) -> ListGroupsRequest:
        request = ListGroupsRequest()
        if states:
            if version < FIRST_WITH_STATES:
                raise UnsupportedVersion("the filter by state needs Kafka 2.6 or later")
            request.states_filter = [state.value for state in states]
        if version >= FIRST_WITH_TYPES:
            request.types_filter = [each.value for each in types]
        elif types and GroupType.CLASSIC not in types:
            # All groups of older brokers are classic ones.
            names = ", ".join(sorted(types))
            raise UnsupportedVersion(f"groups of type {names} need Kafka 3.8 or later")
        return request

    return VersionedRequest(ApiKey.LIST_GROUPS, build)


def listing(group: ListedGroup) -> GroupListing:
    """Return a group of a ListGroups response."""
    return GroupListing(
        group_id=group.group_id,
        type=GroupType(group.group_type) if group.group_type else None,
        protocol=group.protocol_type,
        group_state=GroupState(group.group_state) if group.group_state else None,
    )


def read_groups(response: DescribeGroupsResponse) -> Iterator[ItemResult]:
    """Yield the results of DescribeGroups.

    Before v6, a broker returns the state Dead for a group that does not exist.
    """
    for group in response.groups:
        code = group.error_code
        if code == ErrorCode.NONE and group.group_state == GroupState.DEAD.value:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        yield ItemResult(group.group_id, group, code, group.error_message)


def describe_request(
    request_type: type[
        ConsumerGroupDescribeRequest | ShareGroupDescribeRequest | StreamsGroupDescribeRequest
    ],
    authorized_operations: bool,
) -> ItemRequest[str, Any]:
    """Return the request about groups of one type other than the classic one."""

    def build(group_ids: Sequence[str], version: int, timeout_ms: int) -> Request[Any]:
        return request_type(
            group_ids=list(group_ids), include_authorized_operations=authorized_operations
        )

    def read(response: Any) -> Iterator[ItemResult]:
        for group in response.groups:
            yield ItemResult(group.group_id, group, group.error_code, group.error_message)

    return ItemRequest(api_key=ApiKey(request_type.api_key), build=build, read=read)


def delete_groups_request(
    groups: Sequence[str], version: int, timeout_ms: int
) -> DeleteGroupsRequest:
    """Return the request that deletes groups of any type."""
    return DeleteGroupsRequest(groups_names=list(groups))


def read_deleted_groups(response: DeleteGroupsResponse) -> Iterator[ItemResult]:
    """Yield the results of DeleteGroups."""
    for result in response.results:
        yield ItemResult(result.group_id, code=result.error_code, message=result.error_message)


def classic_description(group: DescribedGroup, coordinator: NodeId) -> ClassicGroupDescription:
    """Return the description of a classic group of any protocol type.

    Raises:
        MalformedMessage: The assignment of a consumer cannot be decoded.
    """
    return ClassicGroupDescription(
        group_id=group.group_id,
        protocol=group.protocol_type,
        protocol_data=group.protocol_data,
        members=_classic_members(group),
        state=GroupState(group.group_state),
        coordinator_id=coordinator,
        authorized_operations=authorized_operations(group.authorized_operations),
    )


def consumer_description(
    group: DescribedGroup | DescribedConsumerGroup, coordinator: NodeId
) -> ConsumerGroupDescription:
    """Return the description of a consumer group of either type.

    Raises:
        MalformedMessage: The assignment of a member cannot be decoded.
    """
    operations = authorized_operations(group.authorized_operations)
    if isinstance(group, DescribedGroup):
        return ConsumerGroupDescription(
            group_id=group.group_id,
            is_simple_consumer_group=not group.protocol_type,
            members=_classic_members(group),
            partition_assignor=group.protocol_data,
            type=GroupType.CLASSIC,
            group_state=GroupState(group.group_state),
            coordinator_id=coordinator,
            authorized_operations=operations,
        )
    return ConsumerGroupDescription(
        group_id=group.group_id,
        is_simple_consumer_group=False,
        members=tuple(map(_consumer_member, group.members)),
        partition_assignor=group.assignor_name,
        type=GroupType.CONSUMER,
        group_state=GroupState(group.group_state),
        coordinator_id=coordinator,
        authorized_operations=operations,
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.assignment_epoch,
    )


def _classic_members(group: DescribedGroup) -> tuple[MemberDescription, ...]:
    of_consumers = group.protocol_type in {"", CONSUMER_PROTOCOL}

    def member(described: DescribedGroupMember) -> MemberDescription:
        partitions: list[TopicPartition] = []
        if of_consumers and described.member_assignment:
            partitions = flatten_by_topic(
                decode_assignment(described.member_assignment).assigned_partitions
            )
        return MemberDescription(
            member_id=described.member_id,
            group_instance_id=described.group_instance_id,
            rack_id=None,
            client_id=described.client_id,
            host=described.client_host,
            assignment=tuple(sorted(partitions)),
        )

    return tuple(map(member, group.members))


def _consumer_member(member: ConsumerGroupDescribeMember) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_partitions(member.assignment),
        target_assignment=_partitions(member.target_assignment),
        member_epoch=member.member_epoch,
        upgraded=_UPGRADED.get(member.member_type),
    )


def _partitions(assignment: ConsumerGroupDescribeAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
    )
