"""Committed offsets of groups: list, alter and delete them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from aiokafkawire.admin.items import ItemRequest, finish_items, partition_context
from aiokafkawire.admin.offset_messages import (
    FIRST_FOR_ALL_TOPICS,
    FIRST_IN_KAFKA,
    FIRST_WITH_GROUPS,
    FIRST_WITH_REQUIRE_STABLE,
    LAST_WITH_TOPIC_NAMES,
    FetchedPartition,
    Offsets,
    as_offset,
    commit_request,
    delete_request,
    fetch_request,
    offset_and_metadata,
    read_fetched,
    read_partition_errors,
)
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.routing import RETRIED_CODES
from aiokafkawire.errors import BrokerError, KafkaError, UnsupportedVersion
from aiokafkawire.types import (
    AnyPartition,
    OffsetsArgument,
    PartitionT,
    TopicPartition,
    parse_topic_partition,
)
from aiokafkawire.wire import ApiKey, ErrorCode, error_for
from aiokafkawire.wire.messages.offset_commit import OffsetCommitRequest
from aiokafkawire.wire.messages.offset_delete import OffsetDeleteRequest
from aiokafkawire.wire.messages.offset_fetch import OffsetFetchRequest

__all__ = (
    "GroupsArgument",
    "alter_offsets",
    "delete_offsets",
    "list_committed_offsets",
    "list_offsets_of_groups",
    "members_error",
    "parse_groups",
)

V = TypeVar("V")

GroupsArgument = Iterable[str] | Mapping[str, Iterable[AnyPartition] | None]
"""Names of groups for all their offsets, or partitions by name."""

HAS_MEMBERS = "UNKNOWN_MEMBER_ID: the group has members; stop its consumers first"
"""Reason of a commit that brokers refuse, as only members may commit while there are any."""

_RETRIED = RETRIED_CODES | {ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.REBALANCE_IN_PROGRESS}


async def list_committed_offsets(
    requester: Requester, groups: GroupsArgument, require_stable: bool, return_errors: bool
) -> dict[str, Offsets | KafkaError]:
    """List offsets; see `GroupOffsetOperations.list_consumer_group_offsets`."""
    results = await list_offsets_of_groups(
        requester, parse_groups(groups), require_stable, offset_and_metadata
    )
    return finish_items(results, "groups", return_errors=return_errors)


async def list_offsets_of_groups(
    requester: Requester,
    groups: Mapping[str, Collection[TopicPartition] | None],
    require_stable: bool,
    value: Callable[[FetchedPartition], V],
) -> dict[str, dict[TopicPartition, V] | KafkaError]:
    """Return the committed offsets of each group, or its error.

    Args:
        requester: Sends the requests.
        groups: Partitions by name of the group, None for all.
        require_stable: Wait until open transactions do not change the offsets.
        value: Form of the offsets: `offset_and_metadata` or `committed_offset`.
    """
    stable_since = FIRST_WITH_REQUIRE_STABLE if require_stable else 0

    def build(names: Sequence[str], version: int, timeout_ms: int) -> OffsetFetchRequest:
        return fetch_request({name: groups[name] for name in names}, require_stable, version)

    request: ItemRequest[str, dict[TopicPartition, V]] = ItemRequest(
        api_key=ApiKey.OFFSET_FETCH,
        build=build,
        read=lambda response: read_fetched(response, value),
        min_version=FIRST_WITH_GROUPS,
        max_version=LAST_WITH_TOPIC_NAMES,
        retried=_RETRIED,
    )
    results = await requester.request_items(request, groups)
    one_by_one = [name for name, each in results.items() if isinstance(each, UnsupportedVersion)]

    async def fetch(name: str) -> None:
        every = FIRST_FOR_ALL_TOPICS if groups[name] is None else FIRST_IN_KAFKA
        single: ItemRequest[str, dict[TopicPartition, V]] = ItemRequest(
            api_key=ApiKey.OFFSET_FETCH,
            build=build,
            read=lambda response: read_fetched(response, value, name),
            min_version=max(stable_since, every),
            max_version=FIRST_WITH_GROUPS - 1,
            retried=_RETRIED,
        )
        results.update(await requester.request_items(single, [name]))

    await requester.run_parallel(fetch, [(name,) for name in one_by_one])
    return results


async def alter_offsets(
    requester: Requester,
    group_id: str,
    offsets: OffsetsArgument[PartitionT],
    return_errors: bool,
) -> dict[TopicPartition, KafkaError | None]:
    """Commit offsets; see `GroupOffsetOperations.alter_consumer_group_offsets`."""
    wanted = {parse_topic_partition(tp): as_offset(offset) for tp, offset in offsets.items()}

    def build(tps: Sequence[TopicPartition], version: int, timeout_ms: int) -> OffsetCommitRequest:
        return commit_request(group_id, {tp: wanted[tp] for tp in tps})

    request: ItemRequest[TopicPartition, None] = ItemRequest(
        api_key=ApiKey.OFFSET_COMMIT,
        build=build,
        read=read_partition_errors,
        locate=lambda tp: group_id,
        context=partition_context,
        min_version=FIRST_IN_KAFKA,
        max_version=LAST_WITH_TOPIC_NAMES,
        retried=_RETRIED,
    )
    results = await requester.request_items(request, wanted)
    for error in results.values():
        if isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_MEMBER_ID:
            error.reason = HAS_MEMBERS
    return finish_items(results, "partitions", return_errors=return_errors)


def members_error(group_id: str, tp: TopicPartition) -> BrokerError:
    """Return the error of a commit for a group with members, without sending it."""
    error = error_for(
        ErrorCode.UNKNOWN_MEMBER_ID, api="OffsetCommit", group=group_id, **partition_context(tp)
    )
    error.reason = HAS_MEMBERS
    return error


async def delete_offsets(
    requester: Requester, group_id: str, partitions: Iterable[AnyPartition], return_errors: bool
) -> dict[TopicPartition, KafkaError | None]:
    """Delete offsets; see `GroupOffsetOperations.delete_consumer_group_offsets`."""

    def build(tps: Sequence[TopicPartition], version: int, timeout_ms: int) -> OffsetDeleteRequest:
        return delete_request(group_id, tps)

    request: ItemRequest[TopicPartition, None] = ItemRequest(
        api_key=ApiKey.OFFSET_DELETE,
        build=build,
        read=read_partition_errors,
        locate=lambda tp: group_id,
        context=partition_context,
    )
    results = await requester.request_items(request, map(parse_topic_partition, partitions))
    return finish_items(results, "partitions", return_errors=return_errors)


def parse_groups(groups: GroupsArgument) -> dict[str, tuple[TopicPartition, ...] | None]:
    """Return partitions by group, None for all."""
    if isinstance(groups, str):
        raise TypeError("groups must be an iterable of names, not a str")
    if not isinstance(groups, Mapping):
        return dict.fromkeys(groups)
    return {
        group: None if partitions is None else tuple(map(parse_topic_partition, partitions))
        for group, partitions in groups.items()
    }
