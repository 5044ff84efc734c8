"""Offsets and times as an application gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafkawire.errors import CommitFailed
from aiokafkawire.records import Records
from aiokafkawire.types import (
    ANY_LEADER_EPOCH,
    OffsetAndMetadata,
    OffsetsArgument,
    PartitionArgument,
    PartitionT,
    TopicPartition,
    topic_partition,
    topic_partitions,
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

CommitArgument = OffsetsArgument[PartitionT] | Records


def parse_commit_argument(
    assignment: ConsumerAssignment, given: CommitArgument[PartitionT]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a mapping says, or the end of a batch.

    Raises `CommitFailed` for a batch whose partition was lost since, `TypeError`, `ValueError`.
    """
    if isinstance(given, Records):
        return _end_of(assignment, given)
    if not isinstance(given, Mapping):
        raise TypeError(
            "commit takes a batch of getmany() or batches(), or offsets by partition"
            f" ({{TopicPartition: offset}}), not {given!r:.80}"
        )
    return {topic_partition(tp): validate_offset(offset) for tp, offset in given.items()}


def validate_offset(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """An offset to commit or to seek to. Raises `TypeError`, `ValueError`."""
    whole = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    for number in (whole.offset, whole.leader_epoch):
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"an offset is a whole number, not {number!r}")
    if not isinstance(whole.metadata, str):
        raise TypeError(f"the metadata of an offset is a string, not {whole.metadata!r}")
    if not 0 <= whole.offset <= MAX_INT64:
        raise ValueError(f"an offset is from 0 to {MAX_INT64}, not {whole.offset}")
    if not ANY_LEADER_EPOCH <= whole.leader_epoch <= MAX_INT32:
        raise ValueError(f"a leader epoch is from -1 to {MAX_INT32}, not {whole.leader_epoch}")
    if whole.metadata:
        _check_metadata(whole.metadata)
    return whole


def _check_metadata(metadata: str) -> None:
    try:
        size = len(metadata.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"the metadata of an offset has no UTF-8 form: {error.reason}") from None
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"the metadata of an offset takes at most {MAX_METADATA_BYTES} bytes")


def validate_partitions(partitions: Sequence[PartitionArgument]) -> list[TopicPartition]:
    """Return the partitions that a call for records is restricted to.

    Raises:
        TypeError: An argument is no partition. For a number the text says how a time or a number
            of records is given.
        ValueError: No request can carry a partition.
    """
    for argument in partitions:
        if isinstance(argument, int | float):
            raise TypeError(
                f"a partition is (topic, number), not {argument!r}: a time is timeout_ms="
                f"{argument!r}, a number of records max_records={argument!r}"
            )
    return topic_partitions(partitions)


def validate_timestamps(given: Mapping[PartitionT, int]) -> dict[TopicPartition, int]:
    """Milliseconds by partition. Raises `TypeError`, `ValueError`."""
    if not isinstance(given, Mapping):
        raise TypeError(f"times are given by partition ({{TopicPartition: ms}}), not {given!r:.80}")
    for time_ms in given.values():
        if isinstance(time_ms, bool) or not isinstance(time_ms, int):
            raise TypeError(f"a timestamp is a whole number of milliseconds, not {time_ms!r}")
        if time_ms < 0:
            raise ValueError(f"a timestamp is not negative; {time_ms} is")
    return {topic_partition(tp): time_ms for tp, time_ms in given.items()}


def _end_of(
    assignment: ConsumerAssignment, batch: Records
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Where reading goes on after a batch, if it was given since its partition is owned."""
    tp = batch.topic_partition
    partition = assignment.get(tp)
    first = batch.first_offset
    if partition is not None and first is not None:
        given = partition.delivered
        if given is None or first < given[0] or batch.next_offset > given[1]:
            raise CommitFailed(
                "the partition was lost and came back since the batch was given",
                topic=tp.topic,
                partition=tp.partition,
                offset=first,
            )
    return {tp: OffsetAndMetadata(batch.next_offset, leader_epoch=batch.leader_epoch)}
