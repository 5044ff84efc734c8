"""Offsets of a consumer group that a transaction commits: their source and validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from aiokafkawire.producer.transactions.requests import check_encodable
from aiokafkawire.types import (
    GroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
    parse_topic_partition,
)

__all__ = ("OffsetsSource", "validate_offsets")


class _AutoCommitConfig(Protocol):
    @property
    def enable_auto_commit(self) -> bool: ...


class OffsetsSource(Protocol):
    """The consumer, as far as `send_offsets_to_transaction` needs it."""

    @property
    def config(self) -> _AutoCommitConfig: ...

    def positions(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offset of the next record to deliver, per partition."""
        ...

    def group_metadata(self) -> GroupMetadata:
        """Return the group, generation and member id of the consumer."""
        ...

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """Note that a transaction committed these offsets."""
        ...


def validate_offsets(
    offsets_by_partition: Mapping[Any, Any], group: GroupMetadata
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return all offsets as `OffsetAndMetadata`.

    Raises:
        TypeError: A key or value has the wrong type.
        ValueError: A value is out of range for the request.
    """
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, value in offsets_by_partition.items():
        is_number = isinstance(value, int) and not isinstance(value, bool)
        offset = OffsetAndMetadata(value) if is_number else value
        if not isinstance(offset, OffsetAndMetadata):
            raise TypeError(f"an offset must be an int or OffsetAndMetadata, not {value!r:.80}")
        if offset.offset < 0:
            raise ValueError(f"an offset must not be negative: {offset.offset}")
        offsets[parse_topic_partition(key)] = offset
    check_encodable(offsets, group)
    return offsets
