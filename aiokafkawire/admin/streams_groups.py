"""Operations on streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, overload

from aiokafkawire.admin.committed_offsets import (
    GroupsArgument,
    alter_offsets,
    delete_offsets,
    list_committed_offsets,
)
from aiokafkawire.admin.group_messages import describe_request
from aiokafkawire.admin.groups import delete_groups, describe_groups
from aiokafkawire.admin.offset_messages import Offsets
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.streams_group_messages import streams_description
from aiokafkawire.admin.types.streams_groups import StreamsGroupDescription
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import AnyPartition, OffsetsArgument, PartitionT, TopicPartition
from aiokafkawire.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

__all__ = ("StreamsGroupOperations",)


class StreamsGroupOperations(Operations):
    """Operations on streams groups. Their committed offsets are as those of consumer groups."""

    @overload
    async def describe_streams_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, StreamsGroupDescription]: ...

    @overload
    async def describe_streams_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, StreamsGroupDescription | KafkaError]: ...

    async def describe_streams_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, StreamsGroupDescription | KafkaError]:
        """Describe streams groups (Kafka 4.1+).

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
            UnsupportedVersion: Brokers before 4.1 have no streams groups.
            KafkaError: No coordinator could be reached.
        """
        requester = self._requester(timeout_ms)
        request = describe_request(StreamsGroupDescribeRequest, include_authorized_operations)
        return await describe_groups(
            requester, request, group_ids, streams_description, return_errors
        )

    async def delete_streams_groups(
        self,
        group_ids: Iterable[str],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[str, KafkaError | None]:
        """Delete streams groups without members, with their committed offsets.

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
    async def list_streams_group_offsets(
        self,
        groups: GroupsArgument,
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, Offsets]: ...

    @overload
    async def list_streams_group_offsets(
        self,
        groups: GroupsArgument,
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, Offsets | KafkaError]: ...

    async def list_streams_group_offsets(
        self,
        groups: GroupsArgument,
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, Offsets | KafkaError]:
        """Return the committed offsets of streams groups.

        Args:
            groups: Names of groups for all their offsets, or a mapping from the name to
                partitions, or to None for all.
            require_stable: Wait until open transactions do not change the offsets.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            As `list_consumer_group_offsets`.

        Raises:
            PartialFailure: Some groups failed, as with `list_consumer_group_offsets`.
            KafkaError: No coordinator could be reached.
        """
        requester = self._requester(timeout_ms)
        return await list_committed_offsets(requester, groups, require_stable, return_errors)

    async def alter_streams_group_offsets(
        self,
        group_id: str,
        offsets: OffsetsArgument[PartitionT],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit offsets for a streams group without members.

        Args:
            group_id: Name of the group.
            offsets: Offset of the next record to read, by partition.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each partition.

        Raises:
            PartialFailure: Some offsets were not committed, as with
                `alter_consumer_group_offsets`.
            KafkaError: The coordinator could not be reached.
        """
        return await alter_offsets(self._requester(timeout_ms), group_id, offsets, return_errors)

    async def delete_streams_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[AnyPartition],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of a streams group.

        Args:
            group_id: Name of the group.
            partitions: Partitions, of topics to which no member subscribes.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each partition, also if it had no committed offset.

        Raises:
            PartialFailure: Some offsets were not deleted, as with
                `delete_consumer_group_offsets`.
            KafkaError: The coordinator could not be reached.
        """
        requester = self._requester(timeout_ms)
        return await delete_offsets(requester, group_id, partitions, return_errors)
