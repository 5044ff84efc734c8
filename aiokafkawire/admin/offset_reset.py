"""New committed offsets of a group, within the logs of its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from aiokafkawire.admin.committed_offsets import list_offsets_of_groups
from aiokafkawire.admin.items import partition_context
from aiokafkawire.admin.offset_messages import committed_offset
from aiokafkawire.admin.offsets import list_offsets, offset_number
from aiokafkawire.admin.partitions import expand_partitions
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.types.groups import OffsetReset
from aiokafkawire.admin.types.partitions import OffsetSpec
from aiokafkawire.errors import BrokerError, KafkaError
from aiokafkawire.types import AnyPartition, TopicPartition
from aiokafkawire.wire import ErrorCode

__all__ = ("ResetTarget", "parse_target", "plan_reset")

NOT_FOUND = -1
"""Offset if no record is at or after the time."""


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Target of a reset; one field is set.

    Attributes:
        timestamp: Milliseconds since 1970, or an `OffsetSpec`.
        offset: The offset.
        shift_by: Records to move the committed offset by.
    """

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
            return ResetTarget(timestamp=OffsetSpec.EARLIEST)
        case "latest":
            return ResetTarget(timestamp=OffsetSpec.LATEST)
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
    found = await list_offsets_of_groups(requester, {group_id: existing}, False, committed_offset)
    committed = found[group_id]
    if isinstance(committed, KafkaError):
        raise committed
    current = {tp: each for tp, each in committed.items() if each is not None}
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
    ends = await _list_offsets(requester, partitions, OffsetSpec.LATEST)
    if target.timestamp == OffsetSpec.LATEST:
        return ends
    starts = await _list_offsets(requester, partitions, OffsetSpec.EARLIEST)
    if target.timestamp == OffsetSpec.EARLIEST:
        return starts
    found: dict[TopicPartition, int | KafkaError] = {}
    if target.timestamp is not None:
        found = await _list_offsets(requester, partitions, target.timestamp)
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


async def _list_offsets(
    requester: Requester, partitions: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, int | KafkaError]:
    """Return the offset of each partition for a timestamp, `NOT_FOUND`, or its error."""
    wanted = dict.fromkeys(partitions, timestamp)
    listed = await list_offsets(requester, wanted, offset_number)
    return {tp: _offset(result) for tp, result in listed.items()}


def _offset(result: int | KafkaError | None) -> int | KafkaError:
    if isinstance(result, BrokerError):
        # Messages before Kafka 0.10 have no timestamps.
        no_timestamps = result.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        return NOT_FOUND if no_timestamps else result
    return NOT_FOUND if result is None else result
