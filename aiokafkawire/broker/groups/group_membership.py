"""Members of a classic group, and the replies that they wait for."""

from __future__ import annotations

import math
from dataclasses import replace

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups.events import (
    ClassicGroupState,
    GroupReply,
    JoinResult,
    Leave,
    Result,
    SyncResult,
)
from aiokafkawire.broker.groups.members import (
    ClassicGroupMember,
    DelayedJoin,
    PersistedGroup,
    first_member,
)
from aiokafkawire.wire import ErrorCode

__all__ = ("NEW_MEMBER_TIMEOUT_S", "NO_DEADLINE", "GroupMembership")

NEW_MEMBER_TIMEOUT_S = 300.0
"""Time that a new member may wait for the rebalance before it is removed, as in Kafka."""

NO_DEADLINE = math.inf


class GroupMembership:
    """State, generation and members of a group. `ClassicGroup` decides how they change."""

    def __init__(
        self, group_id: str, *, initial_rebalance_delay_s: float = 0.0, max_size: int = 10_000
    ) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader = ""
        self.members: dict[str, ClassicGroupMember] = {}
        self.pending_members: dict[str, float] = {}
        self._pending_sync_members: dict[str, None] = {}
        self._sync_deadline = NO_DEADLINE
        self._delayed_join = DelayedJoin(NO_DEADLINE)
        self._initial_delay_s = initial_rebalance_delay_s
        self._max_size = max_size
        self._replies: list[GroupReply] = []
        self._persisted = self._snapshot()

    @property
    def is_unused(self) -> bool:
        return (
            self.state in {ClassicGroupState.EMPTY, ClassicGroupState.DEAD}
            and not self.pending_members
        )

    def _get_member(self, member_id: str, instance_id: str | None) -> ClassicGroupMember:
        """Return the member of a request. Raises `ApiError`."""
        if instance_id is not None:
            for other in self.members.values():
                if other.instance_id == instance_id and other.member_id != member_id:
                    raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)

    def _extend_session(self, member: ClassicGroupMember, now: float) -> None:
        timeout = NEW_MEMBER_TIMEOUT_S if member.is_new else member.session_timeout_s
        member.session_deadline = now + timeout

    def _remove_member(self, member: ClassicGroupMember) -> None:
        self._fail_pending_replies(member, ErrorCode.UNKNOWN_MEMBER_ID)
        del self.members[member.member_id]
        self._remove_pending_sync_member(member.member_id)
        if self.leader == member.member_id:
            self.leader = first_member(self.members)

    def _fail_pending_replies(self, member: ClassicGroupMember, code: ErrorCode) -> None:
        """Answer pending JoinGroup and SyncGroup requests of a member with an error."""
        self._reply_to_sync(member, SyncResult(code=code))
        if member.join_reply is not None:
            reply, member.join_reply = member.join_reply, None
            self._reply(reply, JoinResult(code=code, member_id=member.member_id))

    def _snapshot(self) -> PersistedGroup:
        members = tuple(
            replace(member, join_reply=None, sync_reply=None) for member in self.members.values()
        )
        return PersistedGroup(
            self.state, self.generation, self.protocol_type, self.protocol, self.leader, members
        )

    def _reply(self, to: object, result: Result) -> None:
        self._replies.append(GroupReply(to, result))

    def _find_leaving_member(self, event: Leave) -> ClassicGroupMember:
        if event.instance_id is not None and not event.member_id:
            for member in self.members.values():
                if member.instance_id == event.instance_id:
                    return member
        return self._get_member(event.member_id, event.instance_id)

    def _replace_static_member(self, old: ClassicGroupMember, member_id: str) -> ClassicGroupMember:
        self._fail_pending_replies(old, ErrorCode.FENCED_INSTANCE_ID)
        member = replace(old, member_id=member_id, join_reply=None, sync_reply=None)
        self.members = {
            (member_id if key == old.member_id else key): (member if value is old else value)
            for key, value in self.members.items()
        }
        if old.member_id in self._pending_sync_members:
            del self._pending_sync_members[old.member_id]
            self._pending_sync_members[member_id] = None
        if self.leader == old.member_id:
            self.leader = member_id
        return member

    # --- replies and the sync phase ------------------------------------------------------

    def _join_result(self, member: ClassicGroupMember, *, with_members: bool) -> JoinResult:
        with_members = with_members and member.member_id == self.leader
        return JoinResult(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=tuple(
                member.to_joined_member(self.protocol)
                for member in self.members.values()
                if with_members
            ),
        )

    def _reply_to_sync(self, member: ClassicGroupMember, result: SyncResult) -> None:
        if member.sync_reply is not None:
            reply, member.sync_reply = member.sync_reply, None
            self._reply(reply, result)

    def _remove_pending_sync_member(self, member_id: str) -> None:
        self._pending_sync_members.pop(member_id, None)
        if not self._pending_sync_members:
            self._sync_deadline = NO_DEADLINE

    def _end_sync_phase(self) -> None:
        self._pending_sync_members = {}
        self._sync_deadline = NO_DEADLINE

    def _reset_assignments(self) -> None:
        for member in self.members.values():
            member.assignment = b""
            self._reply_to_sync(member, SyncResult(code=ErrorCode.REBALANCE_IN_PROGRESS))

    def _transition_to(self, state: ClassicGroupState) -> None:
        self.state = state
        self._persisted = self._snapshot()
