"""Operations on committed offsets of groups, and on their lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import Literal, overload

from aiokafkawire.admin.committed_offsets import (
    GroupsArgument,
    alter_offsets,
    delete_offsets,
    list_committed_offsets,
    list_offsets_of_groups,
    members_error,
    parse_groups,
)
from aiokafkawire.admin.group_messages import CONSUMER_PROTOCOL
from aiokafkawire.admin.groups import has_members, list_groups
from aiokafkawire.admin.items import finish_items
from aiokafkawire.admin.offset_messages import Offsets, committed_offset
from aiokafkawire.admin.offset_reset import parse_target, plan_reset
from aiokafkawire.admin.offsets import list_offsets, offset_number
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.types.groups import GroupLag, OffsetReset, PartitionLag
from aiokafkawire.admin.types.partitions import OffsetSpec
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import (
    AnyPartition,
    OffsetsArgument,
    PartitionT,
    TopicPartition,
)

__all__ = ("GroupOffsetOperations",)


class GroupOffsetOperations(Operations):
    """Operations on committed offsets of consumer groups."""

    @overload
    async def list_consumer_group_offsets(
        self,
        groups: GroupsArgument,
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, Offsets]: ...

    @overload
    async def list_consumer_group_offsets(
        self,
        groups: GroupsArgument,
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, Offsets | KafkaError]: ...

    async def list_consumer_group_offsets(
        self,
        groups: GroupsArgument,
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, Offsets | KafkaError]:
        """Return the committed offsets of groups.

        Args:
            groups: Names of groups for all their offsets (Kafka 0.10.2+), or a mapping from the
                name to partitions, or to None for all.
            require_stable: Wait until open transactions do not change the offsets (Kafka 2.5+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            Offsets by partition, by name of the group; None for a partition that was asked for and
            has none. A group that does not exist has no offsets.

        Raises:
            PartialFailure: Some groups failed. If only some of a group's partitions did, its error
                is a `PartialFailure` too.
            KafkaError: No coordinator could be reached.
        """
        requester = self._requester(timeout_ms)
        return await list_committed_offsets(requester, groups, require_stable, return_errors)

    async def alter_consumer_group_offsets(
        self,
        group_id: str,
        offsets: OffsetsArgument[PartitionT],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit offsets for a group without members; it need not exist.

        Args:
            group_id: Name of the group.
            offsets: Offset of the next record to read, by partition.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each partition.

        Raises:
            PartialFailure: Some offsets were not committed: the group has members
                (UNKNOWN_MEMBER_ID), or a partition does not exist.
            KafkaError: The coordinator could not be reached.
        """
        return await alter_offsets(self._requester(timeout_ms), group_id, offsets, return_errors)

    async def delete_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[AnyPartition],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of a group (Kafka 2.4+).

        Args:
            group_id: Name of the group.
            partitions: Partitions, of topics to which no member subscribes.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each partition, also if it had no committed offset.

        Raises:
            PartialFailure: Some offsets were not deleted: members subscribe to the topic
                (GROUP_SUBSCRIBED_TO_TOPIC), or the group does not exist.
            UnsupportedVersion: Brokers before 2.4 cannot delete offsets.
            KafkaError: The coordinator could not be reached.
        """
        requester = self._requester(timeout_ms)
        return await delete_offsets(requester, group_id, partitions, return_errors)

    @overload
    async def lag(
        self,
        groups: Iterable[str] | None = None,
        *,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, GroupLag]: ...

    @overload
    async def lag(
        self,
        groups: Iterable[str] | None = None,
        *,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, GroupLag | KafkaError]: ...

    async def lag(
        self,
        groups: Iterable[str] | None = None,
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, GroupLag | KafkaError]:
        """Return the lag of groups in the partitions for which they have committed offsets.

        The requests are one per coordinator and one per partition leader, however many groups
        there are (brokers before 3.0: one per group).

        Args:
            groups: Names of the groups; by default all groups of consumers.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The lag by name of the group. The end of a partition whose leader does not answer is
            unknown, and so are its lag and the group's.

        Raises:
            PartialFailure: Some groups or brokers failed.
            KafkaError: No broker could be reached.
        """
        requester = self._requester(timeout_ms)
        if groups is None:
            listed = await list_groups(requester, protocol_types=("", CONSUMER_PROTOCOL))
            groups = [group.group_id for group in listed]
        committed = await list_offsets_of_groups(
            requester, parse_groups(groups), False, committed_offset
        )
        partitions = chain.from_iterable(
            offsets for offsets in committed.values() if not isinstance(offsets, KafkaError)
        )
        latest = dict.fromkeys(partitions, OffsetSpec.LATEST)
        ends = await list_offsets(requester, latest, offset_number)
        results: dict[str, GroupLag | KafkaError] = {}
        for group, value in committed.items():
            lags = value if isinstance(value, KafkaError) else _group_lag(group, value, ends)
            results[group] = lags
        return finish_items(results, "groups", return_errors=return_errors)

    async def reset_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[AnyPartition | str] | None = None,
        *,
        to: Literal["earliest", "latest"] | datetime | int | None = None,
        shift_by: int | None = None,
        dry_run: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetReset]:
        """Change the committed offsets of a group without members.

        New offsets are within the log: at least the log start offset, at most the end.

        ::

            await admin.reset_group_offsets("billing", ["orders"], to="earliest", dry_run=True)
            await admin.reset_group_offsets("billing", ["orders"], to="earliest")

        Args:
            group_id: Name of the group. It need not exist.
            partitions: Partitions, or names of topics for all of theirs. By default those with a
                committed offset.
            to: "earliest", "latest", an offset, or a point in time (with a time zone): the first
                record at or after it, or the end if there is none (Kafka 0.10.1+).
            shift_by: Instead of `to`: records to move the committed offsets by, forwards or, if
                negative, backwards.
            dry_run: Only return what would change, or fail if the group has members.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            Current and new offset by partition.

        Raises:
            ValueError: Not exactly one of `to` and `shift_by` was given, or `to` is invalid.
            PartialFailure: Some partitions failed: they do not exist, have no committed offset to
                shift, or the group has members (UNKNOWN_MEMBER_ID). `succeeded` has the others,
                which are changed unless `dry_run`.
            KafkaError: The coordinator or no broker could be reached.
        """
        target = parse_target(to, shift_by)
        requester = self._requester(timeout_ms)
        planned = await plan_reset(requester, group_id, partitions, target)
        resets = {tp: reset for tp, reset in planned.items() if isinstance(reset, OffsetReset)}
        if dry_run:
            if resets and await has_members(requester, group_id):
                planned |= {tp: members_error(group_id, tp) for tp in resets}
        elif resets:
            offsets = {tp: reset.new_offset for tp, reset in resets.items()}
            committed = await alter_offsets(requester, group_id, offsets, True)
            planned |= {tp: error for tp, error in committed.items() if error is not None}
        return finish_items(planned, "partitions")


def _group_lag(
    group: str,
    offsets: Mapping[TopicPartition, int | None],
    ends: Mapping[TopicPartition, int | KafkaError | None],
) -> GroupLag:
    lags = {
        tp: PartitionLag(offsets[tp], end if isinstance(end := ends[tp], int) else None)
        for tp in sorted(offsets)
    }
    return GroupLag(group, lags)
