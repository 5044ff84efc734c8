"""State machine of a share group, as its coordinator sees it (KIP-932).

`ShareGroup.handle(event, now)` applies an event and returns effects: the records that it appends,
replies, and share partitions to initialize. `TRANSITIONS` maps each kind of event to a handler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups.consumer_group.deadlines import Deadlines
from aiokafkawire.broker.groups.consumer_group.events import AppendRecords
from aiokafkawire.broker.groups.consumer_group.events import failed_reply as failed_classic_reply
from aiokafkawire.broker.groups.consumer_group.member import JOIN_EPOCH, LEAVE_EPOCH
from aiokafkawire.broker.groups.consumer_group.records import GroupRecord, tombstone
from aiokafkawire.broker.groups.consumer_group.topics import NO_TOPICS, metadata_hash
from aiokafkawire.broker.groups.events import (
    Delete,
    GroupDeadlineReached,
    GroupReply,
    Heartbeat,
    HeartbeatResult,
    Join,
    Leave,
    Sync,
)
from aiokafkawire.broker.groups.share_group import records
from aiokafkawire.broker.groups.share_group.assignor import NAME, assign_simple
from aiokafkawire.broker.groups.share_group.events import (
    InitializePartitions,
    PartitionsInitialized,
    ShareEffect,
    ShareGroupHeartbeat,
    ShareGroupSettings,
    StatesChanged,
)
from aiokafkawire.broker.groups.share_group.member import ShareGroupMember
from aiokafkawire.broker.groups.share_group.metadata import ShareGroupMetadata, ShareGroupState
from aiokafkawire.runtime.state_machine import each_of, transition
from aiokafkawire.wire import ErrorCode

__all__ = ("TRANSITIONS", "ShareGroup", "failed_reply")


class ShareGroup:
    """One group. Times are in seconds of the caller's clock.

    The caller sets `settings` and `topics` to the current ones before each event.
    """

    assignor = NAME

    def __init__(self, group_id: str, settings: ShareGroupSettings | None = None) -> None:
        self.group_id = group_id
        self.settings = settings or ShareGroupSettings()
        self.topics = NO_TOPICS
        self.data = ShareGroupMetadata(group_id)
        self.data.epoch = self.settings.first_epoch
        self.sessions: Deadlines[str] = Deadlines()
        self._seen_topics = NO_TOPICS.version
        self._assigned_at = -math.inf
        self._has_new_partitions = False
        self._written: list[GroupRecord] = []
        self._effects: list[ShareEffect] = []

    # --- interface ---------------------------------------------------------------------------

    def handle(self, event: Any, now: float) -> list[ShareEffect]:
        """Apply an event; return effects in the order in which they are due."""
        try:
            transition(TRANSITIONS, self.data.state, event)(self, event, now)
        except ApiError as error:
            # A group that was made for this event is dropped; others have written nothing yet.
            self._written.clear()
            self._effects = [failed_reply(event, error)]
        written, self._written = tuple(self._written), []
        effects, self._effects = self._effects, []
        return [AppendRecords(written), *effects] if written else effects

    def load(self, loaded: Iterable[GroupRecord], now: float) -> None:
        """Restore the group from its records; all sessions start again."""
        for record in loaded:
            self.data.apply(record)
        for member in self.data.members.values():
            self._extend_session(member, now)
        self._has_new_partitions = True

    def next_deadline(self) -> float:
        """Return the time of the next `GroupDeadlineReached` event."""
        return self.sessions.next()

    @property
    def members(self) -> Mapping[str, ShareGroupMember]:
        return self.data.members

    @property
    def is_unused(self) -> bool:
        return not self.data.members

    def _write(self, record: GroupRecord) -> None:
        """Change the state by a record, which is appended."""
        self.data.apply(record)
        self._written.append(record)

    # --- heartbeats --------------------------------------------------------------------------

    def _on_heartbeat(self, event: ShareGroupHeartbeat, now: float) -> None:
        if event.member_epoch == LEAVE_EPOCH:
            self._remove([self._get_member(event.member_id)])
            left = HeartbeatResult(member_id=event.member_id, member_epoch=LEAVE_EPOCH)
            self._effects.append(GroupReply(event.reply, left))
            return
        member = self._find_heartbeating(event)
        updated = _merged(member, event)
        self._update_metadata(member, updated)
        self._assign(now, event.timestamp_ms)
        after = self._reconciled(updated)
        if after != self.data.members.get(after.member_id) or event.member_epoch == JOIN_EPOCH:
            self._write(records.current_assignment(self.group_id, after))
        self._extend_session(after, now)
        is_informed = (
            event.member_epoch == JOIN_EPOCH
            or event.subscribed_names is not None
            or after.assigned != member.assigned
        )
        result = HeartbeatResult(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self.settings.heartbeat_interval_ms,
            assignment=after.assigned if is_informed else None,
        )
        self._effects.append(GroupReply(event.reply, result))
        self._initialize()

    def _find_heartbeating(self, event: ShareGroupHeartbeat) -> ShareGroupMember:
        """Return the member of a heartbeat; a new one if it joins. Raises `ApiError`."""
        joins = event.member_epoch == JOIN_EPOCH
        member = self.data.members.get(event.member_id)
        if member is None and joins:
            self._check_size()
            return ShareGroupMember(member_id=event.member_id)
        member = self._get_member(event.member_id)
        if not joins:
            _check_epoch(member, event.member_epoch)
        return member

    def _get_member(self, member_id: str) -> ShareGroupMember:
        member = self.data.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def _check_size(self) -> None:
        size = self.settings.max_size
        if len(self.data.members) >= size:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {size} members.",
            )

    def _update_metadata(self, member: ShareGroupMember, updated: ShareGroupMember) -> None:
        """Write a changed member; start the next epoch if it or the topics changed."""
        is_new = updated.member_id not in self.data.members
        if is_new or updated != member:
            self._write(records.member_metadata(self.group_id, updated))
        bumps = set(updated.subscribed_names) != set(member.subscribed_names)
        new_hash = self.data.metadata_hash
        if bumps or self._seen_topics != self.topics.version:
            self._seen_topics = self.topics.version
            new_hash = metadata_hash(self.data.subscribed_topics(), self.topics)
        if bumps or new_hash != self.data.metadata_hash or self._takes_new_partitions():
            self._write(records.group_metadata(self.group_id, self.data.epoch + 1, new_hash))

    def _takes_new_partitions(self) -> bool:
        """Return True if partitions were initialized that nobody is assigned to yet."""
        if not self._has_new_partitions:
            return False
        self._has_new_partitions = False
        assigned = {
            (topic, part)
            for target in self.data.target.values()
            for topic, parts in target.items()
            for part in parts
        }
        return any(
            (topic, part) not in assigned
            for topic, parts in self._assignable().items()
            for part in parts
        )

    # --- assignment --------------------------------------------------------------------------

    def _assignable(self) -> dict[UUID, list[int]]:
        """Return the partitions of subscribed topics that are initialized."""
        ids = self.topics.ids(self.data.subscribed_topics())
        return {
            topic: sorted(parts)
            for topic, (_, parts) in self.data.initialized.items()
            if topic in ids
        }

    def _assign(self, now: float, timestamp_ms: int) -> None:
        """Compute the target assignment if the group has a new epoch and the interval is over."""
        data = self.data
        due_at = self._assigned_at + self.settings.assignment_interval_s
        if data.epoch <= data.assignment_epoch or now < due_at:
            return
        subscriptions = {
            member.member_id: self.topics.ids(member.subscribed_names)
            for member in data.members.values()
        }
        target = assign_simple(subscriptions, self._assignable(), data.target)
        for member_id in data.members:
            if data.target.get(member_id) != target[member_id]:
                assigned = target[member_id]
                self._write(records.target_assignment(self.group_id, member_id, assigned))
        self._write(records.assignment_metadata(self.group_id, data.epoch, timestamp_ms))
        self._assigned_at = now

    def _reconciled(self, member: ShareGroupMember) -> ShareGroupMember:
        """Return a member with its target assignment. Share partitions need no revocation."""
        epoch = self.data.assignment_epoch
        subscribed = self.topics.ids(member.subscribed_names)
        assigned = {
            topic: parts
            for topic, parts in self.data.target.get(member.member_id, {}).items()
            if topic in subscribed
        }
        if member.epoch == epoch:
            return replace(member, assigned=assigned)
        return replace(member, epoch=epoch, previous_epoch=member.epoch, assigned=assigned)

    def _initialize(self) -> None:
        """Give partitions of subscribed topics a state; forget topics that were deleted."""
        data = self.data
        known = {
            topic: entry for topic, entry in data.initialized.items() if topic in self.topics.names
        }
        missing = {}
        for name in sorted(data.subscribed_topics()):
            topic = self.topics.topics.get(name)
            if topic is None:
                continue
            _, present = known.get(topic.topic_id, (name, frozenset()))
            new = frozenset(range(topic.partitions)) - present
            if new:
                missing[topic.topic_id] = (name, new)
        if not missing and len(known) == len(data.initialized):
            return
        self._write(records.state_partitions(self.group_id, missing, known))
        if missing:
            self._effects.append(
                InitializePartitions(
                    tuple(
                        (topic, part) for topic, (_, new) in missing.items() for part in sorted(new)
                    ),
                    data.epoch,
                )
            )

    def _on_initialized(self, event: PartitionsInitialized, now: float) -> None:
        data = self.data
        initialized = _joined(data.initialized, data.initializing)
        self._write(records.state_partitions(self.group_id, {}, initialized))
        self._has_new_partitions = True

    def _on_states_changed(self, event: StatesChanged, now: float) -> None:
        if self.data.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        added: dict[UUID, tuple[str, frozenset[int]]] = {}
        for topic, name, part in event.initialized:
            added = dict(_joined(added, {topic: (name, frozenset({part}))}))
        kept = {
            topic: entry
            for topic, entry in self.data.initialized.items()
            if topic not in event.deleted
        }
        if not self.data.assignment_epoch:
            # Kafka gives a group that an admin client creates its first epoch.
            epoch = self.settings.first_epoch
            self._write(records.group_metadata(self.group_id, epoch, 0))
            self._write(records.assignment_metadata(self.group_id, epoch, 0))
        self._write(records.state_partitions(self.group_id, {}, _joined(kept, added)))
        self._effects.append(GroupReply(event.reply, ErrorCode.NONE))

    # --- removal -----------------------------------------------------------------------------

    def _remove(self, members: Iterable[ShareGroupMember]) -> None:
        for member in members:
            self._write(tombstone(records.current_assignment(self.group_id, member)))
            self._write(tombstone(records.target_assignment(self.group_id, member.member_id, {})))
            self._write(tombstone(records.member_metadata(self.group_id, member)))
            self.sessions.cancel(member.member_id)
        new_hash = metadata_hash(self.data.subscribed_topics(), self.topics)
        self._write(records.group_metadata(self.group_id, self.data.epoch + 1, new_hash))

    def _on_classic_request(self, event: Join | Sync | Heartbeat | Leave, now: float) -> None:
        """Refuse a request of a classic member."""
        joins = isinstance(event, Join)
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL if joins else ErrorCode.UNKNOWN_MEMBER_ID
        )

    def _on_deadline(self, event: GroupDeadlineReached, now: float) -> None:
        expired = self.sessions.take_expired(now)
        members = [self.data.members[each] for each in expired if each in self.data.members]
        if members:
            self._remove(members)

    def _on_delete(self, event: Delete, now: float) -> None:
        code = ErrorCode.NON_EMPTY_GROUP if self.data.members else ErrorCode.NONE
        self._effects.append(GroupReply(event.reply, code))

    def _extend_session(self, member: ShareGroupMember, now: float) -> None:
        self.sessions.set(member.member_id, now + self.settings.session_timeout_s)


def failed_reply(event: Any, error: ApiError) -> GroupReply:
    """Return the reply to an event that failed."""
    if isinstance(event, ShareGroupHeartbeat):
        return GroupReply(event.reply, HeartbeatResult(code=error.code, message=error.message))
    return failed_classic_reply(event, error)


def _merged(member: ShareGroupMember, event: ShareGroupHeartbeat) -> ShareGroupMember:
    """Return the member with the fields that a heartbeat gives."""
    names = event.subscribed_names
    return replace(
        member,
        rack_id=member.rack_id if event.rack_id is None else event.rack_id,
        subscribed_names=member.subscribed_names if names is None else tuple(sorted(set(names))),
        client_id=event.client_id,
        client_host=event.client_host,
    )


def _joined(
    one: records.PartitionsByTopic, other: records.PartitionsByTopic
) -> records.PartitionsByTopic:
    """Return the partitions of both."""
    joined = dict(one)
    for topic, (name, parts) in other.items():
        joined[topic] = (name, joined.get(topic, (name, frozenset()))[1] | parts)
    return joined


def _check_epoch(member: ShareGroupMember, epoch: int) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is the member's or its previous one."""
    if epoch in {member.epoch, member.previous_epoch}:
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    and_previous = (
        ""
        if relation == "greater"
        else f", and it does not match the previous member epoch ({member.previous_epoch})"
    )
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {relation} member epoch ({epoch}) than the one known"
        f" by the group coordinator ({member.epoch}){and_previous}. The member must abandon all"
        " its partitions and rejoin.",
    )


TRANSITIONS: Mapping[tuple[ShareGroupState, type], Callable[[ShareGroup, Any, float], None]] = (
    MappingProxyType(
        each_of(
            ShareGroupState,
            {
                ShareGroupHeartbeat: ShareGroup._on_heartbeat,
                PartitionsInitialized: ShareGroup._on_initialized,
                StatesChanged: ShareGroup._on_states_changed,
                Join: ShareGroup._on_classic_request,
                Sync: ShareGroup._on_classic_request,
                Heartbeat: ShareGroup._on_classic_request,
                Leave: ShareGroup._on_classic_request,
                GroupDeadlineReached: ShareGroup._on_deadline,
                Delete: ShareGroup._on_delete,
            },
        )
    )
)
"""Handler of an event in a state."""
