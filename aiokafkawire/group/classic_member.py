"""Member of the classic protocol: performs the effects of the membership machine."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.cluster.routing import CoordinatorType
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.connection import ConnectionKind
from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import count_partitions, list_names, list_partitions
from aiokafkawire.runtime import Runtime, Supervisor
from aiokafkawire.types import NodeId
from aiokafkawire.wire import ApiKey

from .assignors import Assignor
from .classic_requests import ClassicGroupRequests
from .leader import GroupLeader
from .member import CommittingMember, PartitionOwner
from .membership import events, states
from .membership.context import GroupSettings
from .membership.effects import (
    AssignPartitions,
    ComputeAssignment,
    EnterGeneration,
    FindCoordinator,
    ForgetCoordinator,
    MembershipEffect,
    RevokePartitions,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    WatchPartitionCounts,
)
from .membership.membership_machine import MembershipMachine

__all__ = ("ClassicMember", "group_settings")

logger = logging.getLogger("aiokafkawire.group")

WAIT_LOG_AFTER_S = 5.0
"""Wait for other members after which it is logged; a first rebalance takes 3 s by default."""

FIRST_WITH_MEMBER_ID_REQUIRED = 4
"""First JoinGroup version that assigns a member id before the join (KIP-394)."""


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


class ClassicMember(CommittingMember):
    """A member in the classic protocol, in which the members balance the group (KIP-62)."""

    protocol = "classic"
    _machine: MembershipMachine

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
        super().__init__(cluster, runtime, supervisor, config, owner)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._leader = GroupLeader(
            cluster, runtime.clock, self.group_id, self._assignors, supervisor.fields
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
        self._logged_assignment: states.Assignment = ()

    @property
    def in_cooperative_rejoin(self) -> bool:
        """True while the member is rejoining and keeps its partitions (KIP-429)."""
        return isinstance(self._machine.state, states.CooperativeRejoin)

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

    def metadata_changed(self) -> None:
        """Rejoin if this member is the leader and the number of partitions changed."""
        generation = self._machine.generation
        is_stable = isinstance(self._machine.state, states.Stable)
        if generation is None or not generation.is_leader or not is_stable:
            return
        reason = self._leader.find_changed_topic()
        if reason is not None:
            self._handle(events.RejoinRequested(reason))

    def _handle(self, event: events.MembershipEvent) -> None:
        super()._handle(event)
        if not isinstance(self._machine.state, states.InGeneration):
            self._leader.stop_watching()

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
            case _:
                super()._perform(effect)

    def _log_joined(self, generation: states.Generation, owned: states.Assignment) -> None:
        self._logged_assignment = owned
        role = "leader" if generation.is_leader else "follower"
        self._log(
            f"joined generation {generation.number} as {generation.member_id} ({role}, "
            f"{generation.protocol}): {count_partitions(owned)}: {list_partitions(owned)}",
            protocol=generation.protocol,
            partitions=len(owned),
        )

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

    # --- for the leader ---

    def _compute_assignment(
        self, effect: ComputeAssignment
    ) -> Callable[[], Awaitable[events.RequestCompleted]]:
        async def compute() -> events.RequestCompleted:
            try:
                ids = list_names([member.member_id for member in effect.members])
                self._log(
                    f"assigning partitions to {len(effect.members)} members by {effect.protocol}:"
                    f" {ids}",
                    logging.DEBUG,
                    members=len(effect.members),
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
