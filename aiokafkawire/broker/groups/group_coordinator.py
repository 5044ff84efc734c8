"""Group coordinator: passes events and deadlines to groups, and replies to requests."""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.client_log import LogRateLimiter
from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.consumer_group.conversion import downgrade
from aiokafkawire.broker.groups.consumer_group.coordination import (
    ConsumerGroups,
    is_every_topic_visible,
)
from aiokafkawire.broker.groups.consumer_group.events import (
    ConsumerGroupHeartbeat,
    Downgrade,
    failed_reply,
)
from aiokafkawire.broker.groups.consumer_group.group import ConsumerGroup
from aiokafkawire.broker.groups.consumer_group.member import JOIN_EPOCH, LEAVE_EPOCH
from aiokafkawire.broker.groups.events import (
    ClassicGroupState,
    CoordinatorChanged,
    Delete,
    Event,
    GroupDeadlineReached,
    GroupReply,
    Heartbeat,
    HeartbeatResult,
    Leave,
    Result,
    ValidateOffsetCommit,
)
from aiokafkawire.broker.groups.group_membership import NO_DEADLINE
from aiokafkawire.broker.groups.members import ClassicGroupMember
from aiokafkawire.broker.groups.offsets import OffsetStore
from aiokafkawire.broker.groups.share_group.coordination import ShareGroups
from aiokafkawire.broker.groups.share_group.events import ShareGroupHeartbeat, StatesChanged
from aiokafkawire.broker.groups.share_group.group import ShareGroup
from aiokafkawire.broker.groups.share_group.group import failed_reply as failed_share_reply
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.runtime import AutoResetEvent, Clock, Future
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.primitives import uuid_to_text

__all__ = ("MAX_GROUPS", "Group", "GroupCoordinator")

logger = logging.getLogger("aiokafkawire.broker")

MAX_GROUPS = 10_000
"""Limit of groups; unused groups without offsets are evicted first."""


MAX_LINES_PER_GROUP = 100
"""Log lines per group and minute; further ones are logged at DEBUG."""


Group = ClassicGroup | ConsumerGroup | ShareGroup
"""A group of any type."""


class GroupCoordinator:
    """All groups of the cluster. Requests wait on a promise for their reply."""

    def __init__(
        self,
        options: BrokerConfig,
        clock: Clock,
        rng: random.Random,
        offsets: OffsetStore,
        consumer_groups: ConsumerGroups | None = None,
        *,
        share_groups: ShareGroups | None = None,
    ) -> None:
        self.offsets = offsets
        self._consumer_groups = consumer_groups
        self._share_groups = share_groups
        self._options = options
        self._clock = clock
        self._rng = rng
        self._groups: dict[str, Group] = {}
        self._next_wakeup = NO_DEADLINE
        self._wakeup = AutoResetEvent()
        self._log_limiter = LogRateLimiter(clock.now, lines_per_key=MAX_LINES_PER_GROUP)
        for group_id in offsets.groups():
            self._groups[group_id] = self._new_group(group_id)
        if consumer_groups is not None:
            for group_id in consumer_groups.log.groups():
                self._groups[group_id] = self._load(group_id, clock.now())

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    @property
    def consumer_groups(self) -> ConsumerGroups:
        """Settings, topics and records of the consumer groups."""
        assert self._consumer_groups is not None, "the broker has no consumer groups"
        return self._consumer_groups

    @property
    def share_groups(self) -> ShareGroups:
        """Settings, records and share partitions of the share groups."""
        assert self._share_groups is not None, "the broker has no share groups"
        return self._share_groups

    def get(self, group_id: str) -> Group | None:
        """Return a group, None if it does not exist."""
        return self._groups.get(group_id)

    def create(self, group_id: str) -> ClassicGroup:
        """Return a classic group, created if missing or if it is an empty consumer group.

        Raises:
            ApiError: There are too many groups.
            StorageError: The consumer group could not be deleted.
        """
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group
        if group is None and len(self._groups) >= MAX_GROUPS:
            self._evict_unused_group()
        if group is not None:
            assert group.is_unused, "only an empty group is replaced"
            self.consumer_groups.log.delete(group_id)
        created = self._groups[group_id] = self._new_group(group_id)
        return created

    def heartbeat(
        self, group_id: str, event: ConsumerGroupHeartbeat, is_visible: Callable[[str], bool]
    ) -> HeartbeatResult:
        """Handle a heartbeat of the consumer protocol; the first one creates or converts a group.

        Args:
            group_id: Id of the group.
            event: The heartbeat.
            is_visible: Returns True for topics that a regular expression may match.

        Raises:
            ApiError: There is no such consumer group, or too many groups.
        """
        known = self._groups.get(group_id)
        group = known
        if event.member_epoch == JOIN_EPOCH and (known is None or isinstance(known, ClassicGroup)):
            group = (
                self.consumer_groups.convert(known)
                if known is not None and known.members
                else self.consumer_groups.create(group_id)
            )
        if group is None:
            kind = "Group" if event.member_epoch <= LEAVE_EPOCH else "Consumer group"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        self._handle_consumer_group(group, event, is_visible)
        result = cast("Future[HeartbeatResult]", event.reply).result()
        if group is not known and not result.code:
            if known is None and len(self._groups) >= MAX_GROUPS:
                self._evict_unused_group()
            self._groups[group_id] = group
            self._wakeup.set()
            if isinstance(known, ClassicGroup):
                for reply in known.fail_waiting(ErrorCode.REBALANCE_IN_PROGRESS):
                    _promise(reply).set_result(reply.result)
        return result

    def share_heartbeat(self, group_id: str, event: ShareGroupHeartbeat) -> HeartbeatResult:
        """Handle a heartbeat of a share group; the first one creates the group.

        Raises:
            ApiError: There is no such share group, or too many groups.
        """
        known = self._groups.get(group_id)
        group = known
        if event.member_epoch == JOIN_EPOCH and known is None:
            group = self.share_groups.create(group_id)
        if group is None:
            kind = "Group" if event.member_epoch <= LEAVE_EPOCH else "Share group"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        self._handle_share_group(_checked(group), event)
        result = cast("Future[HeartbeatResult]", event.reply).result()
        if group is not known and not result.code:
            self._add(group)
        return result

    def change_share_states(self, group_id: str, event: StatesChanged) -> ErrorCode:
        """Apply a change of share partitions by an admin client; it may create the group.

        Raises:
            ApiError: The group is not a share group, or there are too many groups.
        """
        known = self._groups.get(group_id)
        group = self.share_groups.create(group_id) if known is None else _checked(known)
        self._handle_share_group(group, event)
        code = cast("ErrorCode", cast("Future[Result]", event.reply).result())
        if known is None and not code:
            self._add(group)
        return code

    def _add(self, group: Group) -> None:
        """Add a group that has been created."""
        if group.group_id not in self._groups and len(self._groups) >= MAX_GROUPS:
            self._evict_unused_group()
        self._groups[group.group_id] = group
        self._wakeup.set()

    def delete(self, group_id: str) -> ErrorCode:
        """Delete an empty group and its offsets; return the error code.

        Raises:
            StorageError: The group is unchanged.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if isinstance(group, ConsumerGroup | ShareGroup):
            is_empty = group.is_unused
        else:
            is_empty = group.state is ClassicGroupState.EMPTY
        if is_empty:
            # A dead group cannot be restored, so the offsets are deleted first.
            self.offsets.delete(group_id, list(self.offsets.committed(group_id)))
        if is_empty and isinstance(group, ShareGroup):
            self.share_groups.delete_states(group_id)
        if is_empty and isinstance(group, ConsumerGroup | ShareGroup):
            self.consumer_groups.log.delete(group_id)
        reply: Future[Result] = Future()
        self.handle(group, Delete(reply=reply))
        code = cast("ErrorCode", reply.result())
        if not code:
            del self._groups[group_id]
        return code

    def member_id(self, prefix: str) -> str:
        """Return a new member id in Kafka's format."""
        return f"{prefix}-{UUID(int=self._rng.getrandbits(128))}"

    def new_member_id(self) -> str:
        """Return a new member id of the consumer protocol."""
        return uuid_to_text(UUID(int=self._rng.getrandbits(128)))

    def handle(self, group: Group, event: Event) -> None:
        """Apply an event to a group and resolve the replies."""
        if isinstance(group, ConsumerGroup):
            self._handle_consumer_group(group, event)
            return
        if isinstance(group, ShareGroup):
            self._handle_share_group(group, event)
            return
        if not logger.isEnabledFor(logging.INFO) or isinstance(
            event, Heartbeat | ValidateOffsetCommit
        ):
            replies = group.handle(event, self._clock.now())
        else:
            state, members = (group.state, group.generation), dict(group.members)
            now = self._clock.now()
            replies = group.handle(event, now)
            self._log_changes(group, event, now, state, members)
        for reply in replies:
            _promise(reply).set_result(reply.result)
        if group.next_deadline() < self._next_wakeup:
            self._wakeup.set()

    def _handle_consumer_group(
        self,
        group: ConsumerGroup,
        event: Any,
        is_visible: Callable[[str], bool] = is_every_topic_visible,
    ) -> None:
        try:
            replies, conversion = self.consumer_groups.handle(group, event, is_visible)
            if conversion is not None:
                self._downgrade(group, conversion)
        except StorageError as error:
            # The group in memory is ahead of its records.
            if self._groups.get(group.group_id) is group:
                self._reload(group, self._clock.now())
            if isinstance(event, GroupDeadlineReached):
                return
            replies = [failed_reply(event, error)]
        for reply in replies:
            _promise(reply).set_result(reply.result)
        if group.next_deadline() < self._next_wakeup:
            self._wakeup.set()

    def _handle_share_group(self, group: ShareGroup, event: Any) -> None:
        try:
            replies = self.share_groups.handle(group, event)
        except StorageError as error:
            # The group in memory is ahead of its records.
            if self._groups.get(group.group_id) is group:
                self._reload(group, self._clock.now())
            if isinstance(event, GroupDeadlineReached):
                return
            replies = [failed_share_reply(event, error)]
        for reply in replies:
            _promise(reply).set_result(reply.result)
        if group.next_deadline() < self._next_wakeup:
            self._wakeup.set()

    def _downgrade(self, group: ConsumerGroup, conversion: Downgrade) -> None:
        """Make a classic group of a consumer group. Raises `StorageError`."""
        self.consumer_groups.log.delete(group.group_id)
        classic = self._new_group(group.group_id)
        persisted = downgrade(group, conversion.joined)
        classic.restore(persisted, self._clock.now(), rebalances=conversion.rebalances)
        self._groups[group.group_id] = classic
        self._wakeup.set()

    def _load(self, group_id: str, loaded_at: float) -> ConsumerGroup | ShareGroup:
        """Return a group from its records."""
        if self.consumer_groups.log.is_share_group(group_id):
            return self.share_groups.load(group_id, loaded_at)
        return self.consumer_groups.load(group_id, loaded_at)

    def _reload(self, group: ConsumerGroup | ShareGroup, loaded_at: float) -> None:
        self._groups[group.group_id] = self._load(group.group_id, loaded_at)
        self._wakeup.set()

    def on_coordinator_changed(self, group: Group, loaded_at: float) -> None:
        """Give a group to another coordinator, which has loaded it at `loaded_at`."""
        if isinstance(group, ConsumerGroup | ShareGroup):
            self._reload(group, max(loaded_at, self._clock.now()))
            return
        self.handle(group, CoordinatorChanged(loaded_at=loaded_at))

    async def run(self) -> None:
        """Pass deadlines to groups until the broker closes."""
        while True:
            self._next_wakeup = min((group.next_deadline() for group in self), default=NO_DEADLINE)
            await self._wakeup.wait(self._next_wakeup)
            now = self._clock.now()
            for group in self:
                if group.next_deadline() <= now:
                    self.handle(group, GroupDeadlineReached())

    def _log_changes(
        self,
        group: ClassicGroup,
        event: Event,
        now: float,
        state: tuple[ClassicGroupState, int],
        members: Mapping[str, ClassicGroupMember],
    ) -> None:
        """Log what an event changed in a group."""
        name = group.group_id
        log = functools.partial(self._log_limiter.log, name, logging.INFO)
        for member_id in group.members.keys() - members.keys():
            member = group.members[member_id]
            client = f"client {member.client_id!r} at {member.client_host}"
            log("Group %s: member %s joined, %s", name, member_id, client)
        for member_id in members.keys() - group.members.keys():
            log(
                "Group %s: member %s %s",
                name,
                member_id,
                _removal_reason(event, members[member_id], now),
            )
        if (group.state, group.generation) == state:
            return
        if group.state is ClassicGroupState.STABLE:
            log(
                "Group %s: generation %d is stable: %d %s, leader %s, assignor %s",
                name,
                group.generation,
                len(group.members),
                "member" if len(group.members) == 1 else "members",
                group.leader,
                group.protocol,
            )
        else:
            log("Group %s: %s, generation %d", name, group.state.value, group.generation)

    def _new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(
            group_id,
            initial_rebalance_delay_s=self._options.group_initial_rebalance_delay_ms / 1000,
            max_size=self._options.group_max_size,
        )

    def _evict_unused_group(self) -> None:
        for group in self:
            if group.is_unused and not self.offsets.committed(group.group_id):
                self.delete(group.group_id)
                return
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are too many groups")


def _checked(group: Group) -> ShareGroup:
    """Return the group if it is a share group. Raises `ApiError`."""
    if not isinstance(group, ShareGroup):
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a share group."
        )
    return group


def _removal_reason(event: Event, member: ClassicGroupMember, now: float) -> str:
    """Return why an event, handled at `now`, removed a member."""
    if isinstance(event, Leave):
        return "left"
    if not isinstance(event, GroupDeadlineReached):
        return "removed"
    kind = "session" if member.session_deadline <= now else "rebalance"
    return f"removed: {kind} timeout"


def _promise(reply: GroupReply) -> Future[Result]:
    return cast("Future[Result]", reply.to)
