"""Records of a consumer group in `__consumer_offsets`, equal to Kafka's."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from aiokafkawire.broker.groups.consumer_group.assignors import Assignment
from aiokafkawire.broker.groups.consumer_group.member import (
    ClassicProtocolMember,
    ConsumerGroupMember,
    MemberState,
    PartitionEpochs,
)
from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire.codec import decode, encode
from aiokafkawire.wire.messages import consumer_group_records as messages
from aiokafkawire.wire.messages import share_group_records as share_messages
from aiokafkawire.wire.schema import Message

__all__ = (
    "RECORD_TYPES",
    "SHARE_RECORD_TYPES",
    "GroupRecord",
    "assignment_metadata",
    "current_assignment",
    "decode_record",
    "encode_record",
    "group_metadata",
    "member_metadata",
    "record_type",
    "regular_expression",
    "target_assignment",
    "to_target",
    "tombstone",
    "with_assignment",
    "with_metadata",
)

RECORD_TYPES: Mapping[int, tuple[type[Message], type[Message]]] = MappingProxyType(
    {
        3: (messages.ConsumerGroupMetadataKey, messages.ConsumerGroupMetadataValue),
        5: (messages.ConsumerGroupMemberMetadataKey, messages.ConsumerGroupMemberMetadataValue),
        6: (
            messages.ConsumerGroupTargetAssignmentMetadataKey,
            messages.ConsumerGroupTargetAssignmentMetadataValue,
        ),
        7: (
            messages.ConsumerGroupTargetAssignmentMemberKey,
            messages.ConsumerGroupTargetAssignmentMemberValue,
        ),
        8: (
            messages.ConsumerGroupCurrentMemberAssignmentKey,
            messages.ConsumerGroupCurrentMemberAssignmentValue,
        ),
        10: (
            share_messages.ShareGroupMemberMetadataKey,
            share_messages.ShareGroupMemberMetadataValue,
        ),
        11: (share_messages.ShareGroupMetadataKey, share_messages.ShareGroupMetadataValue),
        12: (
            share_messages.ShareGroupTargetAssignmentMetadataKey,
            share_messages.ShareGroupTargetAssignmentMetadataValue,
        ),
        13: (
            share_messages.ShareGroupTargetAssignmentMemberKey,
            share_messages.ShareGroupTargetAssignmentMemberValue,
        ),
        14: (
            share_messages.ShareGroupCurrentMemberAssignmentKey,
            share_messages.ShareGroupCurrentMemberAssignmentValue,
        ),
        15: (
            share_messages.ShareGroupStatePartitionMetadataKey,
            share_messages.ShareGroupStatePartitionMetadataValue,
        ),
        16: (
            messages.ConsumerGroupRegularExpressionKey,
            messages.ConsumerGroupRegularExpressionValue,
        ),
    }
)
"""Key and value by record type, which is the version of the key; 10 to 15 are share groups."""

SHARE_RECORD_TYPES = frozenset(range(10, 16))
"""Types of the records of share groups."""

_TYPE_OF_KEY = {key: number for number, (key, _) in RECORD_TYPES.items()}
_INT16 = struct.Struct(">h")
VALUE_VERSION = 0


class GroupRecord(NamedTuple):
    """Key and value of a record; without a value it is a tombstone."""

    key: Message
    value: Message | None


def tombstone(record: GroupRecord) -> GroupRecord:
    """Return the record that deletes one with the same key."""
    return GroupRecord(record.key, None)


def group_metadata(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    return GroupRecord(
        messages.ConsumerGroupMetadataKey(group_id=group_id),
        messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_metadata(group_id: str, member: ConsumerGroupMember) -> GroupRecord:
    classic = member.classic
    return GroupRecord(
        messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        messages.ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.subscribed_names),
            subscribed_topic_regex=member.subscribed_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=None
            if classic is None
            else messages.ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    messages.ClassicProtocol(name=name, metadata=metadata)
                    for name, metadata in classic.protocols
                ],
            ),
        ),
    )


def assignment_metadata(group_id: str, epoch: int, timestamp_ms: int) -> GroupRecord:
    return GroupRecord(
        messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        messages.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def target_assignment(group_id: str, member_id: str, target: Assignment) -> GroupRecord:
    return GroupRecord(
        messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        messages.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                messages.ConsumerGroupRecordTopicPartition(
                    topic_id=topic, partitions=list(partitions)
                )
                for topic, partitions in target.items()
            ]
        ),
    )


def current_assignment(group_id: str, member: ConsumerGroupMember) -> GroupRecord:
    return GroupRecord(
        messages.ConsumerGroupCurrentMemberAssignmentKey(
            group_id=group_id, member_id=member.member_id
        ),
        messages.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_with_epochs(member.assigned),
            partitions_pending_revocation=_with_epochs(member.pending_revocation),
        ),
    )


def regular_expression(
    group_id: str, regex: str, topics: Iterable[str], version: int, timestamp_ms: int
) -> GroupRecord:
    return GroupRecord(
        messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        messages.ConsumerGroupRegularExpressionValue(
            topics=sorted(topics), version=version, timestamp=timestamp_ms
        ),
    )


def with_metadata(
    member: ConsumerGroupMember, value: messages.ConsumerGroupMemberMetadataValue
) -> ConsumerGroupMember:
    """Return a member with the fields of its metadata record."""
    classic = value.classic_member_metadata
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_names=tuple(value.subscribed_topic_names),
        subscribed_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicProtocolMember(
            classic.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        ),
    )


def with_assignment(
    member: ConsumerGroupMember, value: messages.ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerGroupMember:
    """Return a member with the fields of its current assignment record."""
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_epochs_by_topic(value.assigned_partitions, value.member_epoch),
        pending_revocation=_epochs_by_topic(
            value.partitions_pending_revocation, value.member_epoch
        ),
    )


def to_target(value: messages.ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    """Return the partitions of a target assignment record."""
    return {each.topic_id: tuple(each.partitions) for each in value.topic_partitions}


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return the bytes of key and value, each after its version."""
    key = _INT16.pack(_TYPE_OF_KEY[type(record.key)]) + encode(record.key, 0)
    if record.value is None:
        return key, None
    return key, _INT16.pack(VALUE_VERSION) + encode(record.value, VALUE_VERSION)


def record_type(key: bytes) -> int:
    """Return the type of the record with a key."""
    return int(_INT16.unpack_from(key)[0])


def decode_record(key: bytes, value: bytes | None) -> GroupRecord:
    """Return the record of some bytes.

    Raises:
        MalformedMessage: The bytes are not a record of a consumer group.
    """
    if len(key) < _INT16.size or (value is not None and len(value) < _INT16.size):
        raise MalformedMessage("the version is missing", message="ConsumerGroupRecord", position=0)
    number = _INT16.unpack_from(key)[0]
    if number not in RECORD_TYPES:
        raise MalformedMessage(
            f"record type {number} is unknown", message="ConsumerGroupRecord", position=0
        )
    key_class, value_class = RECORD_TYPES[number]
    return GroupRecord(
        decode(key_class, 0, key[_INT16.size :]),
        None if value is None else decode(value_class, VALUE_VERSION, value[_INT16.size :]),
    )


def _with_epochs(
    partitions: PartitionEpochs,
) -> list[messages.ConsumerGroupRecordTopicPartitions]:
    return [
        messages.ConsumerGroupRecordTopicPartitions(
            topic_id=topic,
            partitions=list(epochs),
            assignment_epochs=list(epochs.values()),
        )
        for topic, epochs in partitions.items()
    ]


def _epochs_by_topic(
    entries: Iterable[messages.ConsumerGroupRecordTopicPartitions], member_epoch: int
) -> PartitionEpochs:
    """Return partitions with their epochs; those of records before 4.3 have the member's."""
    return {
        each.topic_id: dict(
            zip(
                each.partitions,
                each.assignment_epochs or [member_epoch] * len(each.partitions),
                strict=True,
            )
        )
        for each in entries
    }
