"""State of a share group, which changes by its records alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Any

from aiokafkawire.broker.groups.consumer_group.assignors import Assignment
from aiokafkawire.broker.groups.consumer_group.records import GroupRecord
from aiokafkawire.broker.groups.share_group.member import ShareGroupMember
from aiokafkawire.broker.groups.share_group.records import PartitionsByTopic, to_partitions
from aiokafkawire.wire.messages import share_group_records as messages
from aiokafkawire.wire.schema import Message

__all__ = ("ShareGroupMetadata", "ShareGroupState")


class ShareGroupState(Enum):
    """States of a share group; values are the names in ShareGroupDescribe."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroupMetadata:
    """Epochs, members, target assignment, and the share partitions that have a state."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ShareGroupMember] = {}
        self.target: dict[str, Assignment] = {}
        self.initializing: PartitionsByTopic = {}
        self.initialized: PartitionsByTopic = {}

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics of all members."""
        return frozenset(
            name for member in self.members.values() for name in member.subscribed_names
        )

    def apply(self, record: GroupRecord) -> None:
        """Change the state as a record says."""
        _APPLY[type(record.key)](self, record.key, record.value)

    def _apply_group(self, key: Any, value: messages.ShareGroupMetadataValue | None) -> None:
        if value is not None:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_member(self, key: Any, value: messages.ShareGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.members.pop(key.member_id, None)
            return
        before = self.members.get(key.member_id, ShareGroupMember(member_id=key.member_id))
        self.members[key.member_id] = replace(
            before,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_names=tuple(value.subscribed_topic_names),
        )

    def _apply_current(
        self, key: Any, value: messages.ShareGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is None:
            return
        before = self.members.get(key.member_id, ShareGroupMember(member_id=key.member_id))
        self.members[key.member_id] = replace(
            before,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned={each.topic_id: tuple(each.partitions) for each in value.assigned_partitions},
        )

    def _apply_target(
        self, key: Any, value: messages.ShareGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
            return
        self.target[key.member_id] = {
            each.topic_id: tuple(each.partitions) for each in value.topic_partitions
        }

    def _apply_target_metadata(
        self, key: Any, value: messages.ShareGroupTargetAssignmentMetadataValue | None
    ) -> None:
        if value is not None:
            self.assignment_epoch = value.assignment_epoch

    def _apply_state_partitions(
        self, key: Any, value: messages.ShareGroupStatePartitionMetadataValue | None
    ) -> None:
        self.initializing = {} if value is None else to_partitions(value.initializing_topics)
        self.initialized = {} if value is None else to_partitions(value.initialized_topics)


_M = ShareGroupMetadata

_APPLY: Mapping[type[Message], Callable[[ShareGroupMetadata, Any, Any], None]] = MappingProxyType(
    {
        messages.ShareGroupMetadataKey: _M._apply_group,
        messages.ShareGroupMemberMetadataKey: _M._apply_member,
        messages.ShareGroupCurrentMemberAssignmentKey: _M._apply_current,
        messages.ShareGroupTargetAssignmentMemberKey: _M._apply_target,
        messages.ShareGroupTargetAssignmentMetadataKey: _M._apply_target_metadata,
        messages.ShareGroupStatePartitionMetadataKey: _M._apply_state_partitions,
    }
)
"""Change of the state by the class of a record's key."""
