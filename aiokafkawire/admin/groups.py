"""Operations on consumer groups and classic groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from aiokafkawire.admin.arguments import as_list, parse_names
from aiokafkawire.admin.group_members import leave_group
from aiokafkawire.admin.group_messages import (
    CONSUMER_PROTOCOL,
    FIRST_WITH_AUTHORIZED_OPERATIONS,
    classic_description,
    consumer_description,
    delete_groups_request,
    describe_request,
    list_groups_request,
    listing,
    read_deleted_groups,
    read_groups,
)
from aiokafkawire.admin.items import ItemRequest, finish_items, raise_broker_failures
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.types.groups import (
    ClassicGroupDescription,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    GroupListing,
    GroupState,
    GroupType,
)
from aiokafkawire.errors import BrokerError, KafkaError, UnsupportedVersion
from aiokafkawire.types import NodeId
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from aiokafkawire.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest

__all__ = ("GroupOperations", "delete_groups", "describe_groups", "has_members", "list_groups")

D = TypeVar("D")
W = TypeVar("W")

_CLASSIC_CODES = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""Codes of ConsumerGroupDescribe for a group that may be a classic one."""


class GroupOperations(Operations):
    """Operations on consumer groups and classic groups."""

    async def list_groups(
        self,
        *,
        types: Collection[GroupType | str] = (),
        states: Collection[GroupState | str] = (),
        protocol_types: Collection[str] = (),
        timeout_ms: int | None = None,
    ) -> list[GroupListing]:
        """List the groups of all brokers.

        Args:
            types: Types of the groups; empty for all (other types than classic and consumer:
                Kafka 3.8+).
            states: States of the groups; empty for all (Kafka 2.6+).
            protocol_types: Protocol types such as "consumer" or "connect"; empty for all. Groups
                that only have committed offsets have "".
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The groups in order of their names.

        Raises:
            PartialFailure: Some brokers failed, which are in `failed` by node id; `succeeded` has
                the groups of the others by name.
            ValueError: A type or state does not exist.
            UnsupportedVersion: The brokers are too old for a filter.
            KafkaError: No broker could be reached.
        """
        return await list_groups(self._requester(timeout_ms), types, states, protocol_types)

    async def list_consumer_groups(
        self,
        *,
        types: Collection[GroupType | str] = (),
        states: Collection[GroupState | str] = (),
        timeout_ms: int | None = None,
    ) -> list[ConsumerGroupListing]:
        """List the groups of consumers, of the classic and the consumer type.

        Groups that only have committed offsets are among them.

        Args:
            types: Types of the groups; empty for both.
            states: States of the groups; empty for all (Kafka 2.6+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The groups in order of their names.

        Raises:
            PartialFailure: Some brokers failed, as with `list_groups`.
            ValueError: A type or state does not exist.
            UnsupportedVersion: The brokers are too old for a filter.
            KafkaError: No broker could be reached.
        """
        requester = self._requester(timeout_ms)
        groups = await list_groups(requester, types, states, ("", CONSUMER_PROTOCOL))
        return [
            ConsumerGroupListing(group.group_id, not group.protocol, group.group_state, group.type)
            for group in groups
        ]

    @overload
    async def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, ConsumerGroupDescription]: ...

    @overload
    async def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, ConsumerGroupDescription | KafkaError]: ...

    async def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, ConsumerGroupDescription | KafkaError]:
        """Describe consumer groups of the classic and the consumer type (KIP-848).

        Args:
            group_ids: Names of the groups.
            include_authorized_operations: Ask for the principal's operations (Kafka 2.3+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The descriptions by name.

        Raises:
            PartialFailure: Some groups do not exist (GROUP_ID_NOT_FOUND), are of another type or
                protocol (INCONSISTENT_GROUP_PROTOCOL), or may not be described.
            KafkaError: No coordinator could be reached.
        """
        requester = self._requester(timeout_ms)
        results = await _describe_consumer_groups(
            requester, as_list("group_ids", group_ids), include_authorized_operations
        )
        return finish_items(results, "groups", return_errors=return_errors)

    @overload
    async def describe_classic_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, ClassicGroupDescription]: ...

    @overload
    async def describe_classic_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, ClassicGroupDescription | KafkaError]: ...

    async def describe_classic_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, ClassicGroupDescription | KafkaError]:
        """Describe groups of the classic type, of any protocol type.

        Args:
            group_ids: Names of the groups.
            include_authorized_operations: Ask for the principal's operations (Kafka 2.3+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The descriptions by name.

        Raises:
            PartialFailure: Some groups do not exist (GROUP_ID_NOT_FOUND), are of another type, or
                may not be described.
            KafkaError: No coordinator could be reached.
        """
        requester = self._requester(timeout_ms)
        request = _describe_groups_request(include_authorized_operations)
        return await describe_groups(
            requester, request, group_ids, classic_description, return_errors
        )

    async def delete_consumer_groups(
        self,
        group_ids: Iterable[str],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[str, KafkaError | None]:
        """Delete consumer groups without members, with their committed offsets (Kafka 1.1+).

        Args:
            group_ids: Names of the groups.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each deleted group.

        Raises:
            PartialFailure: Some groups have members (NON_EMPTY_GROUP), do not exist, or may not be
                deleted.
            UnsupportedVersion: Brokers before 1.1 cannot delete groups.
            KafkaError: No coordinator could be reached.
        """
        return await delete_groups(self._requester(timeout_ms), group_ids, return_errors)

    async def remove_members_from_consumer_group(
        self,
        group_id: str,
        group_instance_ids: Iterable[str] | None = None,
        *,
        reason: str = "",
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[str, KafkaError | None]:
        """Remove members from a group, such as static members that do not return.

        Args:
            group_id: Name of the group.
            group_instance_ids: Static members to remove (Kafka 2.4+). By default all members,
                static and dynamic ones.
            reason: Reason for the brokers' logs (Kafka 3.2+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each removed member, by group instance id; dynamic ones by member id.

        Raises:
            PartialFailure: Some members are not in the group (UNKNOWN_MEMBER_ID).
            UnsupportedVersion: Brokers before 2.4 have no static members.
            KafkaError: The group does not exist, or the coordinator could not be reached.
        """
        requester = self._requester(timeout_ms)
        members = (
            None
            if group_instance_ids is None
            else dict.fromkeys(as_list("group_instance_ids", group_instance_ids), "")
        )
        if members is None:
            found = await _describe_consumer_groups(requester, [group_id], False)
            description = found[group_id]
            if isinstance(description, KafkaError):
                raise description
            members = {
                each.group_instance_id or each.member_id: each.member_id
                if each.group_instance_id is None
                else ""
                for each in description.members
            }
        results = await leave_group(requester, group_id, members, reason)
        return finish_items(results, "members", return_errors=return_errors)


async def list_groups(
    requester: Requester,
    types: Collection[GroupType | str] = (),
    states: Collection[GroupState | str] = (),
    protocol_types: Collection[str] = (),
) -> list[GroupListing]:
    """List groups; see `GroupOperations.list_groups`."""
    protocol_types = as_list("protocol_types", protocol_types)
    request = list_groups_request(
        parse_names("states", GroupState, states), parse_names("types", GroupType, types)
    )
    responses = await requester.request_all(request)
    groups: dict[str, GroupListing] = {}
    failed: dict[NodeId, KafkaError] = {}
    for node_id, response in responses.items():
        if isinstance(response, KafkaError):
            failed[node_id] = response
            continue
        for group in response.groups:
            # Two brokers may list a group while its coordinator moves.
            if not protocol_types or group.protocol_type in protocol_types:
                groups.setdefault(group.group_id, listing(group))
    in_order = dict(sorted(groups.items()))
    raise_broker_failures(in_order, failed, len(responses))
    return [*in_order.values()]


async def delete_groups(
    requester: Requester, group_ids: Iterable[str], return_errors: bool
) -> dict[str, KafkaError | None]:
    """Delete groups of any type; see `GroupOperations.delete_consumer_groups`."""
    request: ItemRequest[str, None] = ItemRequest(
        api_key=ApiKey.DELETE_GROUPS, build=delete_groups_request, read=read_deleted_groups
    )
    results = await requester.request_items(request, as_list("group_ids", group_ids))
    return finish_items(results, "groups", return_errors=return_errors)


async def describe_groups(
    requester: Requester,
    request: ItemRequest[str, W],
    group_ids: Iterable[str],
    describe: Callable[[W, NodeId], D],
    return_errors: bool,
) -> dict[str, D | KafkaError]:
    """Describe groups of one type; see `GroupOperations.describe_classic_groups`."""
    found = await requester.request_items(request, as_list("group_ids", group_ids))
    results = await _describe_items(requester, found, describe)
    return finish_items(results, "groups", return_errors=return_errors)


async def _describe_items(
    requester: Requester,
    found: Mapping[str, W | KafkaError],
    describe: Callable[[W, NodeId], D],
) -> dict[str, D | KafkaError]:
    """Convert what coordinators returned about groups; a malformed part is an error."""
    results: dict[str, D | KafkaError] = {}
    for group_id, value in found.items():
        if isinstance(value, KafkaError):
            results[group_id] = value
            continue
        try:
            coordinator = await requester.cluster.find_coordinator(
                group_id, deadline=requester.deadline
            )
            results[group_id] = describe(value, coordinator)
        except KafkaError as error:
            error.group = error.group or group_id
            results[group_id] = error
    return results


def _describe_groups_request(authorized_operations: bool) -> ItemRequest[str, DescribedGroup]:
    def build(group_ids: Sequence[str], version: int, timeout_ms: int) -> DescribeGroupsRequest:
        return DescribeGroupsRequest(
            groups=list(group_ids), include_authorized_operations=authorized_operations
        )

    return ItemRequest(
        api_key=ApiKey.DESCRIBE_GROUPS,
        build=build,
        read=read_groups,
        min_version=FIRST_WITH_AUTHORIZED_OPERATIONS if authorized_operations else 0,
    )


async def has_members(requester: Requester, group_id: str) -> bool:
    """Return True if a consumer or classic group has members. Raises `KafkaError`."""
    found = (await _find_consumer_groups(requester, [group_id], False))[group_id]
    if _may_be_classic(found):
        return False
    if isinstance(found, KafkaError):
        raise found
    return bool(found.members)


async def _describe_consumer_groups(
    requester: Requester, group_ids: Iterable[str], authorized_operations: bool
) -> dict[str, ConsumerGroupDescription | KafkaError]:
    """Describe groups as those of the consumer type, and the others as classic ones."""
    found = await _find_consumer_groups(requester, group_ids, authorized_operations)
    for group_id, value in found.items():
        if isinstance(value, DescribedGroup) and value.protocol_type not in {"", CONSUMER_PROTOCOL}:
            found[group_id] = _other_protocol(group_id, value.protocol_type)
    return await _describe_items(requester, found, consumer_description)


async def _find_consumer_groups(
    requester: Requester, group_ids: Iterable[str], authorized_operations: bool
) -> dict[str, Any]:
    """Return what coordinators report about groups of the consumer and the classic type."""
    request = describe_request(ConsumerGroupDescribeRequest, authorized_operations)
    found = await requester.request_items(request, group_ids)
    classic = [group_id for group_id, value in found.items() if _may_be_classic(value)]
    if classic:
        others = await requester.request_items(
            _describe_groups_request(authorized_operations), classic
        )
        found |= others
    return found


def _may_be_classic(value: object) -> bool:
    if isinstance(value, UnsupportedVersion):
        return True
    return isinstance(value, BrokerError) and value.code in _CLASSIC_CODES


def _other_protocol(group_id: str, protocol_type: str) -> BrokerError:
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return BrokerError(
        f"group {group_id!r} is not one of consumers: its protocol type is {protocol_type!r}",
        code=code,
        name=code.name,
        api="DescribeGroups",
        group=group_id,
    )
