"""A group member in any protocol: its state machine, events, deadlines and log lines."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, ClassVar, Protocol

import anyio

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.config import ConsumerConfig, ShareConsumerConfig
from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import AutoResetEvent, Runtime, Supervisor, wait_until
from aiokafkawire.types import GroupMetadata

from .membership import events, states
from .membership.context import GroupMembershipOperation, MemberContext, PollTimer
from .membership.effects import (
    InterruptPoll,
    LogMessage,
    LosePartitions,
    MembershipEffect,
)
from .offsets import CommitIdentity

__all__ = ("CommittingMember", "GroupMember", "MembershipOwner", "PartitionOwner")

logger = logging.getLogger("aiokafkawire.group")


class MembershipOwner(Protocol):
    """Client that has a member. All methods return immediately."""

    def lose(self, partitions: states.Assignment, reason: str) -> None:
        """Release partitions that were lost. They cannot be committed."""
        ...

    def interrupt_poll(self) -> None:
        """A revocation is due: the application's next poll must call `GroupMember.poll_started`."""
        ...

    def on_coordinator_result(self, failure: KafkaError | None) -> None:
        """A request to the coordinator succeeded (None) or failed."""
        ...

    def raise_error(self, error: KafkaError) -> None:
        """Raise an error in the application's next call. The membership goes on."""
        ...

    def on_state_changed(self, *, outside_group: bool, rebalancing: bool) -> None:
        """The state has changed. `GroupMember.error` is set if the membership ended.

        With `outside_group` this is neither a member nor joining.
        """
        ...


class PartitionOwner(MembershipOwner, Protocol):
    """Owner of a member's partitions: the consumer. All methods but `revoke` return immediately."""

    def on_generation_joined(self, generation: states.Generation, owned: states.Assignment) -> None:
        """Offsets of `owned` may be committed in the new generation, after a rebalance."""
        ...

    def on_epoch_changed(self, epoch: int, owned: states.Assignment) -> None:
        """Offsets of `owned` may be committed with a new member epoch, without a rebalance."""
        ...

    def assign(self, partitions: states.Assignment) -> None:
        """Add partitions, possibly none, at the end of each rebalance."""
        ...

    def prepare_revoke(self, partitions: states.Assignment) -> None:
        """Stop delivering records of these partitions. `revoke` follows."""
        ...

    async def revoke(self, partitions: states.Assignment) -> None:
        """Call the listener, commit, release the partitions. Bounded in time; does not raise."""
        ...


class Machine(Protocol):
    """State machine of a membership."""

    state: states.MembershipState

    @property
    def context(self) -> MemberContext: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def error(self) -> KafkaError | None: ...

    @property
    def generation(self) -> states.Generation | None: ...

    def handle(self, event: events.MembershipEvent, now: float) -> Sequence[MembershipEffect]: ...

    def next_deadline(self) -> float: ...


class GroupMember(ABC):
    """A member of a group. The client's tasks may call all synchronous methods."""

    protocol: ClassVar[str]
    """Value of `group_protocol` that this member uses, or "share"."""
    _machine: Machine

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        supervisor: Supervisor,
        config: ConsumerConfig | ShareConsumerConfig,
        owner: MembershipOwner,
    ) -> None:
        assert config.group_id is not None
        self.group_id = config.group_id
        self._cluster = cluster
        self._clock = runtime.clock
        self._supervisor = supervisor
        self._owner = owner
        self._events: deque[events.MembershipEvent] = deque()
        self._handling = False
        self._deadline_moved = AutoResetEvent()
        self._closed = anyio.Event()
        self._last_generation: states.Generation | None = None
        self._lost_generation: states.Generation | None = None  # until a poll of a member ends

    # --- for the client ---

    @property
    def state(self) -> states.MembershipState:
        return self._machine.state

    @property
    def error(self) -> KafkaError | None:
        """The error that ended the membership; None while it can go on."""
        return self._machine.error

    @property
    def unreported_error(self) -> KafkaError | None:
        """`error`, unless it was reported to the application."""
        state = self._machine.state
        return (
            None
            if isinstance(state, states.JoinFailed | states.Fenced) and state.reported
            else self.error
        )

    @property
    def topics(self) -> tuple[str, ...]:
        """The current subscription."""
        return self._machine.context.topics

    @property
    def is_outside_group(self) -> bool:
        """True if this is neither a member nor joining."""
        return isinstance(self._machine.state, states.Unjoined | states.MembershipClosed)

    @property
    def generation(self) -> states.Generation | None:
        return self._machine.generation

    @property
    def poll_timer(self) -> PollTimer:
        """Timer for max_poll_interval_ms."""
        return self._machine.context.poll_timer

    def subscribe(self, topics: Collection[str], pattern: str | None = None) -> None:
        """Join with topics or a pattern, rejoin if they changed, or leave if there are none."""
        if topics or pattern is not None:
            self._handle(events.Subscribed(tuple(sorted(topics)), pattern))
        else:
            self._handle(events.Unsubscribed())

    def poll_started(self) -> None:
        """Record the start of a poll. Records returned before are processed."""
        self.poll_timer.start_poll(self._clock.now())
        self._handle(events.PollStarted())

    def poll_finished(self) -> None:
        """Record the end of a poll, which may return records of the current generation."""
        if self._lost_generation is not None and self._machine.generation is not None:
            self._lost_generation = None
        # The poll timer is checked with the next heartbeat.
        self.poll_timer.finish_poll(self._clock.now())

    def record_poll(self) -> None:
        """Restart the poll timer: a poll returned buffered records."""
        self.poll_timer.last_poll = self._clock.now()

    def mark_error_reported(self) -> None:
        """Record that `error` was reported. The next poll may join again."""
        self._handle(events.GroupErrorReported())

    async def close(self, deadline: float, operation: GroupMembershipOperation = "default") -> bool:
        """Revoke, leave, and wait until both are done.

        Args:
            deadline: Time of the runtime's clock, in seconds.
            operation: Effect on the membership (KIP-1092).

        Returns:
            False at the deadline.
        """
        self._handle(events.CloseRequested(deadline, operation))
        # mutation: close-without-deadline
        return await wait_until(self._closed, deadline)

    async def run(self) -> None:
        """Handle deadlines until the member is closed."""
        while not self._machine.is_closed:
            if not await self._deadline_moved.wait(self._machine.next_deadline()):
                self._handle(events.DeadlineReached())

    # --- the machine ---

    def _handle(self, event: events.MembershipEvent) -> None:
        """Handle an event, its effects, and the events that these cause, in order."""
        if self._machine.is_closed:
            return
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        before = self._machine.state
        try:
            while self._events and not self._machine.is_closed:
                for effect in self._machine.handle(self._events.popleft(), self._clock.now()):
                    self._perform(effect)
        finally:
            self._handling = False
        if isinstance(self._machine.state, states.MembershipClosed):
            self._closed.set()
        error = self._machine.error
        if error is not None:
            error.group = self.group_id
        if self._machine.state is not before:
            self._deadline_moved.set()
        if type(self._machine.state) is not type(before):
            # The owner does not need to know about heartbeats.
            self._owner.on_state_changed(
                outside_group=self.is_outside_group, rebalancing=self._machine.state.is_rebalancing
            )

    @abstractmethod
    def metadata_changed(self) -> None:
        """Adapt to changed metadata of the topics."""

    def _perform(self, effect: MembershipEffect) -> None:
        """Perform an effect that is the same in all protocols."""
        match effect:
            case LosePartitions(partitions, reason):
                self._lost_generation = self._lost_generation or self._last_generation
                self._owner.lose(partitions, reason)
            case InterruptPoll():
                self._owner.interrupt_poll()
            case LogMessage(text, warning):
                self._log(text, logging.WARNING if warning else logging.INFO)

    def _log(
        self,
        text: str,
        level: int = logging.INFO,
        error: KafkaError | None = None,
        **values: Any,
    ) -> None:
        generation = self._machine.generation or self._last_generation
        if generation is not None:
            known = {"member_id": generation.member_id, "generation": generation.number}
            values = known | values
        extra = log_fields(self._supervisor.fields, error=error, **values, group=self.group_id)
        logger.log(level, "Group %s: %s", self.group_id, text, extra=extra)

    def _start(self, name: str, work: Callable[[], Awaitable[events.MembershipEvent]]) -> None:
        async def run() -> None:
            event = await work()
            # Requests that fail because the client closes say nothing about the coordinator.
            if self._supervisor.is_running:
                self._handle(event)

        if self._supervisor.is_running:
            self._supervisor.spawn(run, name=name)


class CommittingMember(GroupMember):
    """A member that owns its partitions alone, and commits their offsets."""

    _owner: PartitionOwner

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        supervisor: Supervisor,
        config: ConsumerConfig,
        owner: PartitionOwner,
    ) -> None:
        super().__init__(cluster, runtime, supervisor, config, owner)
        self._config = config

    @property
    def in_cooperative_rejoin(self) -> bool:
        """True while the member is rejoining and keeps its partitions (KIP-429)."""
        return False

    @property
    def awaiting_member_id(self) -> bool:
        """True if the member id for LeaveGroup is only known after the JoinGroup in flight."""
        return False

    @property
    def pattern(self) -> str | None:
        """Pattern of topic names that the coordinator matches (KIP-848)."""
        return None

    def take_over(self, before: CommittingMember) -> None:
        """Continue with the subscription and the poll timer of a member that did not join."""
        self._machine.context.poll_timer = before._machine.context.poll_timer
        self.subscribe(before.topics)

    def commit_identity(self) -> CommitIdentity | None:
        """Return generation and member id for OffsetCommit; None while no partitions are owned."""
        generation = self._machine.generation
        if generation is None:
            return None
        return CommitIdentity(
            generation.number,
            generation.member_id,
            self._config.group_instance_id,
            self.in_cooperative_rejoin,
            has_epoch=self.protocol == "consumer",
        )

    def metadata(self) -> GroupMetadata:
        """Return the group metadata for a transaction's offsets (KIP-447).

        After the partitions were lost, this is the lost generation until a poll ends while this
        is a member again, so that the coordinator fences the transaction.
        """
        # mutation: lost-member-offsets-sent-in-new-generation
        generation = self._lost_generation or self._machine.generation or self._last_generation
        if generation is None:
            return GroupMetadata(self.group_id, group_instance_id=self._config.group_instance_id)
        return GroupMetadata(
            self.group_id,
            generation.number,
            generation.member_id,
            self._config.group_instance_id,
        )

    def verify_membership(self) -> None:
        """Send a heartbeat, because a commit was rejected."""
        self._handle(events.CommitRejected())

    def _revoke(
        self, request: int, partitions: states.Assignment
    ) -> Callable[[], Awaitable[events.RequestCompleted]]:
        async def revoke() -> events.RequestCompleted:
            await self._owner.revoke(partitions)
            return events.PartitionsRevoked(request)

        return revoke
