"""Group coordinator: passes events and deadlines to groups, and replies to requests."""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import cast
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.client_log import LogRateLimiter
from aiokafkawire.broker.groups.classic_group import ClassicGroup
from aiokafkawire.broker.groups.events import (
    CoordinatorChanged,
    Delete,
    Event,
    GroupDeadlineReached,
    GroupReply,
    GroupState,
    Heartbeat,
    Leave,
    Result,
    ValidateOffsetCommit,
)
from aiokafkawire.broker.groups.group_membership import NO_DEADLINE
from aiokafkawire.broker.groups.members import ClassicGroupMember
from aiokafkawire.broker.groups.offsets import OffsetStore
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.runtime import AutoResetEvent, Clock, Future
from aiokafkawire.wire import ErrorCode

__all__ = ("MAX_GROUPS", "GroupCoordinator")

logger = logging.getLogger("aiokafkawire.broker")

MAX_GROUPS = 10_000
"""Limit of groups; unused groups without offsets are evicted first."""


MAX_LINES_PER_GROUP = 100
"""Log lines per group and minute; further ones are logged at DEBUG."""


class GroupCoordinator:
    """All groups of the cluster. Requests wait on a promise for their reply."""

    def __init__(
        self, options: BrokerConfig, clock: Clock, rng: random.Random, offsets: OffsetStore
    ) -> None:
        self.offsets = offsets
        self._options = options
        self._clock = clock
        self._rng = rng
        self._groups: dict[str, ClassicGroup] = {}
        self._next_wakeup = NO_DEADLINE
        self._wakeup = AutoResetEvent()
        self._log_limiter = LogRateLimiter(clock.now, lines_per_key=MAX_LINES_PER_GROUP)
        for group_id in offsets.groups():
            self._groups[group_id] = self._new_group(group_id)

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(list(self._groups.values()))

    def get(self, group_id: str) -> ClassicGroup | None:
        """Return a group, None if it does not exist."""
        return self._groups.get(group_id)

    def create(self, group_id: str) -> ClassicGroup:
        """Return a group, created if missing. Raises `ApiError` if there are too many."""
        group = self._groups.get(group_id)
        if group is None:
            if len(self._groups) >= MAX_GROUPS:
                self._evict_unused_group()
            group = self._groups[group_id] = self._new_group(group_id)
        return group

    def delete(self, group_id: str) -> ErrorCode:
        """Delete an empty group and its offsets; return the error code.

        Raises:
            StorageError: The group is unchanged.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is GroupState.EMPTY:
            # A dead group cannot be restored, so the offsets are deleted first.
            self.offsets.delete(group_id, list(self.offsets.committed(group_id)))
        reply: Future[Result] = Future()
        self.handle(group, Delete(reply=reply))
        code = cast("ErrorCode", reply.result())
        if not code:
            del self._groups[group_id]
        return code

    def member_id(self, prefix: str) -> str:
        """Return a new member id in Kafka's format."""
        return f"{prefix}-{UUID(int=self._rng.getrandbits(128))}"

    def handle(self, group: ClassicGroup, event: Event) -> None:
        """Apply an event to a group and resolve the replies."""
        if not logger.isEnabledFor(logging.INFO) or isinstance(
            event, Heartbeat | ValidateOffsetCommit
        ):
            replies = group.handle(event, self._clock.now())
        else:
            state, members = (group.state, group.generation), dict(group.members)
            replies = group.handle(event, self._clock.now())
            self._log_changes(group, event, state, members)
        for reply in replies:
            _promise(reply).set_result(reply.result)
        if group.next_deadline() < self._next_wakeup:
            self._wakeup.set()

    def on_coordinator_changed(self, group: ClassicGroup, loaded_at: float) -> None:
        """Give a group to another coordinator, which has loaded it at `loaded_at`."""
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
        state: tuple[GroupState, int],
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
                _REMOVAL_REASONS.get(type(event), "removed"),
            )
        if (group.state, group.generation) == state:
            return
        if group.state is GroupState.STABLE:
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
                reply: Future[Result] = Future()
                self.handle(group, Delete(reply=reply))
                del self._groups[group.group_id]
                return
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are too many groups")


_REMOVAL_REASONS: Mapping[type[Event], str] = MappingProxyType(
    {Leave: "left", GroupDeadlineReached: "removed: session or rebalance timeout"}
)


def _promise(reply: GroupReply) -> Future[Result]:
    return cast("Future[Result]", reply.to)
