"""Tasks of nodes with replication; they wait and send what the state machines decide."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.callbacks import Callbacks
from aiokafkawire.broker.releases import Release
from aiokafkawire.broker.replication.controller import Controller
from aiokafkawire.broker.replication.controller_commands import (
    ControllerCommand,
    LeaderAndIsrCommand,
    StopReplicaCommand,
    UpdateMetadataCommand,
    build_leader_and_isr_request,
    build_stop_replica_request,
    build_update_metadata_request,
)
from aiokafkawire.broker.replication.controller_context import ControllerContext
from aiokafkawire.broker.replication.inter_broker_clients import (
    RESPONSE_TIMEOUT_S,
    InterBrokerClients,
)
from aiokafkawire.broker.replication.replica import Leading, Replica
from aiokafkawire.broker.replication.replica_fetcher import (
    RETRY_S,
    ReplicaFetcher,
    fetch_request_for,
    needs_topic_names,
)
from aiokafkawire.broker.replication.replica_manager import ReplicaManager, ReplicationConfig
from aiokafkawire.broker.storage import Store
from aiokafkawire.broker.topics import Partition
from aiokafkawire.connection import ConnectionKind, VersionedRequest
from aiokafkawire.connection.node_api_versions import MAX_WITHOUT_TOPIC_IDS
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime import Address, AutoResetEvent, Runtime, Supervisor
from aiokafkawire.wire import ApiKey, ErrorCode, Request, Response
from aiokafkawire.wire.messages.controlled_shutdown import ControlledShutdownRequest
from aiokafkawire.wire.messages.fetch import FetchRequest

__all__ = ("Replication", "ReplicationNode")

logger = logging.getLogger("aiokafkawire.broker")

SHUTDOWN_ATTEMPTS = 3
"""Attempts of a controlled shutdown before the node stops anyway."""

LEADER_EPOCH_SINCE = "0.11.0"
"""First release in which followers truncate by epoch (KIP-101)."""

DIVERGING_EPOCH_SINCE = "2.7"
"""First release in which Fetch returns the diverging epoch (KIP-595)."""

MIN_ISR_WATERMARK_SINCE = "3.7"
"""First release whose high watermark waits for enough in-sync replicas (KIP-966)."""


class ReplicationNode(Protocol):
    """A node that runs tasks, which end when it is killed and wait while it is paused."""

    @property
    def node_id(self) -> int: ...

    @property
    def paused(self) -> bool: ...

    @property
    def address(self) -> Address | None: ...

    def spawn(self, function: Callable[..., Awaitable[None]], name: str, *args: object) -> None: ...

    async def wait_until_resumed(self) -> None: ...


class Replication:
    """Replication among the nodes of one cluster.

    `advertised_addresses` are the addresses for clients, `releases` the release of each node.
    """

    def __init__(
        self,
        controller_context: ControllerContext,
        store: Store,
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        advertised_addresses: Mapping[int, Address],
        releases: Mapping[int, Release],
    ) -> None:
        self.controller_context = controller_context
        self.managers: dict[int, ReplicaManager] = {}
        self.controller: Controller | None = None
        self._options = controller_context.options
        self._store = store
        self._runtime = runtime
        self._supervisor = supervisor
        self._advertised_addresses = advertised_addresses
        self._releases = releases
        self._nodes: dict[int, ReplicationNode] = {}
        self._addresses: dict[int, Address] = {}
        self._clients: dict[int, InterBrokerClients] = {}
        self._fetched_from: dict[int, set[int]] = {}
        self._on_ack = Callbacks()
        controller_context.dynamic_configs.on_change.add(self._update_configs)

    def _update_configs(self) -> None:
        for manager in self.managers.values():
            manager.update_configs()

    # --- nodes -------------------------------------------------------------------------------

    def on_node_startup(self, node: ReplicationNode) -> None:
        """Add a node that listens to the cluster."""
        node_id = node.node_id
        manager = self.managers.get(node_id)
        if manager is None:
            manager = ReplicaManager(node_id, self._options, self._store, self.controller_context)
            self.managers[node_id] = manager
        release = self._releases[node_id]
        oldest = min(self._releases.values(), key=lambda each: each.number)
        manager.habits = ReplicationConfig(
            truncates_by_epoch=release.since(LEADER_EPOCH_SINCE),
            truncates_on_fetch=oldest.since(DIVERGING_EPOCH_SINCE),
            waits_for_min_isr=release.since(MIN_ISR_WATERMARK_SINCE),
        )
        manager.on_new_leader = lambda leader: self._start_fetcher(node, leader)
        assert node.address is not None, "it listens"
        self._nodes[node_id] = node
        self._addresses[node_id] = node.address
        self._clients[node_id] = InterBrokerClients(
            node_id, self._runtime, self._supervisor, self._releases.__getitem__
        )
        self._fetched_from[node_id] = set()
        node.spawn(self._shrink_isrs, "isr", node)
        options = self._options
        for interval_ms, act, name in (
            (options.flush_interval_ms, manager.flush, "flush"),
            (options.high_watermark_checkpoint_interval_ms, manager.checkpoint, "checkpoint"),
        ):
            node.spawn(self._after_writes, name, node, interval_ms / 1000, act)
        for clients in self._clients.values():
            clients.forget(node_id)
        self.controller_context.on_node_startup(node_id)
        self._start_controller()

    def on_node_failure(self, node_id: int, *, lose_unsynced: bool = False) -> None:
        """Handle the crash of a node, whose tasks are cancelled already."""
        self.managers[node_id].crash(lose_unsynced=lose_unsynced)
        self._clients[node_id].abort()
        if self.controller is not None:
            self.controller.forget(node_id)
        self.controller_context.on_node_failure(node_id)
        self._start_controller()

    def on_session_expired(self, node_id: int) -> None:
        """Move the leaders of a node whose session expired; it receives no commands."""
        if self.controller is not None:
            self.controller.forget(node_id)
        self.controller_context.on_node_failure(node_id, session_expired=True)
        self._start_controller()

    def on_session_restored(self, node_id: int) -> None:
        """Return a node to the cluster after its session expired, and update it."""
        self.controller_context.on_node_startup(node_id)
        self._start_controller()

    async def shut_down(self, node: ReplicationNode) -> None:
        """Ask the controller to move the leaders of a node, as far as possible."""
        if node.paused:
            return
        request = ControlledShutdownRequest(broker_id=node.node_id)
        for _ in range(SHUTDOWN_ATTEMPTS):
            controller_id = self.controller_context.controller_id
            if controller_id not in self._addresses:
                # The sessions of all nodes have expired, so nobody can take over.
                return
            try:
                response = await self._clients[node.node_id].request(
                    controller_id, self._addresses[controller_id], request, ConnectionKind.GENERAL
                )
            except KafkaError as error:
                logger.warning("node %d: controlled shutdown failed: %s", node.node_id, error)
                return
            if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                break
            await self._pause()
        await self.wait_until_up_to_date(RESPONSE_TIMEOUT_S)
        self.managers[node.node_id].checkpoint()

    def abort(self) -> None:
        """Close the connections among nodes."""
        for clients in self._clients.values():
            clients.abort()

    # --- partitions --------------------------------------------------------------------------

    def replica(self, partition: Partition, node_id: int) -> Replica | None:
        """Return the replica of a node, None if it has none."""
        manager = self.managers.get(node_id)
        return None if manager is None else manager.replicas.get((partition.topic, partition.index))

    def replicas(self, partition: Partition) -> list[Replica]:
        """Return the replicas of all running nodes."""
        replicas = [self.replica(partition, node_id) for node_id in partition.replicas]
        return [replica for replica in replicas if replica is not None]

    def leader_replica(self, partition: Partition) -> Replica | None:
        """Return the leader's replica, once that node knows that it leads."""
        replica = self.replica(partition, partition.leader)
        return replica if replica is not None and isinstance(replica.state, Leading) else None

    def truncate(self, partition: Partition, offset: int) -> None:
        """Truncate every replica and start a new leader epoch. Raises `ApiError`."""
        leader = self.leader_replica(partition)
        if leader is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
        if not leader.log.start_offset <= offset <= leader.log.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        for replica in self.replicas(partition):
            replica.truncate_to(offset)
            replica.on_change.notify()
        partition.leader_epoch += 1
        self.controller_context.save()

    # --- waiting -----------------------------------------------------------------------------

    async def wait_until_up_to_date(self, timeout_s: float) -> bool:
        """Wait until every running node has the current state; False at the deadline."""
        return await self.wait_until(self._all_up_to_date, timeout_s)

    async def wait_until_node_is_up_to_date(self, node_id: int, timeout_s: float) -> bool:
        """Wait until a node has the current state; False at the deadline."""
        controller = self.controller
        if controller is None:
            return False
        return await self.wait_until(lambda: controller.is_up_to_date(node_id), timeout_s)

    async def wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition of the cluster holds; False at the deadline."""
        deadline = self._runtime.clock.now() + timeout_s
        signal = AutoResetEvent()
        watched = (self.controller_context.on_change, self._on_ack)
        for callbacks in watched:
            callbacks.add(signal.set)
        try:
            while not done():
                if not await signal.wait(deadline):
                    return False
            return True
        finally:
            for callbacks in watched:
                callbacks.remove(signal.set)

    def _all_up_to_date(self) -> bool:
        controller = self.controller
        if controller is None or self._nodes[controller.node_id].paused:
            return True
        return all(
            controller.is_up_to_date(node_id)
            for node_id in self.controller_context.live
            if not self._nodes[node_id].paused
        )

    # --- the controller ----------------------------------------------------------------------

    def _start_controller(self) -> None:
        """Start the tasks of a new controller."""
        controller_context, before = self.controller_context, self.controller
        if controller_context.controller_id not in controller_context.live:
            self.controller = None
            return
        if before is not None and before.epoch == controller_context.controller_epoch:
            return
        self.controller = controller = Controller(
            controller_context.controller_id,
            controller_context.controller_epoch,
            controller_context,
            self._addresses,
            self._advertised_addresses,
        )
        node = self._nodes[controller.node_id]
        for node_id in controller_context.node_ids:
            node.spawn(self._send_commands, f"controls-{node_id}", controller, node, node_id)

    async def _send_commands(
        self, controller: Controller, node: ReplicationNode, node_id: int
    ) -> None:
        """Send commands to one node while the controller runs."""
        signal = AutoResetEvent()
        self.controller_context.on_change.add(signal.set)
        try:
            while True:
                await node.wait_until_resumed()
                if self.controller is not controller:
                    # Another controller took over while this one was paused.
                    return
                command = controller.next_command(node_id)
                if command is None:
                    await signal.wait()
                else:
                    await self._send_command(controller, node, node_id, command)
        finally:
            self.controller_context.on_change.remove(signal.set)

    async def _send_command(
        self,
        controller: Controller,
        node: ReplicationNode,
        node_id: int,
        command: ControllerCommand,
    ) -> None:
        clients, address = self._clients[node.node_id], self._addresses[node_id]
        try:
            response = await clients.request(
                node_id, address, _request(command), ConnectionKind.GENERAL
            )
        except KafkaError as error:
            logger.debug("controller %d: node %d: %s", node.node_id, node_id, error)
            await self._pause()
            return
        await node.wait_until_resumed()
        code = getattr(response, "error_code", ErrorCode.NONE)
        if code != ErrorCode.NONE:
            logger.warning(
                "controller %d: node %d returned error code %d", node.node_id, node_id, code
            )
        controller.on_response(node_id, command)
        self._on_ack.notify()
        if isinstance(command, LeaderAndIsrCommand):
            self._notify_leadership(command)

    def _notify_leadership(self, command: LeaderAndIsrCommand) -> None:
        """Wake those that wait for a leader."""
        for topic, index in command.partitions:
            known = self.controller_context.topics.get(topic)
            if known is not None and index < len(known.partitions):
                known.partitions[index].on_change.notify()

    async def _pause(self) -> None:
        clock = self._runtime.clock
        await clock.sleep_until(clock.now() + RETRY_S)

    # --- followers and leaders ---------------------------------------------------------------

    def _start_fetcher(self, node: ReplicationNode, leader: int) -> None:
        if leader not in self._fetched_from[node.node_id]:
            self._fetched_from[node.node_id].add(leader)
            node.spawn(self._run_fetcher, f"follows-{leader}", node, leader)

    async def _run_fetcher(self, node: ReplicationNode, leader: int) -> None:
        """Fetch from one leader while the node runs."""
        manager, clock = self.managers[node.node_id], self._runtime.clock
        fetcher = ReplicaFetcher(manager, leader, self._options)
        signal = AutoResetEvent()
        manager.on_change.add(signal.set)
        try:
            while True:
                await node.wait_until_resumed()
                call = fetcher.next_request(clock.now())
                address = manager.endpoints.get(leader)
                if call is None or address is None:
                    await signal.wait(fetcher.next_deadline(clock.now()))
                    continue
                request, max_version = _in_any_version(call.request)
                try:
                    response = await self._clients[node.node_id].request(
                        leader, address, request, ConnectionKind.FETCH, max_version
                    )
                except KafkaError as error:
                    logger.debug("node %d: node %d: %s", node.node_id, leader, error)
                    fetcher.on_failure(clock.now())
                    continue
                await node.wait_until_resumed()
                fetcher.on_response(call, response, clock.now())
        finally:
            manager.on_change.remove(signal.set)

    async def _shrink_isrs(self, node: ReplicationNode) -> None:
        """Check twice per `replica_lag_time_max_ms` for slow followers, as Kafka does."""
        clock = self._runtime.clock
        manager = self.managers[node.node_id]
        interval_s = self._options.replica_lag_time_max_ms / 1000 / 2
        while True:
            await clock.sleep_until(clock.now() + interval_s)
            await node.wait_until_resumed()
            manager.maybe_shrink_isrs(clock.now())

    async def _after_writes(
        self, node: ReplicationNode, interval_s: float, act: Callable[[], None]
    ) -> None:
        """Call `act` some time after each write while the node runs."""
        clock, written = self._runtime.clock, self.managers[node.node_id].on_write
        signal = AutoResetEvent()
        written.add(signal.set)
        try:
            while True:
                await signal.wait()
                await clock.sleep_until(clock.now() + interval_s)
                await node.wait_until_resumed()
                act()
        finally:
            written.remove(signal.set)


def _in_any_version(
    request: Request[Response],
) -> tuple[Request[Response] | VersionedRequest[Response], int | None]:
    """Return the request of a follower, and the highest version that it can use."""
    if not isinstance(request, FetchRequest):
        return request, None
    last = MAX_WITHOUT_TOPIC_IDS[ApiKey.FETCH] if needs_topic_names(request) else None
    return VersionedRequest(ApiKey.FETCH, lambda version: fetch_request_for(request, version)), last


def _request(command: ControllerCommand) -> VersionedRequest[Response]:
    """Return the request of a command, for any version."""
    match command:
        case LeaderAndIsrCommand():
            return VersionedRequest(
                ApiKey.LEADER_AND_ISR,
                lambda version: build_leader_and_isr_request(command, version),
            )
        case StopReplicaCommand():
            return VersionedRequest(
                ApiKey.STOP_REPLICA, lambda version: build_stop_replica_request(command, version)
            )
        case UpdateMetadataCommand():
            return VersionedRequest(
                ApiKey.UPDATE_METADATA,
                lambda version: build_update_metadata_request(command, version),
            )
