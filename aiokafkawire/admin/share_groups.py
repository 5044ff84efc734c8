"""Operations on share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, overload

from aiokafkawire.admin.arguments import as_list
from aiokafkawire.admin.committed_offsets import GroupsArgument, parse_groups
from aiokafkawire.admin.group_messages import describe_request
from aiokafkawire.admin.groups import delete_groups, describe_groups
from aiokafkawire.admin.items import (
    ItemRequest,
    ItemResult,
    finish_items,
    partial_failure,
    partition_context,
    topic_context,
)
from aiokafkawire.admin.offset_messages import as_offset
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.response_values import unless_negative
from aiokafkawire.admin.routing import RETRIED_CODES
from aiokafkawire.admin.types.acl_operation import authorized_operations
from aiokafkawire.admin.types.groups import GroupState
from aiokafkawire.admin.types.share_groups import (
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffsetInfo,
)
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import (
    NodeId,
    PartitionT,
    TopicPartition,
    parse_topic_partition,
    partitions_by_topic,
)
from aiokafkawire.wire import ApiKey, ErrorCode, error_for
from aiokafkawire.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from aiokafkawire.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from aiokafkawire.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
)
from aiokafkawire.wire.messages.share_group_describe import (
    DescribedShareGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeRequest,
)

__all__ = ("ShareGroupOperations",)

ShareOffsets = dict[TopicPartition, SharePartitionOffsetInfo | None]
"""Start offsets of a share group; None where a partition has none."""

_RETRIED = RETRIED_CODES | {ErrorCode.REBALANCE_IN_PROGRESS}


class ShareGroupOperations(Operations):
    """Operations on share groups. Their offsets are at the group coordinator."""

    @overload
    async def describe_share_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, ShareGroupDescription]: ...

    @overload
    async def describe_share_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, ShareGroupDescription | KafkaError]: ...

    async def describe_share_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, ShareGroupDescription | KafkaError]:
        """Describe share groups (Kafka 4.1+).

        Args:
            group_ids: Names of the groups.
            include_authorized_operations: Ask for the principal's operations.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The descriptions by name.

        Raises:
            PartialFailure: Some groups do not exist (GROUP_ID_NOT_FOUND), are of another type, or
                may not be described.
            UnsupportedVersion: Brokers before 4.1 have no share groups.
            KafkaError: No coordinator could be reached.
        """
        requester = self._requester(timeout_ms)
        request = describe_request(ShareGroupDescribeRequest, include_authorized_operations)
        return await describe_groups(requester, request, group_ids, _description, return_errors)

    async def delete_share_groups(
        self,
        group_ids: Iterable[str],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[str, KafkaError | None]:
        """Delete share groups without members, with their offsets.

        Args:
            group_ids: Names of the groups.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each deleted group.

        Raises:
            PartialFailure: Some groups have members (NON_EMPTY_GROUP), do not exist, or may not be
                deleted.
            KafkaError: No coordinator could be reached.
        """
        return await delete_groups(self._requester(timeout_ms), group_ids, return_errors)

    @overload
    async def list_share_group_offsets(
        self,
        groups: GroupsArgument,
        *,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, ShareOffsets]: ...

    @overload
    async def list_share_group_offsets(
        self, groups: GroupsArgument, *, timeout_ms: int | None = None, return_errors: bool
    ) -> dict[str, ShareOffsets | KafkaError]: ...

    async def list_share_group_offsets(
        self,
        groups: GroupsArgument,
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, ShareOffsets | KafkaError]:
        """Return the start offsets of share groups (Kafka 4.1+).

        Args:
            groups: Names of groups for all their partitions, or a mapping from the name to
                partitions, or to None for all.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            Offsets by partition, by name of the group; None for a partition without one.

        Raises:
            PartialFailure: Some groups failed. If only some of a group's partitions did, its error
                is a `PartialFailure` too.
            UnsupportedVersion: Brokers before 4.1 have no share groups.
            KafkaError: No coordinator could be reached.
        """
        wanted = parse_groups(groups)

        def build(
            names: Sequence[str], version: int, timeout_ms: int
        ) -> DescribeShareGroupOffsetsRequest:
            return DescribeShareGroupOffsetsRequest(
                groups=[_wanted_offsets(name, wanted[name]) for name in names]
            )

        request: ItemRequest[str, ShareOffsets] = ItemRequest(
            api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, build=build, read=_read_offsets
        )
        results = await self._requester(timeout_ms).request_items(request, wanted)
        return finish_items(results, "groups", return_errors=return_errors)

    async def alter_share_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[PartitionT, int],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Change the start offsets of a share group without members (Kafka 4.1+).

        Args:
            group_id: Name of the group; it need not exist.
            offsets: Offset of the next record to deliver, by partition.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each partition.

        Raises:
            PartialFailure: Some offsets were not changed: the group has members
                (NON_EMPTY_GROUP), or a partition does not exist.
            UnsupportedVersion: Brokers before 4.1 have no share groups.
            KafkaError: The coordinator could not be reached.
        """
        wanted = {
            parse_topic_partition(tp): as_offset(offset).offset for tp, offset in offsets.items()
        }

        def build(
            tps: Sequence[TopicPartition], version: int, timeout_ms: int
        ) -> AlterShareGroupOffsetsRequest:
            return _alter_request(group_id, {tp: wanted[tp] for tp in tps})

        request: ItemRequest[TopicPartition, None] = ItemRequest(
            api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            build=build,
            read=_read_altered,
            locate=lambda tp: group_id,
            context=partition_context,
            retried=_RETRIED,
        )
        results = await self._requester(timeout_ms).request_items(request, wanted)
        return finish_items(results, "partitions", return_errors=return_errors)

    async def delete_share_group_offsets(
        self,
        group_id: str,
        topics: Iterable[str],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[str, KafkaError | None]:
        """Delete the offsets of a share group without members in topics (Kafka 4.1+).

        Args:
            group_id: Name of the group.
            topics: Names of the topics.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each topic.

        Raises:
            PartialFailure: Some offsets were not deleted: the group does not exist or has members,
                or a topic does not exist.
            UnsupportedVersion: Brokers before 4.1 have no share groups.
            KafkaError: The coordinator could not be reached.
        """

        def build(
            names: Sequence[str], version: int, timeout_ms: int
        ) -> DeleteShareGroupOffsetsRequest:
            return DeleteShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names],
            )

        request: ItemRequest[str, None] = ItemRequest(
            api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            build=build,
            read=_read_deleted,
            locate=lambda topic: group_id,
            context=topic_context,
            retried=_RETRIED,
        )
        results = await self._requester(timeout_ms).request_items(
            request, as_list("topics", topics)
        )
        return finish_items(results, "topics", return_errors=return_errors)


def _description(group: DescribedShareGroup, coordinator: NodeId) -> ShareGroupDescription:
    def member(described: ShareGroupDescribeMember) -> ShareMemberDescription:
        partitions = (
            TopicPartition(topic.topic_name, partition)
            for topic in described.assignment.topic_partitions
            for partition in topic.partitions
        )
        return ShareMemberDescription(
            member_id=described.member_id,
            rack_id=described.rack_id,
            client_id=described.client_id,
            host=described.client_host,
            assignment=tuple(sorted(partitions)),
            member_epoch=described.member_epoch,
        )

    return ShareGroupDescription(
        group_id=group.group_id,
        members=tuple(map(member, group.members)),
        group_state=GroupState(group.group_state),
        coordinator_id=coordinator,
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.assignment_epoch,
        authorized_operations=authorized_operations(group.authorized_operations),
    )


def _wanted_offsets(
    group_id: str, partitions: Iterable[TopicPartition] | None
) -> DescribeShareGroupOffsetsRequestGroup:
    topics = None
    if partitions is not None:
        topics = [
            DescribeShareGroupOffsetsRequestTopic(
                topic_name=topic, partitions=[tp.partition for tp in tps]
            )
            for topic, tps in partitions_by_topic(partitions).items()
        ]
    return DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)


def _read_offsets(response: DescribeShareGroupOffsetsResponse) -> Iterator[ItemResult]:
    for group in response.groups:
        if group.error_code != ErrorCode.NONE:
            yield ItemResult(group.group_id, code=group.error_code, message=group.error_message)
        else:
            yield ItemResult(group.group_id, _offsets_of(group))


def _offsets_of(group: DescribeShareGroupOffsetsResponseGroup) -> ShareOffsets | KafkaError:
    offsets: ShareOffsets = {}
    failed: dict[TopicPartition, KafkaError] = {}
    for topic in group.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.topic_name, partition.partition_index)
            if partition.error_code == ErrorCode.NONE:
                offsets[tp] = _offset_info(partition)
            else:
                failed[tp] = error_for(
                    partition.error_code,
                    api="DescribeShareGroupOffsets",
                    group=group.group_id,
                    **partition_context(tp),
                )
    return partial_failure(offsets, failed, "partitions") if failed else offsets


def _offset_info(
    partition: DescribeShareGroupOffsetsResponsePartition,
) -> SharePartitionOffsetInfo | None:
    if partition.start_offset < 0:
        return None
    return SharePartitionOffsetInfo(
        partition.start_offset,
        unless_negative(partition.leader_epoch),
        unless_negative(partition.lag),
    )


def _alter_request(
    group_id: str, offsets: Mapping[TopicPartition, int]
) -> AlterShareGroupOffsetsRequest:
    return AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=tp.partition, start_offset=offsets[tp]
                    )
                    for tp in tps
                ],
            )
            for topic, tps in partitions_by_topic(offsets).items()
        ],
    )


def _read_altered(response: AlterShareGroupOffsetsResponse) -> Iterator[ItemResult]:
    for topic in response.responses:
        for partition in topic.partitions:
            tp = TopicPartition(topic.topic_name, partition.partition_index)
            yield ItemResult(tp, None, partition.error_code, partition.error_message)


def _read_deleted(response: DeleteShareGroupOffsetsResponse) -> Iterator[ItemResult]:
    for topic in response.responses:
        yield ItemResult(topic.topic_name, None, topic.error_code, topic.error_message)
