"""New committed offsets of a group, within the logs of its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from aiokafkawire.admin.committed_offsets import list_offsets_of_groups
from aiokafkawire.admin.items import (
    PARTITION_LOOKUPS,
    ItemRequest,
    ItemResult,
    partition_context,
)
from aiokafkawire.admin.partitions import expand_partitions
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.types.groups import OffsetReset
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import AnyPartition, TopicPartition, partitions_by_topic
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = (
    "EARLIEST",
    "LATEST",
    "ResetTarget",
    "list_offsets",
    "parse_target",
    "plan_reset",
)

EARLIEST, LATEST = -2, -1
"""Special timestamps of ListOffsets: the log start offset and the log end offset."""

NOT_FOUND = -1
"""Offset that ListOffsets returns if no record is that young."""

FIRST_WITH_TIMESTAMPS = 1
CONSUMER_REPLICA_ID = -1


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Target of a reset: a timestamp of ListOffsets, an offset, or a shift. One is not None."""

    timestamp: int | None = None
    offset: int | None = None
    shift_by: int | None = None


def parse_target(
    to: Literal["earliest", "latest"] | datetime | int | None, shift_by: int | None
) -> ResetTarget:
    """Check the arguments of `reset_group_offsets`.

    Raises:
        TypeError: An argument has another type.
        ValueError: Not exactly one argument is given, or `to` is invalid.
    """
    if (to is None) == (shift_by is None):
        raise ValueError("give either to or shift_by")
    if shift_by is not None:
        return ResetTarget(shift_by=shift_by)
    match to:
        case "earliest":
            return ResetTarget(timestamp=EARLIEST)
        case "latest":
            return ResetTarget(timestamp=LATEST)
        case datetime():
            if to.tzinfo is None:
                raise ValueError(f"to={to!r} has no time zone")
            timestamp = round(to.timestamp() * 1_000)
            if timestamp < 0:
                raise ValueError(f"to={to!r} is before 1970")
            return ResetTarget(timestamp=timestamp)
        case int() if not isinstance(to, bool):
            if to < 0:
                raise ValueError(f"an offset must not be negative: {to}")
            return ResetTarget(offset=to)
        case str():
            raise ValueError(f"to must be 'earliest' or 'latest', not {to!r}")
        case _:
            raise TypeError(f"to must be a str, a datetime or an int, not {type(to).__name__}")


async def plan_reset(
    requester: Requester,
    group_id: str,
    partitions: Iterable[AnyPartition | str] | None,
    target: ResetTarget,
) -> dict[TopicPartition, OffsetReset | KafkaError]:
    """Return the new offset of each partition, or its error."""
    given = None if partitions is None else await expand_partitions(requester, partitions)
    existing = None if given is None else [tp for tp, error in given.items() if error is None]
    found = await list_offsets_of_groups(requester, {group_id: existing}, False)
    committed = found[group_id]
    if isinstance(committed, KafkaError):
        raise committed
    current = {tp: each.offset for tp, each in committed.items() if each is not None}
    wanted = dict.fromkeys(sorted(current)) if given is None else given
    planned: dict[TopicPartition, OffsetReset | KafkaError] = {}
    for tp, error in wanted.items():
        if error is not None:
            planned[tp] = error
        elif target.shift_by is not None and tp not in current:
            planned[tp] = KafkaError(
                "the group has no committed offset to shift",
                group=group_id,
                **partition_context(tp),
            )
    left = [tp for tp in wanted if tp not in planned]
    new = await _new_offsets(requester, left, current, target)
    for tp in left:
        offset = new[tp]
        planned[tp] = (
            offset if isinstance(offset, KafkaError) else OffsetReset(current.get(tp), offset)
        )
    return {tp: planned[tp] for tp in wanted}


async def _new_offsets(
    requester: Requester,
    partitions: Sequence[TopicPartition],
    current: Mapping[TopicPartition, int],
    target: ResetTarget,
) -> dict[TopicPartition, int | KafkaError]:
    ends = await list_offsets(requester, dict.fromkeys(partitions, LATEST))
    if target.timestamp == LATEST:
        return ends
    starts = await list_offsets(requester, dict.fromkeys(partitions, EARLIEST))
    if target.timestamp == EARLIEST:
        return starts
    found: dict[TopicPartition, int | KafkaError] = {}
    if target.timestamp is not None:
        found = await list_offsets(requester, dict.fromkeys(partitions, target.timestamp))
    new: dict[TopicPartition, int | KafkaError] = {}
    for tp in partitions:
        start, end, at_time = starts[tp], ends[tp], found.get(tp, NOT_FOUND)
        if isinstance(start, KafkaError):
            new[tp] = start
        elif isinstance(end, KafkaError):
            new[tp] = end
        elif isinstance(at_time, KafkaError):
            new[tp] = at_time
        else:
            new[tp] = min(max(_wanted(target, current.get(tp), end, at_time), start), end)
    return new


def _wanted(target: ResetTarget, current: int | None, end: int, at_time: int) -> int:
    """Return the wanted offset, which may be outside the log."""
    if target.timestamp is not None:
        return end if at_time == NOT_FOUND else at_time
    if target.offset is not None:
        return target.offset
    assert current is not None
    assert target.shift_by is not None
    return current + target.shift_by


async def list_offsets(
    requester: Requester, timestamps: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KafkaError]:
    """Return the offset of each partition for a timestamp, `NOT_FOUND`, or its error."""

    def build(tps: Sequence[TopicPartition], version: int, timeout_ms: int) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=0,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=tp.partition,
                            current_leader_epoch=-1,
                            timestamp=timestamps[tp],
                        )
                        for tp in each
                    ],
                )
                for topic, each in partitions_by_topic(tps).items()
            ],
            timeout_ms=timeout_ms,
        )

    request: ItemRequest[TopicPartition, int] = ItemRequest(
        api_key=ApiKey.LIST_OFFSETS,
        build=build,
        read=_read,
        min_version=FIRST_WITH_TIMESTAMPS if max(timestamps.values(), default=-1) >= 0 else 0,
        max_unknown=PARTITION_LOOKUPS,
    )
    return await requester.request_items(request, timestamps)


def _read(response: ListOffsetsResponse) -> Iterator[ItemResult]:
    for topic in response.topics:
        for partition in topic.partitions:
            old: Sequence[int] = partition.old_style_offsets
            offset = old[0] if old else partition.offset
            tp = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                yield ItemResult(tp, NOT_FOUND)
            else:
                yield ItemResult(tp, offset, partition.error_code)
