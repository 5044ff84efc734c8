"""Drives the groups: gives them events and the time, and takes their replies where they belong."""

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
from aiokafkawire.broker.groups.classic_group import NO_DEADLINE, ClassicGroup
from aiokafkawire.broker.groups.events import (
    Commit,
    CoordinatorChanged,
    Delete,
    Event,
    GroupDeadlineReached,
    GroupReply,
    GroupState,
    Heartbeat,
    Leave,
    Result,
)
from aiokafkawire.broker.groups.members import ClassicGroupMember
from aiokafkawire.broker.groups.offsets import OffsetStore
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.runtime import Clock, Promise, Signal
from aiokafkawire.wire import ErrorCode

__all__ = ("MAX_GROUPS", "GroupCoordinator")

logger = logging.getLogger("aiokafkawire.broker")

MAX_GROUPS = 10_000
"""Groups known at once; unused ones without offsets go first."""


MAX_LINES_PER_GROUP = 100
"""Log lines in a minute; more are logged at DEBUG."""


class GroupCoordinator:
    """All groups of the cluster. Replies are promises of the requests that wait for them."""

    def __init__(
        self, options: BrokerConfig, clock: Clock, rng: random.Random, offsets: OffsetStore
    ) -> None:
        self.offsets = offsets
        self._options = options
        self._clock = clock
        self._rng = rng
        self._groups: dict[str, ClassicGroup] = {}
        self._next_wakeup = NO_DEADLINE
        self._wakeup = Signal()
        self._log_limiter = LogRateLimiter(clock.now, lines_per_key=MAX_LINES_PER_GROUP)
        for group_id in offsets.groups():
            self._groups[group_id] = self._new_group(group_id)

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(list(self._groups.values()))

    def get(self, group_id: str) -> ClassicGroup | None:
        """A group that exists."""
        return self._groups.get(group_id)

    def create(self, group_id: str) -> ClassicGroup:
        """A group, made if need be. Raises `ApiError` when there are too many."""
        group = self._groups.get(group_id)
        if group is None:
            if len(self._groups) >= MAX_GROUPS:
                self._evict_unused_group()
            group = self._groups[group_id] = self._new_group(group_id)
        return group

    def delete(self, group_id: str) -> ErrorCode:
        """Forget a group and its offsets, unless it has members.

        Raises:
            StorageError: The group is as before.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is GroupState.EMPTY:
            # Nothing can be taken back once the group is dead.
            self.offsets.delete(group_id, list(self.offsets.committed(group_id)))
        reply: Promise[Result] = Promise()
        self.handle(group, Delete(reply=reply))
        code = cast("ErrorCode", reply.result())
        if not code:
            del self._groups[group_id]
        return code

    def member_id(self, prefix: str) -> str:
        """A fresh member id, made as Kafka makes it."""
        return f"{prefix}-{UUID(int=self._rng.getrandbits(128))}"

    def handle(self, group: ClassicGroup, event: Event) -> None:
        """Let a group carry out an event, and hand out the replies."""
        if not logger.isEnabledFor(logging.INFO) or isinstance(event, Heartbeat | Commit):
            replies = group.handle(event, self._clock.now())
        else:
            state, members = (group.state, group.generation), dict(group.members)
            replies = group.handle(event, self._clock.now())
            self._log_changes(group, event, state, members)
        for reply in replies:
            _promise(reply).resolve(reply.result)
        if group.next_deadline() < self._next_wakeup:
            self._wakeup.set()

    def on_coordinator_changed(self, group: ClassicGroup, loaded_at: float) -> None:
        """Tell a group that it has another coordinator, which knows it from then on."""
        self.handle(group, CoordinatorChanged(loaded_at=loaded_at))

    async def run(self) -> None:
        """Tell groups of the time, for as long as the broker lives."""
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
                "Group %s: generation %d is stable: %d members, leader %s, assignor %s",
                name,
                group.generation,
                len(group.members),
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
                reply: Promise[Result] = Promise()
                self.handle(group, Delete(reply=reply))
                del self._groups[group.group_id]
                return
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are too many groups")


_REMOVAL_REASONS: Mapping[type[Event], str] = MappingProxyType(
    {Leave: "left", GroupDeadlineReached: "removed: its session or its time to rejoin ran out"}
)


def _promise(reply: GroupReply) -> Promise[Result]:
    return cast("Promise[Result]", reply.to)
