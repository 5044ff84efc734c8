"""The classic group: Kafka's consumer group protocol as its coordinator sees it.

`ClassicGroup.handle(event, now)` carries out one event and gives the replies that it causes: to the
event's own request, or to requests that waited. `TRANSITIONS` says what each event does in each
state and which states may follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.groups.events import (
    Commit,
    CoordinatorMoved,
    Delete,
    Event,
    GroupState,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    Reply,
    Result,
    Sync,
    SyncResult,
    Tick,
)
from aiokafkawire.broker.groups.members import (
    MAX_PENDING,
    Kept,
    Member,
    Rebalance,
    common_protocols,
    elect_protocol,
    has_room,
)
from aiokafkawire.runtime.transitions import transition
from aiokafkawire.wire import ErrorCode

__all__ = (
    "MAX_PENDING",
    "NEW_MEMBER_TIMEOUT_S",
    "NO_DEADLINE",
    "TRANSITIONS",
    "ClassicGroup",
    "Row",
)

NEW_MEMBER_TIMEOUT_S = 300.0
"""How long a newcomer waits for the others before it is taken for gone, as in Kafka."""

NO_DEADLINE = math.inf

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


class ClassicGroup:
    """One group. Times are seconds of the caller's clock."""

    def __init__(
        self, group_id: str, *, initial_rebalance_delay_s: float = 0.0, max_size: int = 10_000
    ) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader = ""
        self.members: dict[str, Member] = {}
        self.pending: dict[str, float] = {}
        self._unsynced: dict[str, None] = {}
        self._sync_deadline = NO_DEADLINE
        self._rebalance = Rebalance(NO_DEADLINE)
        self._initial_delay_s = initial_rebalance_delay_s
        self._max_size = max_size
        self._replies: list[Reply] = []
        self._kept = self._snapshot()

    def handle(self, event: Event, now: float) -> list[Reply]:
        """Carry out one event; the replies are in the order in which they are due."""
        row = transition(TRANSITIONS, self.state, event)
        before = self.state
        row.action(self, event, now)
        assert self.state in row.leads_to, f"{before} -> {self.state} at {type(event).__name__}"
        replies, self._replies = self._replies, []
        return replies

    def next_deadline(self) -> float:
        """When a `Tick` has something to do, if nothing happens before."""
        deadlines = [member.session_deadline for member in self.members.values()]
        deadlines += self.pending.values()
        if self.state is PREPARING:
            deadlines.append(self._rebalance.deadline)
        deadlines.append(self._sync_deadline)
        return min(deadlines)

    @property
    def is_unused(self) -> bool:
        return self.state in {EMPTY, DEAD} and not self.pending

    # --- JoinGroup ---------------------------------------------------------------------------

    def _on_join(self, event: Join, now: float) -> None:
        try:
            self._check_join(event)
            if event.member_id:
                self._join_known(event, now)
            elif event.instance_id is not None:
                self._join_static(event, now)
            elif event.needs_known_id:
                if len(self.pending) >= MAX_PENDING:
                    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                self.pending[event.new_member_id] = now + event.session_timeout_s
                raise ApiError(ErrorCode.MEMBER_ID_REQUIRED)
            else:
                self._add(event.new_member_id, event, now)
        except ApiError as error:
            member_id = event.member_id
            if error.code is ErrorCode.MEMBER_ID_REQUIRED:
                member_id = event.new_member_id
            elif error.code is ErrorCode.GROUP_MAX_SIZE_REACHED:
                self.pending.pop(member_id, None)
                if member_id in self.members:
                    self._remove(self.members[member_id])
                member_id = ""
            self._reply(event.reply, JoinResult(code=error.code, member_id=member_id))

    def _on_join_dead(self, event: Join, now: float) -> None:
        del now
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._reply(event.reply, JoinResult(code=code, member_id=event.member_id))

    def _check_join(self, event: Join) -> None:
        if not has_room(self.state, self.members, event.member_id, self._max_size):
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        names = [name for name, _ in event.protocols]
        if not event.protocol_type or not names:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.members:
            common = common_protocols(self.members.values())
            fits = any(name in names for name in common)
            if event.protocol_type != self.protocol_type or not fits:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _join_known(self, event: Join, now: float) -> None:
        if event.member_id in self.pending:
            del self.pending[event.member_id]
            self._add(event.member_id, event, now)
            return
        member = self._member(event.member_id, event.instance_id)
        changed = member.protocols != event.protocols
        leads = member.member_id == self.leader
        if self.state is PREPARING or changed or (self.state is STABLE and leads):
            self._update(member, event, now)
        else:
            # Its answer was lost: the generation still stands.
            self._touch(member, now)
            self._reply(event.reply, self._joined(member, listing=self.state is COMPLETING))

    def _join_static(self, event: Join, now: float) -> None:
        """A static member without an id: a new one, or one that came back and takes its place."""
        old = next((m for m in self.members.values() if m.instance_id == event.instance_id), None)
        if old is None:
            self._add(event.new_member_id, event, now)
            return
        led = old.member_id == self.leader
        member = self._take_place(old, event.new_member_id)
        member.client_id, member.client_host = event.client_id, event.client_host
        if self.state is STABLE:
            member.protocols = event.protocols
        if self.state is not STABLE or elect_protocol(list(self.members.values())) != self.protocol:
            self._update(member, event, now)
            return
        # Even if it reads other topics now: who leads sees that, and begins a rebalance.
        member.session_timeout_s = event.session_timeout_s
        member.rebalance_timeout_s = event.rebalance_timeout_s
        self._touch(member, now)
        self._kept = self._snapshot()
        result = self._joined(member, listing=led and event.may_skip_assignment)
        if led and event.may_skip_assignment:
            result = replace(result, skip_assignment=True)
        elif led:
            # An older client would assign anew if it heard that it leads.
            result = replace(result, leader=old.member_id)
        self._reply(event.reply, result)

    def _take_place(self, old: Member, member_id: str) -> Member:
        self._dismiss(old, ErrorCode.FENCED_INSTANCE_ID)
        member = replace(old, member_id=member_id, join_reply=None, sync_reply=None)
        self.members = {
            (member_id if key == old.member_id else key): (member if value is old else value)
            for key, value in self.members.items()
        }
        if old.member_id in self._unsynced:
            del self._unsynced[old.member_id]
            self._unsynced[member_id] = None
        if self.leader == old.member_id:
            self.leader = member_id
        return member

    def _add(self, member_id: str, event: Join, now: float) -> None:
        if not self.members:
            self.protocol_type = event.protocol_type
            self.leader = member_id
        self.members[member_id] = Member.joining(member_id, event, now + NEW_MEMBER_TIMEOUT_S)
        if self.state is PREPARING and self._rebalance.initial:
            self._rebalance.newcomer = True
        self._prepare(now)

    def _update(self, member: Member, event: Join, now: float) -> None:
        self._dismiss(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.protocols = event.protocols
        member.session_timeout_s = event.session_timeout_s
        member.rebalance_timeout_s = event.rebalance_timeout_s
        member.join_reply = event.reply
        self._touch(member, now)
        self._prepare(now)

    def _joined(self, member: Member, *, listing: bool) -> JoinResult:
        listing = listing and member.member_id == self.leader
        return JoinResult(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=tuple(m.listed(self.protocol) for m in self.members.values() if listing),
        )

    # --- the rebalance -----------------------------------------------------------------------

    def _prepare(self, now: float) -> None:
        """Wait for all members to join, unless the group does so already."""
        if self.state is not PREPARING:
            if self.state is COMPLETING:
                self._forget_assignments()
            self._end_sync()
            members = self.members.values()
            self._rebalance = (
                Rebalance.first(members, now, self._initial_delay_s)
                if self.state is EMPTY
                else Rebalance.of(members, now)
            )
            self.state = PREPARING
        self._complete_if_due(now)

    def _complete_if_due(self, now: float) -> None:
        """Go on when all have joined, or when those who have not had their time."""
        if self._all_joined():
            self._complete(now)
        elif self._rebalance.deadline <= now:
            self._time_is_up(now)

    def _all_joined(self) -> bool:
        if self._rebalance.initial and self.members:
            return False
        joined = all(member.join_reply is not None for member in self.members.values())
        return joined and not self.pending

    def _time_is_up(self, now: float) -> None:
        waited = self._rebalance
        if waited.initial and waited.newcomer and waited.remaining_s > 0:
            # Others are still coming: give them time as well, up to the rebalance timeout.
            delay = min(self._initial_delay_s, waited.remaining_s)
            rest = waited.remaining_s - delay
            self._rebalance = Rebalance(now + delay, initial=True, remaining_s=rest)
        else:
            self._complete(now)

    def _complete(self, now: float) -> None:
        """Begin the next generation with those who joined."""
        for member in list(self.members.values()):
            # A static member keeps its place until its session ends.
            if member.join_reply is None and member.instance_id is None:
                self._remove(member)
        joined = [member for member in self.members.values() if member.join_reply is not None]
        if self.members and not joined:
            self._rebalance = Rebalance.of(self.members.values(), now)
            return
        self.generation += 1
        if not self.members:
            self.protocol = None
            self.leader = ""
            self._become(EMPTY)
            return
        if self.members[self.leader].join_reply is None:
            self.leader = joined[0].member_id
        self.protocol = elect_protocol(list(self.members.values()))
        self.state = COMPLETING
        self._unsynced = dict.fromkeys(self.members)
        self._sync_deadline = Rebalance.of(self.members.values(), now).deadline
        for member in self.members.values():
            # A static member that has not come back may do so for one more session.
            member.is_new = False
            self._touch(member, now)
        for member in joined:
            reply, member.join_reply = member.join_reply, None
            self._reply(reply, self._joined(member, listing=True))

    def _become(self, state: GroupState) -> None:
        self.state = state
        self._kept = self._snapshot()

    def _forget_assignments(self) -> None:
        for member in self.members.values():
            member.assignment = b""
            self._answer_sync(member, SyncResult(code=ErrorCode.REBALANCE_IN_PROGRESS))

    def _end_sync(self) -> None:
        self._unsynced = {}
        self._sync_deadline = NO_DEADLINE

    # --- SyncGroup ---------------------------------------------------------------------------

    def _on_sync(self, event: Sync, now: float) -> None:
        try:
            member = self._member(event.member_id, event.instance_id)
            self._check_generation(event.generation)
            for given, own in (
                (event.protocol_type, self.protocol_type),
                (event.protocol, self.protocol),
            ):
                if given is not None and given != own:
                    raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if self.state is PREPARING:
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        except ApiError as error:
            self._reply(event.reply, SyncResult(code=error.code))
            return
        self._synced(member.member_id)
        self._touch(member, now)
        if self.state is STABLE:
            self._reply(event.reply, self._assigned(member))
            return
        self._answer_sync(member, SyncResult(code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = event.reply
        if member.member_id == self.leader:
            self._assign(event.assignments, now)

    def _on_sync_refused(self, event: Sync, now: float) -> None:
        del now
        dead = self.state is DEAD
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if dead else ErrorCode.UNKNOWN_MEMBER_ID
        self._reply(event.reply, SyncResult(code=code))

    def _assign(self, assignments: Mapping[str, bytes], now: float) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._become(STABLE)
        for member in self.members.values():
            if member.sync_reply is not None:
                self._touch(member, now)
                self._answer_sync(member, self._assigned(member))

    def _assigned(self, member: Member) -> SyncResult:
        return SyncResult(
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            assignment=member.assignment,
        )

    def _answer_sync(self, member: Member, result: SyncResult) -> None:
        if member.sync_reply is not None:
            reply, member.sync_reply = member.sync_reply, None
            self._reply(reply, result)

    def _synced(self, member_id: str) -> None:
        self._unsynced.pop(member_id, None)
        if not self._unsynced:
            self._sync_deadline = NO_DEADLINE

    # --- Heartbeat, OffsetCommit, LeaveGroup -------------------------------------------------

    def _on_heartbeat(self, event: Heartbeat, now: float) -> None:
        try:
            member = self._member(event.member_id, event.instance_id)
            self._check_generation(event.generation)
        except ApiError as error:
            self._reply(event.reply, error.code)
            return
        self._touch(member, now)
        code = ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE
        self._reply(event.reply, code)

    def _on_refused(self, event: Heartbeat | Leave, now: float) -> None:
        del now
        dead = self.state is DEAD
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if dead else ErrorCode.UNKNOWN_MEMBER_ID
        self._reply(event.reply, code)

    def _on_commit(self, event: Commit, now: float) -> None:
        try:
            if event.generation >= 0 or event.member_id or event.instance_id is not None:
                member = self._member(event.member_id, event.instance_id)
                self._check_generation(event.generation)
                self._touch(member, now)
            elif self.state is not EMPTY and not event.transactional:
                # With members in the group, nobody else has a say.
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if self.state is COMPLETING and not event.transactional:
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        except ApiError as error:
            self._reply(event.reply, error.code)
            return
        self._reply(event.reply, ErrorCode.NONE)

    def _on_commit_empty(self, event: Commit, now: float) -> None:
        if event.generation < 0:
            self._reply(event.reply, ErrorCode.NONE)
        else:
            self._on_commit(event, now)

    def _on_commit_dead(self, event: Commit, now: float) -> None:
        del now
        self._reply(event.reply, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _on_leave(self, event: Leave, now: float) -> None:
        if event.member_id in self.pending and event.instance_id is None:
            del self.pending[event.member_id]
            if self.state is PREPARING:
                self._complete_if_due(now)
        else:
            try:
                member = self._leaving(event)
            except ApiError as error:
                self._reply(event.reply, error.code)
                return
            self._remove(member)
            self._prepare(now)
        self._reply(event.reply, ErrorCode.NONE)

    def _leaving(self, event: Leave) -> Member:
        if event.instance_id is not None and not event.member_id:
            for member in self.members.values():
                if member.instance_id == event.instance_id:
                    return member
        return self._member(event.member_id, event.instance_id)

    # --- time, and the rest ------------------------------------------------------------------

    def _on_tick(self, event: Tick, now: float) -> None:
        del event
        for member_id in [key for key, deadline in self.pending.items() if deadline <= now]:
            del self.pending[member_id]
        expired = [m for m in self.members.values() if m.session_deadline <= now]
        lost = False
        for member in expired:
            if member.waits and not member.is_new:
                # It waits for the others: that it is silent is no sign.
                self._touch(member, now)
            else:
                self._remove(member)
                lost = True
        if self._sync_deadline <= now:
            for member_id in list(self._unsynced):
                if member_id in self.members:
                    self._remove(self.members[member_id])
                    lost = True
            self._end_sync()
        if lost:
            self._prepare(now)
        elif self.state is PREPARING:
            self._complete_if_due(now)

    def _on_moved(self, event: CoordinatorMoved, now: float) -> None:
        for member in self.members.values():
            self._dismiss(member, ErrorCode.NOT_COORDINATOR)
        kept = self._kept
        self.generation, self.leader = kept.generation, kept.leader
        self.protocol_type, self.protocol = kept.protocol_type, kept.protocol
        self.members = {member.member_id: replace(member) for member in kept.members}
        for member in self.members.values():
            self._touch(member, max(now, event.loaded_at))
        self.pending = {}
        self._end_sync()
        self.state = kept.state

    def _on_delete(self, event: Delete, now: float) -> None:
        del now
        # Newcomers that only hold an id do not count; they are told so when they come with it.
        self.pending = {}
        self._become(DEAD)
        self._reply(event.reply, ErrorCode.NONE)

    def _on_delete_refused(self, event: Delete, now: float) -> None:
        del now
        dead = self.state is DEAD
        code = ErrorCode.GROUP_ID_NOT_FOUND if dead else ErrorCode.NON_EMPTY_GROUP
        self._reply(event.reply, code)

    def _nothing(self, event: Event, now: float) -> None:
        del event, now

    # --- members -----------------------------------------------------------------------------

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        """The member of a request. Raises `ApiError`."""
        if instance_id is not None:
            for member in self.members.values():
                if member.instance_id == instance_id and member.member_id != member_id:
                    raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        found = self.members.get(member_id)
        if found is None or (instance_id is not None and found.instance_id != instance_id):
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return found

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)

    def _touch(self, member: Member, now: float) -> None:
        timeout = NEW_MEMBER_TIMEOUT_S if member.is_new else member.session_timeout_s
        member.session_deadline = now + timeout

    def _remove(self, member: Member) -> None:
        self._dismiss(member, ErrorCode.UNKNOWN_MEMBER_ID)
        del self.members[member.member_id]
        self._synced(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    def _dismiss(self, member: Member, code: ErrorCode) -> None:
        """Answer what a member's earlier requests wait for."""
        self._answer_sync(member, SyncResult(code=code))
        if member.join_reply is not None:
            reply, member.join_reply = member.join_reply, None
            self._reply(reply, JoinResult(code=code, member_id=member.member_id))

    def _snapshot(self) -> Kept:
        members = tuple(
            replace(member, join_reply=None, sync_reply=None) for member in self.members.values()
        )
        return Kept(
            self.state, self.generation, self.protocol_type, self.protocol, self.leader, members
        )

    def _reply(self, to: object, result: Result) -> None:
        self._replies.append(Reply(to, result))


class Row(NamedTuple):
    """What an event does in a state, and the states that may follow."""

    action: Callable[[ClassicGroup, Any, float], None]
    leads_to: tuple[GroupState, ...]


_G = ClassicGroup
_REBALANCED = (PREPARING, COMPLETING, EMPTY)

TRANSITIONS: Mapping[tuple[GroupState, type[Event]], Row] = MappingProxyType(
    {
        (EMPTY, Join): Row(_G._on_join, (EMPTY, PREPARING, COMPLETING)),
        (EMPTY, Sync): Row(_G._on_sync_refused, (EMPTY,)),
        (EMPTY, Heartbeat): Row(_G._on_refused, (EMPTY,)),
        (EMPTY, Leave): Row(_G._on_leave, (EMPTY,)),
        (EMPTY, Commit): Row(_G._on_commit_empty, (EMPTY,)),
        (EMPTY, Tick): Row(_G._on_tick, (EMPTY,)),
        (EMPTY, CoordinatorMoved): Row(_G._on_moved, (EMPTY,)),
        (EMPTY, Delete): Row(_G._on_delete, (DEAD,)),
        (PREPARING, Join): Row(_G._on_join, (PREPARING, COMPLETING)),
        (PREPARING, Sync): Row(_G._on_sync, (PREPARING,)),
        (PREPARING, Heartbeat): Row(_G._on_heartbeat, (PREPARING,)),
        (PREPARING, Leave): Row(_G._on_leave, _REBALANCED),
        (PREPARING, Commit): Row(_G._on_commit, (PREPARING,)),
        (PREPARING, Tick): Row(_G._on_tick, _REBALANCED),
        (PREPARING, CoordinatorMoved): Row(_G._on_moved, (EMPTY, STABLE)),
        (PREPARING, Delete): Row(_G._on_delete_refused, (PREPARING,)),
        (COMPLETING, Join): Row(_G._on_join, (COMPLETING, PREPARING)),
        (COMPLETING, Sync): Row(_G._on_sync, (COMPLETING, STABLE)),
        (COMPLETING, Heartbeat): Row(_G._on_heartbeat, (COMPLETING,)),
        (COMPLETING, Leave): Row(_G._on_leave, (COMPLETING, PREPARING, EMPTY)),
        (COMPLETING, Commit): Row(_G._on_commit, (COMPLETING,)),
        (COMPLETING, Tick): Row(_G._on_tick, (COMPLETING, PREPARING, EMPTY)),
        (COMPLETING, CoordinatorMoved): Row(_G._on_moved, (EMPTY, STABLE)),
        (COMPLETING, Delete): Row(_G._on_delete_refused, (COMPLETING,)),
        (STABLE, Join): Row(_G._on_join, (STABLE, PREPARING, COMPLETING)),
        (STABLE, Sync): Row(_G._on_sync, (STABLE,)),
        (STABLE, Heartbeat): Row(_G._on_heartbeat, (STABLE,)),
        (STABLE, Leave): Row(_G._on_leave, (STABLE, PREPARING, EMPTY)),
        (STABLE, Commit): Row(_G._on_commit, (STABLE,)),
        (STABLE, Tick): Row(_G._on_tick, (STABLE, PREPARING, EMPTY)),
        (STABLE, CoordinatorMoved): Row(_G._on_moved, (STABLE,)),
        (STABLE, Delete): Row(_G._on_delete_refused, (STABLE,)),
        (DEAD, Join): Row(_G._on_join_dead, (DEAD,)),
        (DEAD, Sync): Row(_G._on_sync_refused, (DEAD,)),
        (DEAD, Heartbeat): Row(_G._on_refused, (DEAD,)),
        (DEAD, Leave): Row(_G._on_refused, (DEAD,)),
        (DEAD, Commit): Row(_G._on_commit_dead, (DEAD,)),
        (DEAD, Tick): Row(_G._nothing, (DEAD,)),
        (DEAD, CoordinatorMoved): Row(_G._nothing, (DEAD,)),
        (DEAD, Delete): Row(_G._on_delete_refused, (DEAD,)),
    }
)
