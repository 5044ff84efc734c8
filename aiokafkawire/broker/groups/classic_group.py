"""State machine of a classic group, as its coordinator sees it.

`ClassicGroup.handle(event, now)` applies an event and returns the replies that it causes, to the
event's own request or to requests that waited. `TRANSITIONS` maps each state and event to a handler
and the states that may follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups.events import (
    ClassicGroupState,
    CoordinatorChanged,
    Delete,
    Event,
    GroupDeadlineReached,
    GroupReply,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    Sync,
    SyncResult,
    ValidateOffsetCommit,
)
from aiokafkawire.broker.groups.group_membership import NEW_MEMBER_TIMEOUT_S, GroupMembership
from aiokafkawire.broker.groups.members import (
    MAX_PENDING_MEMBERS,
    ClassicGroupMember,
    DelayedJoin,
    PersistedGroup,
    accepts_joining_member,
    common_protocols,
    elect_protocol,
    first_member,
)
from aiokafkawire.runtime.state_machine import transition
from aiokafkawire.wire import ErrorCode

__all__ = (
    "TRANSITIONS",
    "ClassicGroup",
    "GroupTransition",
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicGroupState


class ClassicGroup(GroupMembership):
    """One group. Times are in seconds of the caller's clock."""

    def handle(self, event: Event, now: float) -> list[GroupReply]:
        """Apply an event; return replies in the order in which they are due."""
        transition_row = transition(TRANSITIONS, self.state, event)
        before = self.state
        transition_row.action(self, event, now)
        assert self.state in transition_row.next_states, (
            f"{before} -> {self.state} at {type(event).__name__}"
        )
        replies, self._replies = self._replies, []
        return replies

    def restore(self, persisted: PersistedGroup, now: float, *, rebalances: bool = True) -> None:
        """Take the members of a consumer group, which rejoin if it rebalances."""
        self._persisted = persisted
        self._on_coordinator_changed(CoordinatorChanged(loaded_at=now), now)
        if rebalances:
            self._prepare_rebalance(now)

    def fail_waiting(self, code: ErrorCode) -> list[GroupReply]:
        """Answer all requests that wait with an error."""
        for member in self.members.values():
            self._fail_pending_replies(member, code)
        replies, self._replies = self._replies, []
        return replies

    def next_deadline(self) -> float:
        """Return the time of the next `GroupDeadlineReached` event."""
        deadlines = [member.session_deadline for member in self.members.values()]
        deadlines += self.pending_members.values()
        if self.state is PREPARING:
            deadlines.append(self._delayed_join.deadline)
        deadlines.append(self._sync_deadline)
        return min(deadlines)

    # --- JoinGroup ---------------------------------------------------------------------------

    def _on_join(self, event: Join, now: float) -> None:
        try:
            self._check_join(event)
            if event.member_id:
                self._join_existing(event, now)
            elif event.instance_id is not None:
                self._join_static(event, now)
            elif event.requires_known_member_id:
                if len(self.pending_members) >= MAX_PENDING_MEMBERS:
                    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                self.pending_members[event.new_member_id] = now + event.session_timeout_s
                raise ApiError(ErrorCode.MEMBER_ID_REQUIRED)
            else:
                self._add_member(event.new_member_id, event, now)
        except ApiError as error:
            member_id = event.member_id
            if error.code is ErrorCode.MEMBER_ID_REQUIRED:
                member_id = event.new_member_id
            elif error.code is ErrorCode.GROUP_MAX_SIZE_REACHED:
                self.pending_members.pop(member_id, None)
                if member_id in self.members:
                    self._remove_member(self.members[member_id])
                member_id = ""
            self._reply(event.reply, JoinResult(code=error.code, member_id=member_id))

    def _on_join_dead(self, event: Join, now: float) -> None:
        del now
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._reply(event.reply, JoinResult(code=code, member_id=event.member_id))

    def _check_join(self, event: Join) -> None:
        if not accepts_joining_member(self.state, self.members, event.member_id, self._max_size):
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        names = [name for name, _ in event.protocols]
        if not event.protocol_type or not names:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.members:
            common = common_protocols(self.members.values())
            fits = any(name in names for name in common)
            if event.protocol_type != self.protocol_type or not fits:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _join_existing(self, event: Join, now: float) -> None:
        if event.member_id in self.pending_members:
            del self.pending_members[event.member_id]
            self._add_member(event.member_id, event, now)
            return
        member = self._get_member(event.member_id, event.instance_id)
        changed = member.protocols != event.protocols
        leads = member.member_id == self.leader
        if self.state is PREPARING or changed or (self.state is STABLE and leads):
            self._update_member(member, event, now)
        else:
            # The previous response was lost: the member is still in this generation.
            self._extend_session(member, now)
            self._reply(
                event.reply, self._join_result(member, with_members=self.state is COMPLETING)
            )

    def _join_static(self, event: Join, now: float) -> None:
        """Add a static member without a member id, or replace the one with its instance id."""
        old = next(
            (member for member in self.members.values() if member.instance_id == event.instance_id),
            None,
        )
        if old is None:
            self._add_member(event.new_member_id, event, now)
            return
        led = old.member_id == self.leader
        member = self._replace_static_member(old, event.new_member_id)
        member.client_id, member.client_host = event.client_id, event.client_host
        if self.state is STABLE:
            member.protocols = event.protocols
        if self.state is not STABLE or elect_protocol(list(self.members.values())) != self.protocol:
            self._update_member(member, event, now)
            return
        # The subscription may have changed; the leader notices and triggers a rebalance.
        member.session_timeout_s = event.session_timeout_s
        member.rebalance_timeout_s = event.rebalance_timeout_s
        self._extend_session(member, now)
        self._persisted = self._snapshot()
        result = self._join_result(member, with_members=led and event.supports_skipping_assignment)
        if led and event.supports_skipping_assignment:
            result = replace(result, skip_assignment=True)
        elif led:
            # An older client would compute a new assignment if the response named it as leader.
            result = replace(result, leader=old.member_id)
        self._reply(event.reply, result)

    def _add_member(self, member_id: str, event: Join, now: float) -> None:
        if not self.members:
            self.protocol_type = event.protocol_type
            self.leader = member_id
        self.members[member_id] = ClassicGroupMember.from_join(
            member_id, event, now + NEW_MEMBER_TIMEOUT_S
        )
        if self.state is PREPARING and self._delayed_join.initial:
            self._delayed_join.has_new_member = True
        self._prepare_rebalance(now)

    def _update_member(self, member: ClassicGroupMember, event: Join, now: float) -> None:
        self._fail_pending_replies(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.protocols = event.protocols
        member.session_timeout_s = event.session_timeout_s
        member.rebalance_timeout_s = event.rebalance_timeout_s
        member.join_reply = event.reply
        self._extend_session(member, now)
        self._prepare_rebalance(now)

    # --- the rebalance -----------------------------------------------------------------------

    def _prepare_rebalance(self, now: float) -> None:
        """Start waiting for all members to join, unless the group already does."""
        if self.state is not PREPARING:
            if self.state is COMPLETING:
                self._reset_assignments()
            self._end_sync_phase()
            members = self.members.values()
            self._delayed_join = (
                DelayedJoin.initial_for(members, now, self._initial_delay_s)
                if self.state is EMPTY
                else DelayedJoin.for_members(members, now)
            )
            self.state = PREPARING
        self._maybe_complete_join(now)

    def _maybe_complete_join(self, now: float) -> None:
        """Complete the rebalance once all members have joined or its timeout has passed."""
        if self._can_complete_join():
            self._complete_join(now)
        elif self._delayed_join.deadline <= now:
            self._on_rebalance_timeout(now)

    def _can_complete_join(self) -> bool:
        if self._delayed_join.initial and self.members:
            # The first rebalance always lasts group.initial.rebalance.delay.ms (KIP-134).
            return False
        joined = all(member.join_reply is not None for member in self.members.values())
        return joined and not self.pending_members

    def _on_rebalance_timeout(self, now: float) -> None:
        delayed_join = self._delayed_join
        if delayed_join.initial and delayed_join.has_new_member and delayed_join.remaining_s > 0:
            # More members are joining: extend the delay, up to the rebalance timeout.
            delay = min(self._initial_delay_s, delayed_join.remaining_s)
            remaining_s = delayed_join.remaining_s - delay
            self._delayed_join = DelayedJoin(now + delay, initial=True, remaining_s=remaining_s)
        else:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        """Start the next generation with the members that joined."""
        for member in list(self.members.values()):
            # A static member stays until its session expires.
            if member.join_reply is None and member.instance_id is None:
                self._remove_member(member)
        joined = [member for member in self.members.values() if member.join_reply is not None]
        if self.members and not joined:
            self._delayed_join = DelayedJoin.for_members(self.members.values(), now)
            return
        self.generation += 1
        if not self.members:
            self.protocol = None
            self.leader = ""
            self._transition_to(EMPTY)
            return
        if self.members[self.leader].join_reply is None:
            self.leader = first_member(member.member_id for member in joined)
        self.protocol = elect_protocol(list(self.members.values()))
        self.state = COMPLETING
        self._pending_sync_members = dict.fromkeys(self.members)
        self._sync_deadline = DelayedJoin.for_members(self.members.values(), now).deadline
        for member in self.members.values():
            # A static member that has not rejoined may do so within one more session.
            member.is_new = False
            self._extend_session(member, now)
        for member in joined:
            reply, member.join_reply = member.join_reply, None
            self._reply(reply, self._join_result(member, with_members=True))

    # --- SyncGroup ---------------------------------------------------------------------------

    def _on_sync(self, event: Sync, now: float) -> None:
        try:
            member = self._get_member(event.member_id, event.instance_id)
            self._check_generation(event.generation)
            for requested, current in (
                (event.protocol_type, self.protocol_type),
                (event.protocol, self.protocol),
            ):
                if requested is not None and requested != current:
                    raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if self.state is PREPARING:
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        except ApiError as error:
            self._reply(event.reply, SyncResult(code=error.code))
            return
        self._remove_pending_sync_member(member.member_id)
        self._extend_session(member, now)
        if self.state is STABLE:
            self._reply(event.reply, self._sync_result(member))
            return
        self._reply_to_sync(member, SyncResult(code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = event.reply
        if member.member_id == self.leader:
            self._set_assignments(event.assignments, now)

    def _on_sync_rejected(self, event: Sync, now: float) -> None:
        del now
        dead = self.state is DEAD
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if dead else ErrorCode.UNKNOWN_MEMBER_ID
        self._reply(event.reply, SyncResult(code=code))

    def _set_assignments(self, assignments: Mapping[str, bytes], now: float) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._transition_to(STABLE)
        for member in self.members.values():
            if member.sync_reply is not None:
                self._extend_session(member, now)
                self._reply_to_sync(member, self._sync_result(member))

    def _sync_result(self, member: ClassicGroupMember) -> SyncResult:
        return SyncResult(
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            assignment=member.assignment,
        )

    # --- Heartbeat, OffsetCommit, LeaveGroup -------------------------------------------------

    def _on_heartbeat(self, event: Heartbeat, now: float) -> None:
        try:
            member = self._get_member(event.member_id, event.instance_id)
            self._check_generation(event.generation)
        except ApiError as error:
            self._reply(event.reply, error.code)
            return
        self._extend_session(member, now)
        code = ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE
        self._reply(event.reply, code)

    def _on_rejected(self, event: Heartbeat | Leave, now: float) -> None:
        del now
        dead = self.state is DEAD
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if dead else ErrorCode.UNKNOWN_MEMBER_ID
        self._reply(event.reply, code)

    def _on_commit(self, event: ValidateOffsetCommit, now: float) -> None:
        try:
            if event.generation >= 0 or event.member_id or event.instance_id is not None:
                member = self._get_member(event.member_id, event.instance_id)
                self._check_generation(event.generation)
                self._extend_session(member, now)
            elif self.state is not EMPTY and not event.transactional:
                # In a group with members, only members may commit.
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if self.state is COMPLETING and not event.transactional:
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        except ApiError as error:
            self._reply(event.reply, error.code)
            return
        self._reply(event.reply, ErrorCode.NONE)

    def _on_commit_empty(self, event: ValidateOffsetCommit, now: float) -> None:
        if event.generation < 0:
            self._reply(event.reply, ErrorCode.NONE)
        else:
            self._on_commit(event, now)

    def _on_commit_dead(self, event: ValidateOffsetCommit, now: float) -> None:
        del now
        self._reply(event.reply, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _on_leave(self, event: Leave, now: float) -> None:
        if event.member_id in self.pending_members and event.instance_id is None:
            del self.pending_members[event.member_id]
            if event.always_rebalances and self.state is not EMPTY:
                self._prepare_rebalance(now)
            elif self.state is PREPARING:
                self._maybe_complete_join(now)
        else:
            try:
                member = self._find_leaving_member(event)
            except ApiError as error:
                self._reply(event.reply, error.code)
                return
            self._remove_member(member)
            self._prepare_rebalance(now)
        self._reply(event.reply, ErrorCode.NONE)

    # --- time, and the rest ------------------------------------------------------------------

    def _on_tick(self, event: GroupDeadlineReached, now: float) -> None:
        del event
        for member_id in [key for key, deadline in self.pending_members.items() if deadline <= now]:
            del self.pending_members[member_id]
        expired = [member for member in self.members.values() if member.session_deadline <= now]
        removed = False
        for member in expired:
            if member.is_waiting and not member.is_new:
                # A member that waits for the others sends no heartbeats.
                self._extend_session(member, now)
            else:
                self._remove_member(member)
                removed = True
        if self._sync_deadline <= now:
            for member_id in list(self._pending_sync_members):
                if member_id in self.members:
                    self._remove_member(self.members[member_id])
                    removed = True
            self._end_sync_phase()
        if removed:
            self._prepare_rebalance(now)
        elif self.state is PREPARING:
            self._maybe_complete_join(now)

    def _on_coordinator_changed(self, event: CoordinatorChanged, now: float) -> None:
        for member in self.members.values():
            self._fail_pending_replies(member, ErrorCode.NOT_COORDINATOR)
        persisted = self._persisted
        self.generation, self.leader = persisted.generation, persisted.leader
        self.protocol_type, self.protocol = persisted.protocol_type, persisted.protocol
        self.members = {member.member_id: replace(member) for member in persisted.members}
        for member in self.members.values():
            self._extend_session(member, max(now, event.loaded_at))
        self.pending_members = {}
        self._end_sync_phase()
        self.state = persisted.state

    def _on_delete(self, event: Delete, now: float) -> None:
        del now
        # Members that only have an id do not count; they get an error when they rejoin.
        self.pending_members = {}
        self._transition_to(DEAD)
        self._reply(event.reply, ErrorCode.NONE)

    def _on_delete_rejected(self, event: Delete, now: float) -> None:
        del now
        dead = self.state is DEAD
        code = ErrorCode.GROUP_ID_NOT_FOUND if dead else ErrorCode.NON_EMPTY_GROUP
        self._reply(event.reply, code)

    def _ignore(self, event: Event, now: float) -> None:
        del event, now


class GroupTransition(NamedTuple):
    """Handler of an event in a state, and the states that may follow."""

    action: Callable[[ClassicGroup, Any, float], None]
    next_states: tuple[ClassicGroupState, ...]


_G = ClassicGroup
_REBALANCED = (PREPARING, COMPLETING, EMPTY)

TRANSITIONS: Mapping[tuple[ClassicGroupState, type[Event]], GroupTransition] = MappingProxyType(
    {
        (EMPTY, Join): GroupTransition(_G._on_join, (EMPTY, PREPARING, COMPLETING)),
        (EMPTY, Sync): GroupTransition(_G._on_sync_rejected, (EMPTY,)),
        (EMPTY, Heartbeat): GroupTransition(_G._on_rejected, (EMPTY,)),
        (EMPTY, Leave): GroupTransition(_G._on_leave, (EMPTY,)),
        (EMPTY, ValidateOffsetCommit): GroupTransition(_G._on_commit_empty, (EMPTY,)),
        (EMPTY, GroupDeadlineReached): GroupTransition(_G._on_tick, (EMPTY,)),
        (EMPTY, CoordinatorChanged): GroupTransition(_G._on_coordinator_changed, (EMPTY,)),
        (EMPTY, Delete): GroupTransition(_G._on_delete, (DEAD,)),
        (PREPARING, Join): GroupTransition(_G._on_join, (PREPARING, COMPLETING)),
        (PREPARING, Sync): GroupTransition(_G._on_sync, (PREPARING,)),
        (PREPARING, Heartbeat): GroupTransition(_G._on_heartbeat, (PREPARING,)),
        (PREPARING, Leave): GroupTransition(_G._on_leave, _REBALANCED),
        (PREPARING, ValidateOffsetCommit): GroupTransition(_G._on_commit, (PREPARING,)),
        (PREPARING, GroupDeadlineReached): GroupTransition(_G._on_tick, _REBALANCED),
        (PREPARING, CoordinatorChanged): GroupTransition(
            _G._on_coordinator_changed, (EMPTY, STABLE)
        ),
        (PREPARING, Delete): GroupTransition(_G._on_delete_rejected, (PREPARING,)),
        (COMPLETING, Join): GroupTransition(_G._on_join, (COMPLETING, PREPARING)),
        (COMPLETING, Sync): GroupTransition(_G._on_sync, (COMPLETING, STABLE)),
        (COMPLETING, Heartbeat): GroupTransition(_G._on_heartbeat, (COMPLETING,)),
        (COMPLETING, Leave): GroupTransition(_G._on_leave, (COMPLETING, PREPARING, EMPTY)),
        (COMPLETING, ValidateOffsetCommit): GroupTransition(_G._on_commit, (COMPLETING,)),
        (COMPLETING, GroupDeadlineReached): GroupTransition(
            _G._on_tick, (COMPLETING, PREPARING, EMPTY)
        ),
        (COMPLETING, CoordinatorChanged): GroupTransition(
            _G._on_coordinator_changed, (EMPTY, STABLE)
        ),
        (COMPLETING, Delete): GroupTransition(_G._on_delete_rejected, (COMPLETING,)),
        (STABLE, Join): GroupTransition(_G._on_join, (STABLE, PREPARING, COMPLETING)),
        (STABLE, Sync): GroupTransition(_G._on_sync, (STABLE,)),
        (STABLE, Heartbeat): GroupTransition(_G._on_heartbeat, (STABLE,)),
        (STABLE, Leave): GroupTransition(_G._on_leave, (STABLE, PREPARING, EMPTY)),
        (STABLE, ValidateOffsetCommit): GroupTransition(_G._on_commit, (STABLE,)),
        (STABLE, GroupDeadlineReached): GroupTransition(_G._on_tick, (STABLE, PREPARING, EMPTY)),
        (STABLE, CoordinatorChanged): GroupTransition(_G._on_coordinator_changed, (STABLE,)),
        (STABLE, Delete): GroupTransition(_G._on_delete_rejected, (STABLE,)),
        (DEAD, Join): GroupTransition(_G._on_join_dead, (DEAD,)),
        (DEAD, Sync): GroupTransition(_G._on_sync_rejected, (DEAD,)),
        (DEAD, Heartbeat): GroupTransition(_G._on_rejected, (DEAD,)),
        (DEAD, Leave): GroupTransition(_G._on_rejected, (DEAD,)),
        (DEAD, ValidateOffsetCommit): GroupTransition(_G._on_commit_dead, (DEAD,)),
        (DEAD, GroupDeadlineReached): GroupTransition(_G._ignore, (DEAD,)),
        (DEAD, CoordinatorChanged): GroupTransition(_G._ignore, (DEAD,)),
        (DEAD, Delete): GroupTransition(_G._on_delete_rejected, (DEAD,)),
    }
)
