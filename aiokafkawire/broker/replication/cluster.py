"""The tasks of nodes that replicate: they wait and send, and ask machines what next."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.callbacks import Callbacks
from aiokafkawire.broker.cluster_state import Partition
from aiokafkawire.broker.releases import Release
from aiokafkawire.broker.replication.controller import Controller
from aiokafkawire.broker.replication.fetcher import RETRY_S, Fetcher, fetch_in, names_topics
from aiokafkawire.broker.replication.manager import Habits, ReplicaManager
from aiokafkawire.broker.replication.messages import (
    LeadOrder,
    MetadataOrder,
    Order,
    StopOrder,
    lead_request,
    metadata_request,
    stop_request,
)
from aiokafkawire.broker.replication.peers import ANSWER_TIMEOUT_S, Peers
from aiokafkawire.broker.replication.registry import Registry
from aiokafkawire.broker.replication.replica import Leading, Replica
from aiokafkawire.broker.storage import Store
from aiokafkawire.connection import ByVersion, Lane
from aiokafkawire.connection.versions import MAX_WITHOUT_TOPIC_IDS
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime import Address, Host, Runtime, Signal
from aiokafkawire.wire import ApiKey, ErrorCode, Request, Response
from aiokafkawire.wire.messages.controlled_shutdown import ControlledShutdownRequest
from aiokafkawire.wire.messages.fetch import FetchRequest

__all__ = ("Replication", "Site")

logger = logging.getLogger("aiokafkawire.broker")

SHUTDOWN_ATTEMPTS = 3
"""How often a node asks the controller to take its partitions, before it stops all the same."""

EPOCHS_SINCE = "0.11.0"
"""Since this release a follower cuts its log off by epochs (KIP-101)."""

TOLD_BY_FETCH_SINCE = "2.7"
"""Since this release a fetch tells a follower where its log parts from the leader's (KIP-595)."""

STRICT_SINCE = "3.7"
"""Since this release a high watermark waits until enough replicas are in sync (KIP-966)."""


class Site(Protocol):
    """A node as a place for tasks, which end when it is killed and wait while it is paused."""

    @property
    def node_id(self) -> int: ...

    @property
    def paused(self) -> bool: ...

    @property
    def address(self) -> Address | None: ...

    def spawn(self, function: Callable[..., Awaitable[None]], name: str, *args: object) -> None: ...

    async def wait_until_resumed(self) -> None: ...


class Replication:
    """The nodes of one cluster: what each of them knows and does.

    `shown` are the addresses that clients are told, `releases` which one each node is of.
    """

    def __init__(
        self,
        registry: Registry,
        store: Store,
        runtime: Runtime,
        host: Host,
        *,
        shown: Mapping[int, Address],
        releases: Mapping[int, Release],
    ) -> None:
        self.registry = registry
        self.managers: dict[int, ReplicaManager] = {}
        self.controller: Controller | None = None
        self._options = registry.options
        self._store = store
        self._runtime = runtime
        self._host = host
        self._shown = shown
        self._releases = releases
        self._sites: dict[int, Site] = {}
        self._addresses: dict[int, Address] = {}
        self._peers: dict[int, Peers] = {}
        self._fetched_from: dict[int, set[int]] = {}
        self._told = Callbacks()

    # --- nodes -------------------------------------------------------------------------------

    def came(self, site: Site) -> None:
        """A node listens: it is one of the cluster from now on."""
        node_id = site.node_id
        manager = self.managers.get(node_id)
        if manager is None:
            manager = ReplicaManager(node_id, self._options, self._store, self.registry)
            self.managers[node_id] = manager
        release = self._releases[node_id]
        oldest = min(self._releases.values(), key=lambda each: each.number)
        manager.habits = Habits(
            by_epoch=release.since(EPOCHS_SINCE),
            on_fetch=oldest.since(TOLD_BY_FETCH_SINCE),
            strict=release.since(STRICT_SINCE),
        )
        manager.on_leader = lambda leader: self._fetch_from(site, leader)
        assert site.address is not None, "it listens"
        self._sites[node_id] = site
        self._addresses[node_id] = site.address
        self._peers[node_id] = Peers(node_id, self._runtime, self._host, self._releases.__getitem__)
        self._fetched_from[node_id] = set()
        site.spawn(self._tick, "isr", site)
        options = self._options
        for interval_ms, act, name in (
            (options.flush_interval_ms, manager.flush, "flush"),
            (options.high_watermark_checkpoint_interval_ms, manager.checkpoint, "checkpoint"),
        ):
            site.spawn(self._after_writes, name, site, interval_ms / 1000, act)
        for peers in self._peers.values():
            peers.forget(node_id)
        self.registry.on_node_startup(node_id)
        self._begin_term()

    def died(self, node_id: int, *, lose_unsynced: bool = False) -> None:
        """A node was killed; its tasks were cancelled already."""
        self.managers[node_id].crash(lose_unsynced=lose_unsynced)
        self._peers[node_id].abort()
        if self.controller is not None:
            self.controller.forget(node_id)
        self.registry.on_node_failure(node_id)
        self._begin_term()

    def lost(self, node_id: int) -> None:
        """A node was not heard of for too long: others take what it led, and it is told nothing."""
        if self.controller is not None:
            self.controller.forget(node_id)
        self.registry.on_node_failure(node_id, crashed=False)
        self._begin_term()

    def found(self, node_id: int) -> None:
        """A node that was lost is heard of again, and is told how things are by now."""
        self.registry.on_node_startup(node_id)
        self._begin_term()

    async def shut_down(self, site: Site) -> None:
        """Have the controller give what a node leads to others, as far as it can."""
        if site.paused:
            return
        request = ControlledShutdownRequest(broker_id=site.node_id)
        for _ in range(SHUTDOWN_ATTEMPTS):
            controller_id = self.registry.controller_id
            try:
                response = await self._peers[site.node_id].ask(
                    controller_id, self._addresses[controller_id], request, Lane.GENERAL
                )
            except KafkaError as error:
                logger.warning("node %d: cannot shut down in good order: %s", site.node_id, error)
                return
            if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                break
            await self._pause()
        await self.settled(ANSWER_TIMEOUT_S)
        self.managers[site.node_id].checkpoint()

    def abort(self) -> None:
        """Close the connections between nodes."""
        for peers in self._peers.values():
            peers.abort()

    # --- partitions --------------------------------------------------------------------------

    def replica(self, partition: Partition, node_id: int) -> Replica | None:
        """What a node has of a partition."""
        manager = self.managers.get(node_id)
        return None if manager is None else manager.replicas.get((partition.topic, partition.index))

    def replicas(self, partition: Partition) -> list[Replica]:
        """What all nodes that run have of a partition."""
        found = [self.replica(partition, node_id) for node_id in partition.replicas]
        return [replica for replica in found if replica is not None]

    def leading(self, partition: Partition) -> Replica | None:
        """What its leader has of it, once that node knows that it leads."""
        replica = self.replica(partition, partition.leader)
        return replica if replica is not None and isinstance(replica.state, Leading) else None

    def truncate(self, partition: Partition, offset: int) -> None:
        """Cut every replica off at an offset and begin a new epoch. Raises `ApiError`."""
        leading = self.leading(partition)
        if leading is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
        if not leading.log.start_offset <= offset <= leading.log.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        for replica in self.replicas(partition):
            replica.cut(offset)
            replica.on_change.notify()
        partition.leader_epoch += 1
        self.registry.save()

    # --- waiting -----------------------------------------------------------------------------

    async def settled(self, timeout_s: float) -> bool:
        """Wait until every node that runs was told everything; False at the deadline."""
        return await self.until(self._all_told, timeout_s)

    async def told(self, node_id: int, timeout_s: float) -> bool:
        """Wait until a node was told everything; False at the deadline."""
        controller = self.controller
        if controller is None:
            return False
        return await self.until(lambda: controller.knows_all(node_id), timeout_s)

    async def until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something of the cluster is so; False at the deadline."""
        deadline = self._runtime.clock.now() + timeout_s
        signal = Signal()
        watched = (self.registry.on_change, self._told)
        for watchers in watched:
            watchers.add(signal.set)
        try:
            while not done():
                if not await signal.wait(deadline):
                    return False
            return True
        finally:
            for watchers in watched:
                watchers.remove(signal.set)

    def _all_told(self) -> bool:
        controller = self.controller
        if controller is None or self._sites[controller.node_id].paused:
            return True
        return all(
            controller.knows_all(node_id)
            for node_id in self.registry.live
            if not self._sites[node_id].paused
        )

    # --- the controller ----------------------------------------------------------------------

    def _begin_term(self) -> None:
        """Let whoever is the controller now tell every node how things are."""
        registry, before = self.registry, self.controller
        if registry.controller_id not in registry.live:
            self.controller = None
            return
        if before is not None and before.epoch == registry.controller_epoch:
            return
        self.controller = controller = Controller(
            registry.controller_id,
            registry.controller_epoch,
            registry,
            self._addresses,
            self._shown,
        )
        site = self._sites[controller.node_id]
        for node_id in registry.node_ids:
            site.spawn(self._command, f"controls-{node_id}", controller, site, node_id)

    async def _command(self, controller: Controller, site: Site, node_id: int) -> None:
        """Tell one node what it does not know, as long as the node of the controller runs."""
        signal = Signal()
        self.registry.on_change.add(signal.set)
        try:
            while True:
                await site.wait_until_resumed()
                if self.controller is not controller:
                    # It hung for so long that another one took over.
                    return
                order = controller.next_order(node_id)
                if order is None:
                    await signal.wait()
                else:
                    await self._tell(controller, site, node_id, order)
        finally:
            self.registry.on_change.remove(signal.set)

    async def _tell(self, controller: Controller, site: Site, node_id: int, order: Order) -> None:
        peers, address = self._peers[site.node_id], self._addresses[node_id]
        try:
            response = await peers.ask(node_id, address, _request(order), Lane.GENERAL)
        except KafkaError as error:
            logger.debug("controller %d: node %d: %s", site.node_id, node_id, error)
            await self._pause()
            return
        await site.wait_until_resumed()
        code = getattr(response, "error_code", ErrorCode.NONE)
        if code != ErrorCode.NONE:
            logger.warning("controller %d: node %d answers %d", site.node_id, node_id, code)
        controller.obeyed(node_id, order)
        self._told.notify()
        if isinstance(order, LeadOrder):
            self._lead_taken(order)

    def _lead_taken(self, order: LeadOrder) -> None:
        """Whoever waits for a partition to be led can go on."""
        for topic, index in order.partitions:
            known = self.registry.topics.get(topic)
            if known is not None and index < len(known.partitions):
                known.partitions[index].on_change.notify()

    async def _pause(self) -> None:
        clock = self._runtime.clock
        await clock.sleep_until(clock.now() + RETRY_S)

    # --- followers and leaders ---------------------------------------------------------------

    def _fetch_from(self, site: Site, leader: int) -> None:
        if leader not in self._fetched_from[site.node_id]:
            self._fetched_from[site.node_id].add(leader)
            site.spawn(self._follow, f"follows-{leader}", site, leader)

    async def _follow(self, site: Site, leader: int) -> None:
        """Fetch what one other node leads, as long as this one runs."""
        manager, clock = self.managers[site.node_id], self._runtime.clock
        fetcher = Fetcher(manager, leader, self._options)
        signal = Signal()
        manager.on_change.add(signal.set)
        try:
            while True:
                await site.wait_until_resumed()
                ask = fetcher.next(clock.now())
                address = manager.endpoints.get(leader)
                if ask is None or address is None:
                    await signal.wait(fetcher.next_deadline(clock.now()))
                    continue
                request, max_version = _in_any_version(ask.request)
                try:
                    response = await self._peers[site.node_id].ask(
                        leader, address, request, Lane.FETCH, max_version
                    )
                except KafkaError as error:
                    logger.debug("node %d: node %d: %s", site.node_id, leader, error)
                    fetcher.failed(clock.now())
                    continue
                await site.wait_until_resumed()
                fetcher.answered(ask, response, clock.now())
        finally:
            manager.on_change.remove(signal.set)

    async def _tick(self, site: Site) -> None:
        """Look twice in the time that a follower may lag, as Kafka does, who is too slow."""
        clock = self._runtime.clock
        manager = self.managers[site.node_id]
        interval_s = self._options.replica_lag_time_max_ms / 1000 / 2
        while True:
            await clock.sleep_until(clock.now() + interval_s)
            await site.wait_until_resumed()
            manager.tick(clock.now())

    async def _after_writes(self, site: Site, interval_s: float, act: Callable[[], None]) -> None:
        """Do something so long after something was written, as long as the node runs."""
        clock, written = self._runtime.clock, self.managers[site.node_id].written
        signal = Signal()
        written.add(signal.set)
        try:
            while True:
                await signal.wait()
                await clock.sleep_until(clock.now() + interval_s)
                await site.wait_until_resumed()
                act()
        finally:
            written.remove(signal.set)


def _in_any_version(
    request: Request[Response],
) -> tuple[Request[Response] | ByVersion[Response], int | None]:
    """What a follower asks, and the highest version that it can go in, if there is one."""
    if not isinstance(request, FetchRequest):
        return request, None
    last = MAX_WITHOUT_TOPIC_IDS[ApiKey.FETCH] if names_topics(request) else None
    return ByVersion(ApiKey.FETCH, lambda version: fetch_in(request, version)), last


def _request(order: Order) -> ByVersion[Response]:
    """The request for an order, in whichever version."""
    match order:
        case LeadOrder():
            return ByVersion(ApiKey.LEADER_AND_ISR, lambda version: lead_request(order, version))
        case StopOrder():
            return ByVersion(ApiKey.STOP_REPLICA, lambda version: stop_request(order, version))
        case MetadataOrder():
            return ByVersion(
                ApiKey.UPDATE_METADATA, lambda version: metadata_request(order, version)
            )
