"""Validation of offsets, partitions and timestamps that the application passes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafkawire.errors import CommitFailed
from aiokafkawire.records import Records
from aiokafkawire.types import (
    NO_LEADER_EPOCH,
    OffsetAndMetadata,
    OffsetsArgument,
    PartitionArgument,
    PartitionT,
    TopicPartition,
    parse_topic_partition,
    parse_topic_partitions,
)

from .assignment import ConsumerAssignment

__all__ = (
    "CommitArgument",
    "parse_commit_argument",
    "validate_offset",
    "validate_partitions",
    "validate_timestamps",
)

MAX_INT64 = 2**63 - 1
MAX_INT32 = 2**31 - 1
MAX_METADATA_BYTES = 2**15 - 1

CommitArgument = OffsetsArgument[PartitionT] | Records[Any, Any]


def parse_commit_argument(
    assignment: ConsumerAssignment, given: CommitArgument[PartitionT]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that `commit(given)` commits: those of a mapping, or the end of a batch.

    Raises:
        CommitFailed: The batch was delivered before its partition was lost.
        TypeError: `given` is neither a batch nor a mapping, or an offset has a wrong type.
        ValueError: An offset is out of range.
    """
    if isinstance(given, Records):
        return _end_of(assignment, given)
    if not isinstance(given, Mapping):
        raise TypeError(
            "commit takes a batch of getmany() or batches(), or offsets by partition"
            f" ({{TopicPartition: offset}}), not {given!r:.80}"
        )
    return {parse_topic_partition(tp): validate_offset(offset) for tp, offset in given.items()}


def validate_offset(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """Return an offset to commit or to seek to. Raises `TypeError`, `ValueError`."""
    checked = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    for number in (checked.offset, checked.leader_epoch):
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"an offset must be a whole number, not {number!r}")
    if not isinstance(checked.metadata, str):
        raise TypeError(f"the metadata of an offset must be a string, not {checked.metadata!r}")
    if not 0 <= checked.offset <= MAX_INT64:
        raise ValueError(f"an offset must be from 0 to {MAX_INT64}, not {checked.offset}")
    if not NO_LEADER_EPOCH <= checked.leader_epoch <= MAX_INT32:
        raise ValueError(
            f"a leader epoch must be from -1 to {MAX_INT32}, not {checked.leader_epoch}"
        )
    if checked.metadata:
        _check_metadata(checked.metadata)
    return checked


def _check_metadata(metadata: str) -> None:
    try:
        size = len(metadata.encode())
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the metadata of an offset cannot be encoded as UTF-8: {error.reason}"
        ) from None
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"the metadata of an offset may have at most {MAX_METADATA_BYTES} bytes")


def validate_partitions(partitions: Sequence[PartitionArgument]) -> list[TopicPartition]:
    """Return the partitions that a call for records is restricted to.

    Raises:
        TypeError: An argument is not a partition. For a number the text says how to pass a timeout
            or a number of records.
        ValueError: A topic name or partition number is out of the protocol's range.
    """
    for argument in partitions:
        if isinstance(argument, int | float):
            raise TypeError(
                f"a partition must be a (topic, number) tuple, not {argument!r}: pass a timeout as"
                " timeout_ms="
                f"{argument!r}, a number of records as max_records={argument!r}"
            )
    return parse_topic_partitions(partitions)


def validate_timestamps(given: Mapping[PartitionT, int]) -> dict[TopicPartition, int]:
    """Return milliseconds since 1970, per partition. Raises `TypeError`, `ValueError`."""
    if not isinstance(given, Mapping):
        raise TypeError(f"timestamps must be a mapping ({{TopicPartition: ms}}), not {given!r:.80}")
    for time_ms in given.values():
        if isinstance(time_ms, bool) or not isinstance(time_ms, int):
            raise TypeError(f"a timestamp must be a whole number of milliseconds, not {time_ms!r}")
        if time_ms < 0:
            raise ValueError(f"a timestamp must not be negative, but is {time_ms}")
    return {parse_topic_partition(tp): time_ms for tp, time_ms in given.items()}


def _end_of(
    assignment: ConsumerAssignment, batch: Records[Any, Any]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offset after a batch that was delivered since its partition was assigned."""
    tp = batch.topic_partition
    partition = assignment.get(tp)
    first = batch.first_offset
    if partition is not None and first is not None:
        given = partition.delivered_range
        if given is None or first < given[0] or batch.next_offset > given[1]:
            raise CommitFailed(
                "the partition was lost and assigned again after the batch was delivered",
                topic=tp.topic,
                partition=tp.partition,
                offset=first,
            )
    return {tp: OffsetAndMetadata(batch.next_offset, leader_epoch=batch.leader_epoch)}
