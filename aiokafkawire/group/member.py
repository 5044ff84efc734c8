"""Group member: performs the effects of the membership machine."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

import anyio

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import CoordinatorType
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.connection import ConnectionKind
from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import count_partitions, list_partitions, log_fields
from aiokafkawire.runtime import AutoResetEvent, Runtime, Supervisor, wait_until
from aiokafkawire.types import GroupMetadata, NodeId
from aiokafkawire.wire import ApiKey

from .assignors import Assignor
from .classic_requests import ClassicGroupRequests
from .leader import GroupLeader
from .membership import events, states
from .membership.context import GroupSettings
from .membership.effects import (
    AssignPartitions,
    ComputeAssignment,
    EnterGeneration,
    FindCoordinator,
    ForgetCoordinator,
    InterruptPoll,
    LogMessage,
    LosePartitions,
    MembershipEffect,
    RevokePartitions,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    WatchPartitionCounts,
)
from .membership.membership_machine import MembershipMachine
from .offsets import CommitIdentity

__all__ = ("GroupMember", "PartitionOwner", "group_settings")

logger = logging.getLogger("aiokafkawire.group")

WAIT_LOG_AFTER_S = 5.0
"""Wait for other members after which it is logged; a first rebalance takes 3 s by default."""

FIRST_WITH_MEMBER_ID_REQUIRED = 4
"""First JoinGroup version that assigns a member id before the join (KIP-394)."""


class PartitionOwner(Protocol):
    """Owner of a member's partitions: the consumer. All methods but `revoke` return immediately."""

    def on_generation_joined(self, generation: states.Generation, owned: states.Assignment) -> None:
        """Offsets of `owned` may be committed in the new generation, after a rebalance."""
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

    def lose(self, partitions: states.Assignment, reason: str) -> None:
        """Release partitions that were lost. They cannot be committed."""
        ...

    def interrupt_poll(self) -> None:
        """A revocation is due: the application's next poll must call `GroupMember.poll_started`."""
        ...

    def on_coordinator_result(self, failure: KafkaError | None) -> None:
        """A request to the coordinator succeeded (None) or failed."""
        ...

    def on_state_changed(self, *, outside_group: bool) -> None:
        """The state has changed. `GroupMember.error` is set if the membership ended.

        With `outside_group` this is neither a member nor joining.
        """
        ...


def group_settings(config: ConsumerConfig, assignors: Collection[Assignor]) -> GroupSettings:
    """Return the options that affect the membership."""
    return GroupSettings(
        cooperative=all(assignor.cooperative for assignor in assignors),
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.effective_session_timeout_ms,
        session_timeout_is_default=config.session_timeout_ms is None,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        request_timeout_ms=config.request_timeout_ms,
    )


class GroupMember:
    """A member of a consumer group. The consumer's tasks may call all synchronous methods."""

    def __init__(
        self,
        cluster: Cluster,
        runtime: Runtime,
        supervisor: Supervisor,
        config: ConsumerConfig,
        *,
        assignors: Sequence[Assignor],
        owner: PartitionOwner,
    ) -> None:
        assert config.group_id is not None
        self.group_id = config.group_id
        self._cluster = cluster
        self._clock = runtime.clock
        self._supervisor = supervisor
        self._config = config
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._owner = owner
        self._leader = GroupLeader(
            cluster, runtime.clock, config.group_id, self._assignors, supervisor.fields
        )
        self._requests = ClassicGroupRequests(
            cluster,
            runtime.clock,
            config,
            self._assignors,
            on_result=owner.on_coordinator_result,
            log=self._log,
        )
        settings = group_settings(config, assignors)
        self._machine = MembershipMachine(settings, runtime.rng, self._clock.now())
        self._events: deque[events.MembershipEvent] = deque()
        self._handling = False
        self._deadline_moved = AutoResetEvent()
        self._closed = anyio.Event()
        self._last_generation: states.Generation | None = None
        self._lost_generation: states.Generation | None = None
        self._logged_assignment: states.Assignment = ()

    # --- for the consumer ---

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
    def in_cooperative_rejoin(self) -> bool:
        """True while the member is rejoining and keeps its partitions (KIP-429)."""
        return isinstance(self._machine.state, states.CooperativeRejoin)

    @property
    def is_outside_group(self) -> bool:
        """True if this is neither a member nor joining."""
        return isinstance(self._machine.state, states.Unjoined | states.MembershipClosed)

    @property
    def awaiting_member_id(self) -> bool:
        """True if the member id for LeaveGroup is only known after the JoinGroup in flight.

        Brokers before 2.2 add a member before they respond. Without LeaveGroup it would stay in the
        group until its session times out.
        """
        state = self._machine.state
        if not isinstance(state, states.Joining) or state.identity.member_id:
            return False
        # The coordinator's versions may be unknown while the connection for JoinGroup is opening.
        clients = [self._cluster.broker_client(node) for node in self._cluster.metadata.nodes]
        known = [client.api_versions for client in clients if client.api_versions is not None]
        # Brokers before 0.9 have no JoinGroup.
        ranges = [versions.ranges.get(ApiKey.JOIN_GROUP) for versions in known]
        return any(
            supported is not None and supported.max_version < FIRST_WITH_MEMBER_ID_REQUIRED
            for supported in ranges
        )

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
        )

    @property
    def generation(self) -> states.Generation | None:
        return self._machine.generation

    def metadata(self) -> GroupMetadata:
        """Return the group metadata for a transaction's offsets (KIP-447).

        After the partitions were lost, this is the lost generation until the next poll, so that
        the coordinator fences the transaction.
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

    def subscribe(self, topics: Collection[str]) -> None:
        """Join with these topics, rejoin if they changed, or leave if there are none."""
        if topics:
            self._handle(events.Subscribed(tuple(sorted(topics))))
        else:
            self._handle(events.Unsubscribed())

    def poll_started(self) -> None:
        """Record the start of a poll. Records returned before are processed."""
        self._lost_generation = None
        self._machine.context.poll_timer.start_poll(self._clock.now())
        self._handle(events.PollStarted())

    def poll_finished(self) -> None:
        """Record the end of a poll."""
        # The poll timer is checked with the next heartbeat.
        self._machine.context.poll_timer.finish_poll(self._clock.now())

    def record_poll(self) -> None:
        """Restart the poll timer: a poll returned buffered records."""
        self._machine.context.poll_timer.last_poll = self._clock.now()

    def verify_membership(self) -> None:
        """Send a heartbeat, because a commit was rejected."""
        self._handle(events.CommitRejected())

    def mark_error_reported(self) -> None:
        """Record that `error` was reported. The next poll may join again."""
        self._handle(events.GroupErrorReported())

    def metadata_changed(self) -> None:
        """Rejoin if this member is the leader and the number of partitions changed."""
        generation = self._machine.generation
        is_stable = isinstance(self._machine.state, states.Stable)
        if generation is None or not generation.is_leader or not is_stable:
            return
        reason = self._leader.find_changed_topic()
        if reason is not None:
            self._handle(events.RejoinRequested(reason))

    async def close(self, deadline: float) -> bool:
        """Revoke, leave, and wait until both are done.

        Returns:
            False at the deadline.
        """
        self._handle(events.CloseRequested(deadline))
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
        if not isinstance(self._machine.state, states.InGeneration):
            self._leader.stop_watching()
        if isinstance(self._machine.state, states.MembershipClosed):
            self._closed.set()
        error = self._machine.error
        if error is not None:
            error.group = self.group_id
        if self._machine.state is not before:
            self._deadline_moved.set()
        if type(self._machine.state) is not type(before):
            # The owner does not need to know about heartbeats.
            self._owner.on_state_changed(outside_group=self.is_outside_group)

    def _perform(self, effect: MembershipEffect) -> None:
        match effect:
            case FindCoordinator(request):
                self._start("find-coordinator", self._requests.find_coordinator(request))
            case ForgetCoordinator(unresponsive_node):
                self._cluster.mark_coordinator_unknown(self.group_id, CoordinatorType.GROUP)
                if unresponsive_node is not None:
                    self._cluster.replace_connection(unresponsive_node, ConnectionKind.GENERAL)
            case SendJoin():
                text = "joining, waiting for the other members"
                self._start(
                    "join", self._log_long_wait(text, effect.node, self._requests.join(effect))
                )
            case ComputeAssignment():
                self._start("assign", self._compute_assignment(effect))
            case WatchPartitionCounts(members):
                self._watch_partition_counts(members)
            case SendSync():
                text = "joining, waiting for the leader's assignment"
                self._start(
                    "sync", self._log_long_wait(text, effect.node, self._requests.sync(effect))
                )
            case SendHeartbeat():
                self._start("heartbeat", self._requests.send_heartbeat(effect))
            case SendLeave():
                self._start("leave", self._requests.leave(effect))
            case RevokePartitions(request, partitions):
                self._owner.prepare_revoke(partitions)
                self._log(
                    f"revoking {count_partitions(partitions)}: {list_partitions(partitions)}",
                    logging.DEBUG,
                    partitions=len(partitions),
                )
                self._start("revoke", self._revoke(request, partitions))
            case LosePartitions(partitions, reason):
                self._lost_generation = self._lost_generation or self._last_generation
                self._owner.lose(partitions, reason)
            case EnterGeneration(generation, owned):
                self._last_generation = generation
                self._log_joined(generation, owned)
                if not generation.is_leader:
                    self._leader.stop_watching()
                self._owner.on_generation_joined(generation, owned)
                self.metadata_changed()
            case AssignPartitions(partitions):
                if partitions and partitions[0] not in self._logged_assignment:
                    # A cooperative member gets these after it has revoked others (KIP-429).
                    self._log(
                        f"added {count_partitions(partitions)}: {list_partitions(partitions)}",
                        partitions=len(partitions),
                    )
                self._owner.assign(partitions)
            case InterruptPoll():
                self._owner.interrupt_poll()
            case LogMessage(text, warning):
                self._log(text, logging.WARNING if warning else logging.INFO)

    def _log_joined(self, generation: states.Generation, owned: states.Assignment) -> None:
        self._logged_assignment = owned
        role = "leader" if generation.is_leader else "follower"
        self._log(
            f"joined generation {generation.number} as {generation.member_id} ({role}, "
            f"{generation.protocol}): {count_partitions(owned)}: {list_partitions(owned)}",
            protocol=generation.protocol,
            partitions=len(owned),
        )

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

    def _log_long_wait(
        self, text: str, node: NodeId, work: Callable[[], Awaitable[events.RequestCompleted]]
    ) -> Callable[[], Awaitable[events.RequestCompleted]]:
        """Return `work`, which logs that other members delay the response."""

        async def log() -> None:
            await self._clock.sleep_until(self._clock.now() + WAIT_LOG_AFTER_S)
            # Without a connection or a response, the cluster client logs the outage.
            self._cluster.request_update()
            if node in self._cluster.metadata.nodes:
                client = self._cluster.broker_client(node)
                if client.ready_channel(ConnectionKind.JOIN) is not None:
                    self._log(f"{text} (for {WAIT_LOG_AFTER_S:.0f} s so far)")

        async def run() -> events.RequestCompleted:
            task = self._supervisor.spawn(log, name="log-wait")
            try:
                return await work()
            finally:
                task.cancel()

        return run

    def _revoke(
        self, request: int, partitions: states.Assignment
    ) -> Callable[[], Awaitable[events.RequestCompleted]]:
        async def revoke() -> events.RequestCompleted:
            await self._owner.revoke(partitions)
            return events.PartitionsRevoked(request)

        return revoke

    # --- for the leader ---

    def _compute_assignment(
        self, effect: ComputeAssignment
    ) -> Callable[[], Awaitable[events.RequestCompleted]]:
        async def compute() -> events.RequestCompleted:
            try:
                self._log(
                    f"assigning partitions to {len(effect.members)} members by {effect.protocol}",
                    logging.DEBUG,
                )
                assignments = await self._leader.assign(effect.protocol, effect.members)
            except KafkaError as error:
                return events.FatalErrorOccurred(effect.request, error)
            return events.AssignmentComputed(effect.request, assignments)

        return compute

    def _watch_partition_counts(self, joined: Sequence[states.JoinedMember]) -> None:
        async def watch() -> None:
            await self._leader.watch(joined)
            self.metadata_changed()

        if self._supervisor.is_running:
            self._supervisor.spawn(watch, name="watch-partitions")
