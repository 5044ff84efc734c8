"""Previous assignment according to the members. Untrusted input of the sticky assignors."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aiokafkawire.types import TopicPartition
from aiokafkawire.wire.consumer_protocol import group_by_topic

from .base import MemberSubscription

__all__ = (
    "MAX_OWNED_PARTITIONS",
    "OwnedPartitions",
    "PreviousAssignment",
    "decode_generation",
    "decode_owned",
    "encode_generation",
    "encode_owned",
    "resolve_previous_assignment",
)

NO_GENERATION = -1

MAX_OWNED_PARTITIONS = 200_000
"""Most partitions in one member's user data."""

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


class OwnedPartitions(NamedTuple):
    """Partitions of one member, and the generation that assigned them."""

    partitions: Iterable[TopicPartition] = ()
    generation: int = NO_GENERATION


def encode_owned(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Encode user data of `sticky`, version 1: partitions by topic, then the generation."""
    topics = group_by_topic(partitions)
    parts = [_INT.pack(len(topics))]
    for entry in topics:
        name = entry.topic.encode()
        numbers = entry.partitions
        parts += (_SHORT.pack(len(name)), name)
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    parts.append(_INT.pack(generation))
    return b"".join(parts)


def decode_owned(data: bytes | None) -> OwnedPartitions:
    """Decode user data of `sticky`; malformed data is ignored. Version 0 has no generation."""
    if not data:
        return OwnedPartitions()
    try:
        partitions, end = _decode_partitions(data)
    except (struct.error, ValueError):
        return OwnedPartitions()
    if len(data) - end < _INT.size:
        return OwnedPartitions(partitions)
    return OwnedPartitions(partitions, _INT.unpack_from(data, end)[0])


def _decode_partitions(data: bytes) -> tuple[list[TopicPartition], int]:
    partitions: list[TopicPartition] = []
    count, at = _count(data, 0, _SHORT.size + _INT.size)
    for _ in range(count):
        (length,) = _SHORT.unpack_from(data, at)
        at += _SHORT.size
        if length < 0 or length > len(data) - at:
            raise ValueError("topic name is longer than the data")
        topic = data[at : at + length].decode()
        size, at = _count(data, at + length, _INT.size)
        if len(partitions) + size > MAX_OWNED_PARTITIONS:
            raise ValueError("too many partitions")
        numbers = struct.unpack_from(f">{size}i", data, at)
        at += size * _INT.size
        partitions += (TopicPartition(topic, number) for number in numbers)
    return partitions, at


def _count(data: bytes, at: int, least_bytes_each: int) -> tuple[int, int]:
    (count,) = _INT.unpack_from(data, at)
    at += _INT.size
    if count < 0 or count * least_bytes_each > len(data) - at:
        raise ValueError("array is longer than the data")
    return count, at


def encode_generation(generation: int) -> bytes:
    """Encode user data of `cooperative-sticky`."""
    return _INT.pack(generation)


def decode_generation(data: bytes | None) -> int:
    """Decode user data of `cooperative-sticky`; -1 if it is malformed."""
    if data is None or len(data) < _INT.size:
        return NO_GENERATION
    generation: int = _INT.unpack_from(data)[0]
    return generation


@dataclass(frozen=True, slots=True)
class PreviousAssignment:
    """Previous owners of the existing partitions.

    Attributes:
        owned: Partitions per member id. If several members claim a partition, the one of the newest
            generation owns it.
        disputed: Partitions that several members of the newest generation claim. Nobody owns them.
        previous_owners: Owners in an older generation, the newest of them per partition.
    """

    owned: Mapping[str, Sequence[TopicPartition]]
    disputed: frozenset[TopicPartition]
    previous_owners: Mapping[TopicPartition, str]


def resolve_previous_assignment(
    members: Sequence[MemberSubscription],
    counts: Mapping[str, int],
    owned_by: Callable[[MemberSubscription], OwnedPartitions],
) -> PreviousAssignment:
    """Resolve conflicting claims of members. `counts` has the number of partitions per topic."""
    reported = {member.member_id: owned_by(member) for member in members}
    newest = max((owned.generation for owned in reported.values()), default=NO_GENERATION)
    owners: dict[TopicPartition, tuple[int, str]] = {}
    previous_owners: dict[TopicPartition, tuple[int, str]] = {}
    disputed: dict[TopicPartition, int] = {}
    for member in members:
        partitions, generation = reported[member.member_id]
        subscribed = frozenset(member.topics)
        for tp in dict.fromkeys(partitions):
            if not 0 <= tp.partition < counts.get(tp.topic, 0):
                continue
            if generation < newest and tp.topic in subscribed:
                previous_owners[tp] = _newer(previous_owners.get(tp), generation, member.member_id)
            owner = owners.get(tp)
            if owner is not None and owner[0] == generation:
                disputed[tp] = generation
            owners[tp] = _newer(owner, generation, member.member_id)
    in_dispute = frozenset(tp for tp, generation in disputed.items() if owners[tp][0] == generation)
    owned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for tp, (_, member_id) in owners.items():
        if tp not in in_dispute:
            owned[member_id].append(tp)
    return PreviousAssignment(
        owned, in_dispute, {tp: member_id for tp, (_, member_id) in previous_owners.items()}
    )


def _newer(known: tuple[int, str] | None, generation: int, member_id: str) -> tuple[int, str]:
    if known is not None and known[0] >= generation:
        return known
    return generation, member_id
