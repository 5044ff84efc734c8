"""Encode and decode the consumer protocol: the metadata of JoinGroup and SyncGroup.

Subscription and Assignment start with an int16 version. A newer version is decoded as the latest
one known here and trailing bytes are ignored, so that members can be upgraded one by one.
"""

import struct
from collections.abc import Iterable
from typing import TypeVar

from aiokafkawire.errors import MalformedMessage
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire.codec import decode, decode_prefix, encode
from aiokafkawire.wire.messages import consumer_protocol as messages
from aiokafkawire.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from aiokafkawire.wire.primitives import Buffer
from aiokafkawire.wire.schema import Message, schema_for

__all__ = (
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "flatten_by_topic",
    "group_by_topic",
)

M = TypeVar("M", bound=Message)

LATEST_VERSION = 3

_VERSION = struct.Struct(">h")


def encode_subscription(
    topics: Iterable[str],
    *,
    user_data: bytes | None = None,
    owned_partitions: Iterable[tuple[str, int]] = (),
    generation_id: int = -1,
    rack_id: str | None = None,
    version: int = LATEST_VERSION,
) -> bytes:
    """Encode the Subscription that a member sends to the leader in JoinGroup.

    Args:
        topics: Subscribed topics; encoded in sorted order, as by Kafka's own clients.
        user_data: Data of the assignor.
        owned_partitions: Partitions that the member owns (v1+, KIP-429); encoded in sorted order.
        generation_id: Generation in which the member owned them (v2+, KIP-792), or -1.
        rack_id: Rack of the member (v3+, KIP-881).
        version: Version to encode.
    """
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=group_by_topic(sorted(owned_partitions)),
        generation_id=generation_id,
        rack_id=rack_id,
    )
    return _VERSION.pack(version) + encode(message, version)


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """Decode the Subscription of a member. Raises `MalformedMessage`."""
    return _decode(ConsumerProtocolSubscription, data)


def encode_assignment(
    partitions: Iterable[tuple[str, int]],
    *,
    user_data: bytes | None = None,
    version: int = LATEST_VERSION,
) -> bytes:
    """Encode the Assignment of one member, grouped by topic in order of first appearance."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=group_by_topic(partitions), user_data=user_data
    )
    return _VERSION.pack(version) + encode(message, version)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """Decode an Assignment; empty bytes are an empty one. Raises `MalformedMessage`."""
    if not len(data):
        return ConsumerProtocolAssignment(assigned_partitions=[])
    return _decode(ConsumerProtocolAssignment, data)


def group_by_topic(
    partitions: Iterable[tuple[str, int]],
) -> list[messages.ConsumerProtocolTopicPartition]:
    """Group partitions into one entry per topic, in order of first appearance."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return [
        messages.ConsumerProtocolTopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in by_topic.items()
    ]


def flatten_by_topic(
    entries: Iterable[messages.ConsumerProtocolTopicPartition],
) -> list[TopicPartition]:
    """Return the partitions of entries grouped by topic, in the same order."""
    return [TopicPartition(entry.topic, number) for entry in entries for number in entry.partitions]


def _decode(cls: type[M], data: Buffer) -> M:
    name = schema_for(cls).name
    if len(data) < _VERSION.size:
        raise MalformedMessage("the version is missing", message=name, position=0)
    version: int = _VERSION.unpack_from(data)[0]
    body = memoryview(data)[_VERSION.size :]
    if version < 0:
        raise MalformedMessage(f"invalid version {version}", message=name, position=0)
    if version > LATEST_VERSION:
        return decode_prefix(cls, LATEST_VERSION, body)[0]
    return decode(cls, version, body)
