"""State machine of a consumer group, as its coordinator sees it (KIP-848).

`ConsumerGroup.handle(event, now)` applies an event and returns effects: the records that it
appends, and replies. `TRANSITIONS` maps each kind of event to a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups.consumer_group import classic_protocol, records
from aiokafkawire.broker.groups.consumer_group.core import REBALANCE, GroupCore
from aiokafkawire.broker.groups.consumer_group.events import (
    AppendRecords,
    ConsumerGroupHeartbeat,
    Effect,
    RegexesResolved,
    failed_reply,
)
from aiokafkawire.broker.groups.consumer_group.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
)
from aiokafkawire.broker.groups.consumer_group.metadata import ConsumerGroupState
from aiokafkawire.broker.groups.consumer_group.records import GroupRecord
from aiokafkawire.broker.groups.consumer_group.regexes import InvalidRegex, compile_pattern
from aiokafkawire.broker.groups.consumer_group.topics import metadata_hash
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
from aiokafkawire.runtime.state_machine import each_of, transition
from aiokafkawire.wire import ErrorCode

__all__ = ("TRANSITIONS", "ConsumerGroup")


class ConsumerGroup(GroupCore):
    """One group. Times are in seconds of the caller's clock."""

    # --- interface ---------------------------------------------------------------------------

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Apply an event; return effects in the order in which they are due."""
        try:
            transition(TRANSITIONS, self.data.state, event)(self, event, now)
        except ApiError as error:
            # A group that was made for this event is dropped; others have written nothing yet.
            self.take_effects()
            self.add(failed_reply(event, error))
        written, effects = self.take_effects()
        return [AppendRecords(written), *effects] if written else effects

    def load(self, loaded: Iterable[GroupRecord], now: float) -> None:
        """Restore the group from its records; all timers start again."""
        for record in loaded:
            self.data.apply(record)
        for member in self.data.members.values():
            self.extend_session(member, now)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.start_rebalance_timer(member, now)

    def adopt(self, members: Iterable[ConsumerGroupMember], epoch: int) -> None:
        """Take the members of a classic group, whose generation becomes the epoch."""
        members = tuple(members)
        for member in members:
            self.write(records.member_metadata(self.group_id, member))
        known_hash = metadata_hash(self.data.subscribed_topics(), self.topics)
        self.write(records.group_metadata(self.group_id, epoch, known_hash))
        for member in members:
            target = {topic: tuple(parts) for topic, parts in member.assigned.items()}
            self.write(records.target_assignment(self.group_id, member.member_id, target))
        self.write(records.assignment_metadata(self.group_id, epoch, 0))
        for member in members:
            self.write(records.current_assignment(self.group_id, member))

    def next_deadline(self) -> float:
        """Return the time of the next `GroupDeadlineReached` event."""
        return self.timers.next()

    @property
    def is_unused(self) -> bool:
        return not self.data.members

    # --- heartbeats --------------------------------------------------------------------------

    def _on_heartbeat(self, event: ConsumerGroupHeartbeat, now: float) -> None:
        if event.member_epoch in {LEAVE_EPOCH, LEAVE_STATIC_EPOCH}:
            self._on_leave_heartbeat(event, now)
            return
        if event.member_epoch == JOIN_EPOCH:
            self.check_size(event.member_id)
        if event.subscribed_regex:
            _check_regex(event.subscribed_regex)
        member = self._find_heartbeating(event)
        after = self.update_member(
            member, _merged(member, event), event.owned, now, event.timestamp_ms
        )
        self.extend_session(after, now)
        is_informed = event.member_epoch == JOIN_EPOCH or event.is_full
        result = HeartbeatResult(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self.settings.heartbeat_interval_ms,
            assignment={topic: tuple(parts) for topic, parts in after.assigned.items()}
            if is_informed or _partitions(after) != _partitions(member)
            else None,
        )
        self.add(GroupReply(event.reply, result))
        self.request_regexes(now)

    def _find_heartbeating(self, event: ConsumerGroupHeartbeat) -> ConsumerGroupMember:
        """Return the member of a heartbeat; a new one if it joins. Raises `ApiError`."""
        joins = event.member_epoch == JOIN_EPOCH
        if event.instance_id is not None:
            member = self.data.static_member(event.instance_id)
            if joins:
                return self.join_static(member, event.member_id, event.instance_id)
            member = self.check_instance(event.member_id, event.instance_id)
        else:
            found = self.data.members.get(event.member_id)
            if found is None and joins:
                return ConsumerGroupMember(member_id=event.member_id)
            member = self.get_member(event.member_id)
        if not joins:
            _check_epoch(member, event.member_epoch, event.owned)
        return member

    # --- leaving -----------------------------------------------------------------------------

    def _on_leave_heartbeat(self, event: ConsumerGroupHeartbeat, now: float) -> None:
        if event.instance_id is None:
            member = self.get_member(event.member_id)
        else:
            member = self.check_instance(event.member_id, event.instance_id)
        if event.member_epoch == LEAVE_STATIC_EPOCH:
            # The member returns: it keeps its partitions until its session times out. It has
            # revoked what it was asked to.
            left = replace(member, epoch=LEAVE_STATIC_EPOCH, pending_revocation={})
            self.write(records.current_assignment(self.group_id, left))
            self.timers.cancel((REBALANCE, member.member_id))
            self.extend_session(left, now)
        else:
            self.remove([member])
        result = HeartbeatResult(member_id=event.member_id, member_epoch=event.member_epoch)
        self.add(GroupReply(event.reply, result))

    def _on_leave(self, event: Leave, now: float) -> None:
        """Remove a member that an admin client or a classic member names."""
        if event.instance_id is not None and not event.member_id:
            member = self.data.static_member(event.instance_id)
        elif event.instance_id is not None:
            member = self.check_instance(event.member_id, event.instance_id)
        else:
            member = self.data.members.get(event.member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.remove([member])
        self.add(GroupReply(event.reply, ErrorCode.NONE))

    def _on_regexes_resolved(self, event: RegexesResolved, now: float) -> None:
        self.resolve_regexes(event, now)

    # --- time, and the rest ------------------------------------------------------------------

    def _on_deadline(self, event: GroupDeadlineReached, now: float) -> None:
        expired = dict.fromkeys(member_id for _, member_id in self.timers.take_expired(now))
        members = [self.data.members[each] for each in expired if each in self.data.members]
        if members:
            self.remove(members)

    def _on_delete(self, event: Delete, now: float) -> None:
        code = ErrorCode.NON_EMPTY_GROUP if self.data.members else ErrorCode.NONE
        self.add(GroupReply(event.reply, code))


def _merged(member: ConsumerGroupMember, event: ConsumerGroupHeartbeat) -> ConsumerGroupMember:
    """Return the member with the fields that a heartbeat gives."""
    names, regex = event.subscribed_names, event.subscribed_regex
    timeout_ms = event.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if event.instance_id is None else event.instance_id,
        rack_id=member.rack_id if event.rack_id is None else event.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=event.server_assignor or member.server_assignor,
        subscribed_names=member.subscribed_names if names is None else tuple(sorted(set(names))),
        subscribed_regex=member.subscribed_regex if regex is None else regex,
        client_id=event.client_id,
        client_host=event.client_host,
        classic=None,
    )


def _partitions(member: ConsumerGroupMember) -> dict[Any, frozenset[int]]:
    return {topic: frozenset(parts) for topic, parts in member.assigned.items()}


def _check_epoch(member: ConsumerGroupMember, epoch: int, owned: OwnedPartitions | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is the member's.

    The previous epoch is accepted if the member owns no more than it may: the response with the
    current epoch was lost.
    """
    if epoch == member.epoch:
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    was_response_lost = (
        relation == "smaller"
        and epoch == member.previous_epoch
        and owned is not None
        and all(parts <= member.assigned.get(topic, {}).keys() for topic, parts in owned.items())
    )
    if not was_response_lost:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {relation} member epoch ({epoch}) than the one known"
            f" by the group coordinator ({member.epoch}). The member must abandon all its"
            " partitions and rejoin.",
        )


def _check_regex(regex: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION unless RE2 knows the syntax."""
    try:
        compile_pattern(regex)
    except InvalidRegex as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from error


TRANSITIONS: Mapping[
    tuple[ConsumerGroupState, type], Callable[[ConsumerGroup, Any, float], None]
] = MappingProxyType(
    each_of(
        ConsumerGroupState,
        {
            ConsumerGroupHeartbeat: ConsumerGroup._on_heartbeat,
            Join: classic_protocol.join,
            Sync: classic_protocol.sync,
            Heartbeat: classic_protocol.heartbeat,
            Leave: ConsumerGroup._on_leave,
            RegexesResolved: ConsumerGroup._on_regexes_resolved,
            GroupDeadlineReached: ConsumerGroup._on_deadline,
            Delete: ConsumerGroup._on_delete,
        },
    )
)
"""Handler of an event in a state. The state follows from the members and their epochs."""
