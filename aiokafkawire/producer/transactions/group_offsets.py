"""The offsets that go with a transaction: what knows them, and what a caller may give."""

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
    """What a transaction asks of a consumer."""

    @property
    def config(self) -> _AutoCommitConfig: ...

    def positions(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Where reading goes on after all that was given out."""
        ...

    def group_metadata(self) -> GroupMetadata:
        """The consumer's place in its group."""
        ...

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """The transaction that took these offsets is committed."""
        ...


def validate_offsets(
    offsets_by_partition: Mapping[Any, Any], group: GroupMetadata
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets as a caller gave them, which a request for this group can carry. Raises `TypeError`
    or `ValueError`."""
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, value in offsets_by_partition.items():
        number = isinstance(value, int) and not isinstance(value, bool)
        offset = OffsetAndMetadata(value) if number else value
        if not isinstance(offset, OffsetAndMetadata):
            raise TypeError(f"an offset is a number or OffsetAndMetadata, not {value!r:.80}")
        if offset.offset < 0:
            raise ValueError(f"an offset must not be negative: {offset.offset}")
        offsets[parse_topic_partition(key)] = offset
    check_encodable(offsets, group)
    return offsets
