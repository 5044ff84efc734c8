"""State of a consumer group, which changes by its records alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from aiokafkawire.broker.groups.consumer_group.assignors import Assignment
from aiokafkawire.broker.groups.consumer_group.member import (
    LEAVE_EPOCH,
    ConsumerGroupMember,
    MemberState,
)
from aiokafkawire.broker.groups.consumer_group.records import (
    GroupRecord,
    to_target,
    with_assignment,
    with_metadata,
)
from aiokafkawire.wire.messages import consumer_group_records as messages
from aiokafkawire.wire.schema import Message

__all__ = ("ConsumerGroupMetadata", "ConsumerGroupState", "ResolvedRegex")


class ConsumerGroupState(Enum):
    """States of a consumer group; values are the names in ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """Topics that match a regular expression, at a version of the topics."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroupMetadata:
    """Epochs, members, target assignment, owners of partitions and regular expressions."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerGroupMember] = {}
        self.most_members = 0
        self.target: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self._owners: dict[tuple[UUID, int], str] = {}
        self._static_members: dict[str, str] = {}
        self._regex_counts: Counter[str] = Counter()
        self._name_counts: Counter[str] = Counter()
        self._reconciled: set[str] = set()

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if len(self._reconciled) < len(self.members):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    def static_member(self, instance_id: str) -> ConsumerGroupMember | None:
        """Return the member with an instance id."""
        member_id = self._static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_owned(self, topic: UUID, partition: int) -> bool:
        """Return True if some member may use a partition or still has to revoke it."""
        return (topic, partition) in self._owners

    def count_subscribers(self, regex: str) -> int:
        """Return the number of members that subscribe by a regular expression."""
        return self._regex_counts[regex]

    def subscribed_regexes(self) -> Iterable[str]:
        """Return the regular expressions that members subscribe by."""
        return [regex for regex, count in self._regex_counts.items() if count > 0]

    def subscribed_by(self, member: ConsumerGroupMember) -> frozenset[str]:
        """Return the topics of a member. A regex that is not resolved yet matches nothing."""
        names = frozenset(member.subscribed_names)
        resolved = self.regexes.get(member.subscribed_regex)
        return names if resolved is None else names | resolved.topics

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics of all members, in time that does not grow with their number."""
        return frozenset(self._name_counts).union(
            *(
                resolved.topics
                for regex, resolved in self.regexes.items()
                if self.count_subscribers(regex)
            )
        )

    def apply(self, record: GroupRecord) -> None:
        """Change the state as a record says."""
        _APPLY[type(record.key)](self, record.key, record.value)

    # --- records -----------------------------------------------------------------------------

    def _apply_group(self, key: Any, value: messages.ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_member(
        self, key: Any, value: messages.ConsumerGroupMemberMetadataValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        if member is not None:
            self._regex_counts[member.subscribed_regex] -= bool(member.subscribed_regex)
            self._unsubscribe(member)
            if member.instance_id is not None:
                self._static_members.pop(member.instance_id, None)
        if value is None:
            if member is not None:
                self._set_partitions(member, None)
                del self.members[key.member_id]
            return
        changed = with_metadata(member or ConsumerGroupMember(member_id=key.member_id), value)
        self.members[key.member_id] = changed
        self.most_members = max(self.most_members, len(self.members))
        self._regex_counts[changed.subscribed_regex] += bool(changed.subscribed_regex)
        self._name_counts.update(changed.subscribed_names)
        if changed.instance_id is not None:
            self._static_members[changed.instance_id] = changed.member_id

    def _unsubscribe(self, member: ConsumerGroupMember) -> None:
        counts = self._name_counts
        for name in member.subscribed_names:
            counts[name] -= 1
            if not counts[name]:
                del counts[name]

    def _apply_current(
        self, key: Any, value: messages.ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            before = member or ConsumerGroupMember(member_id=key.member_id)
            self._set_partitions(before, with_assignment(before, value))
        elif member is not None:
            released = replace(
                member,
                epoch=LEAVE_EPOCH,
                previous_epoch=LEAVE_EPOCH,
                state=MemberState.STABLE,
                assigned={},
                pending_revocation={},
            )
            self._set_partitions(member, released)

    def _set_partitions(
        self, before: ConsumerGroupMember, after: ConsumerGroupMember | None
    ) -> None:
        """Replace a member and move the ownership of partitions."""
        for partitions in (before.assigned, before.pending_revocation):
            for topic, epochs in partitions.items():
                for partition in epochs:
                    if self._owners.get((topic, partition)) == before.member_id:
                        del self._owners[topic, partition]
        self._reconciled.discard(before.member_id)
        if after is None:
            return
        for partitions in (after.assigned, after.pending_revocation):
            for topic, epochs in partitions.items():
                for partition in epochs:
                    self._owners[topic, partition] = after.member_id
        self.members[after.member_id] = after
        if after.is_reconciled_to(self.assignment_epoch):
            self._reconciled.add(after.member_id)

    def _apply_target(
        self, key: Any, value: messages.ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = to_target(value)

    def _apply_target_metadata(
        self, key: Any, value: messages.ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        if value is None or value.assignment_epoch == self.assignment_epoch:
            return
        self.assignment_epoch = value.assignment_epoch
        self._reconciled = {
            member.member_id
            for member in self.members.values()
            if member.is_reconciled_to(self.assignment_epoch)
        }

    def _apply_regex(
        self, key: Any, value: messages.ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )


_M = ConsumerGroupMetadata

_APPLY: Mapping[type[Message], Callable[[ConsumerGroupMetadata, Any, Any], None]] = (
    MappingProxyType(
        {
            messages.ConsumerGroupMetadataKey: _M._apply_group,
            messages.ConsumerGroupMemberMetadataKey: _M._apply_member,
            messages.ConsumerGroupCurrentMemberAssignmentKey: _M._apply_current,
            messages.ConsumerGroupTargetAssignmentMemberKey: _M._apply_target,
            messages.ConsumerGroupTargetAssignmentMetadataKey: _M._apply_target_metadata,
            messages.ConsumerGroupRegularExpressionKey: _M._apply_regex,
        }
    )
)
"""Change of the state by the class of a record's key."""
