"""`Broker`, the embedded cluster that a test or a program starts."""

from __future__ import annotations

import functools
import inspect
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Unpack

from aiokafkawire.broker.acls import Acl
from aiokafkawire.broker.api_error import StorageError
from aiokafkawire.broker.authentication import (
    BrokerListener,
    BrokerSasl,
    BrokerTls,
    resolve_listeners,
)
from aiokafkawire.broker.authorizer import Authorizer
from aiokafkawire.broker.calls.faults import FaultCalls
from aiokafkawire.broker.calls.state import StateCalls
from aiokafkawire.broker.calls.topics import BrokerTopicCalls
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.coordinator_loading import CoordinatorLoader
from aiokafkawire.broker.faults import Faults, RequestLog
from aiokafkawire.broker.features import ELIGIBLE_REPLICAS_VERSION, finalized
from aiokafkawire.broker.groups import GroupCoordinator, OffsetStore
from aiokafkawire.broker.groups.consumer_group.coordination import ConsumerGroups
from aiokafkawire.broker.groups.consumer_group.record_log import GroupRecordLog
from aiokafkawire.broker.groups.share_group.coordination import ShareGroups
from aiokafkawire.broker.kafka07 import Logs, connection_to
from aiokafkawire.broker.log_retention import LogRetention
from aiokafkawire.broker.node import Node
from aiokafkawire.broker.options import BrokerConfig, BrokerOptions, check_arguments, check_ports
from aiokafkawire.broker.release_choice import resolve_options
from aiokafkawire.broker.replication import ControllerContext, Replication
from aiokafkawire.broker.request_context import BrokerState
from aiokafkawire.broker.share.configs import ShareGroupConfigs
from aiokafkawire.broker.share.dead_letters import DeadLetterQueue
from aiokafkawire.broker.share.persister import SharePersister
from aiokafkawire.broker.share.share_partition_manager import SharePartitionManager
from aiokafkawire.broker.storage import DirectoryStore, MemoryStore, Store
from aiokafkawire.broker.topics import Partition
from aiokafkawire.broker.transactions import TransactionCoordinator
from aiokafkawire.config import SecurityProtocol
from aiokafkawire.errors import InvalidOption, KafkaError
from aiokafkawire.runtime import Address, Runtime, Supervisor

__all__ = ("Broker",)

KAFKA07_NODE_ID = 0
"""Node id of the Kafka 0.7 listener. Its clients never ask for it; other node ids start at 1."""

DEAD_LETTERS_VERSION = 2
"""Level of share.version with dead-letter topics (KIP-1191)."""

EPOCH_BUMPING_VERSION = 2
"""From this transaction.version on, every end of a transaction bumps the epoch (KIP-890)."""

COMMIT_CHECKS_TOPIC_SINCE = "0.9.0"
"""Earlier releases accept commits for topics that do not exist."""

UNCLEAN_ELECTION_UNTIL = "0.11.0"
"""Earlier releases elect a replica that is out of sync when no other is left."""

LOOPBACK = "127.0.0.1"

CLOSE_TIMEOUT_S = 5.0
"""Time limit for connections to end on close; then they are dropped."""


class Broker(StateCalls, BrokerTopicCalls, FaultCalls):
    """A Kafka cluster inside this process, on real sockets, for development and tests.

    ::

        async with Broker(nodes=3) as broker:
            async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer: ...

    Node ids start at 1. Each node listens on its own port, by default on loopback. All nodes
    share one log, so killing a node loses nothing that has another replica. With `replicate`, each
    node has its own logs and replicates. With `data_dir`, topics, records and committed offsets
    survive a restart.

    Args:
        nodes: Number of nodes, 1 to 64.
        data_dir: Directory for topics, records and committed offsets. Defaults to memory.
        runtime: Network and clock to use. Defaults to the real ones.
        host: Address to listen on.
        advertised_host: Host that the broker advertises to clients. Defaults to `host`.
        ports: Port of each node on the first listener. Defaults to free ports.
        racks: Rack of each node.
        kafka07_port: Additional port that speaks Kafka 0.7, with separate logs (0: any free
            port). Defaults to none.
        acls: Operations that principals may perform; everything else is forbidden. Defaults to
            no authorizer, so that everyone may do everything.
        super_users: Principals such as "User:admin" that may do everything in spite of `acls`.
        tls: True to make certificates for tests (see `authority`), or settings.
        sasl: Password of each user, or settings.
        listeners: Security protocol of each listener, also as keys of the ports of each node.
            Defaults to one listener with what `tls` and `sasl` give: PLAINTEXT, SSL,
            SASL_PLAINTEXT or SASL_SSL.
        options: See `BrokerOptions`.

    Raises:
        InvalidOption: An argument or option is unknown or out of range.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        data_dir: str | Path | None = None,
        runtime: Runtime | None = None,
        host: str = "127.0.0.1",
        advertised_host: str | None = None,
        ports: Sequence[int] | None = None,
        racks: Sequence[str | None] | None = None,
        kafka07_port: int | None = None,
        acls: Sequence[Acl] | None = None,
        super_users: Sequence[str] = (),
        tls: bool | ssl.SSLContext | BrokerTls = False,
        sasl: Mapping[str, str] | BrokerSasl | None = None,
        listeners: Sequence[SecurityProtocol]
        | Mapping[SecurityProtocol, Sequence[int]]
        | None = None,
        **options: Unpack[BrokerOptions],
    ) -> None:
        """Check the arguments; nothing listens before `start` or `async with`."""
        check_arguments(
            nodes,
            data_dir=data_dir,
            host=host,
            advertised_host=advertised_host,
            ports=ports,
            racks=racks,
            kafka07_port=kafka07_port,
            acls=acls,
            super_users=super_users,
        )
        self._release, self.options = resolve_options(
            options, list(inspect.signature(Broker).parameters)[:-1]
        )
        _check_store(self.options, data_dir)
        self.requests = RequestLog()
        super().__init__("broker", f"Broker nodes={nodes}", runtime)
        self._runtime = runtime
        self._has_own_runtime = runtime is not None
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._listeners = resolve_listeners(
            host=host,
            advertised_host=advertised_host,
            ports=ports,
            tls=tls,
            sasl=sasl,
            listeners=listeners,
            check_ports=functools.partial(check_ports, nodes=nodes),
        )
        self._node_ids = range(1, nodes + 1)
        self._kafka07_bind = None if kafka07_port is None else Address(host, kafka07_port)
        self._racks = {node: rack for node, rack in enumerate(racks or [], 1) if rack}
        self._authorizer = None if acls is None else self._make_authorizer(acls, super_users)
        self._faults = Faults()
        self._nodes: dict[int, Node] = {}
        self._kafka07: Node | None = None
        self._store: Store | None = None

    def _make_authorizer(self, acls: Sequence[Acl], super_users: Sequence[str]) -> Authorizer:
        return Authorizer(
            [acl.binding for acl in acls],
            super_users,
            allow_everyone_if_no_acl_found=self.options.allow_everyone_if_no_acl_found,
        )

    # --- life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start listening, as `async with` does; the caller calls `stop`.

        Raises:
            KafkaError: A port is in use, or `data_dir` cannot be used.
        """
        try:
            await super().start()
        except BaseException:
            self._close_store()
            raise

    async def stop(self) -> None:
        """Close every node. Calling it again is allowed, also inside `async with`."""
        await super().stop()

    async def _close(self, body_error: BaseException | None) -> Exception | None:
        runtime = self._runtime
        deadline = 0.0 if runtime is None else runtime.clock.now() + CLOSE_TIMEOUT_S
        try:
            await self._lifecycle.stop(self._stop, deadline)
        finally:
            self._close_store()
        return self._lifecycle.take_unreported_failure()

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()

    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> BrokerState:
        self._runtime = runtime
        directory = self._data_dir
        self._store = store = (
            MemoryStore()
            if directory is None
            else DirectoryStore(directory, clock=runtime.clock.now)
        )
        store.open()
        try:
            cluster = self._cluster(self._node_ids, store)
        except StorageError as error:
            raise KafkaError(f"{directory} cannot be used by a broker: {error}") from error
        cluster.racks.update(self._racks)
        cluster.on_features_updated(cluster.metadata.features.finalized(self._release))
        state = self._make_state(runtime, cluster, store)
        if isinstance(cluster, ControllerContext):
            state.replication = Replication(
                cluster,
                store,
                runtime,
                supervisor,
                advertised_addresses=state.addresses,
                releases=state.releases,
            )
        supervisor.spawn(state.group_coordinator.run, name="groups")
        retention = LogRetention(
            cluster,
            runtime.clock,
            self.options.log_retention_check_interval_ms / 1000,
            lambda partition: (
                [partition] if state.replication is None else state.replication.replicas(partition)
            ),
        )
        supervisor.spawn(retention.run, name="retention")
        supervisor.spawn(state.transaction_coordinator.run, name="transactions")
        supervisor.spawn(state.share_partitions.run, name="share-partitions")
        await self._start_nodes(runtime, supervisor, state)
        if self._kafka07_bind is not None:
            await self._start_kafka07(self._kafka07_bind, runtime, supervisor, state)
        await self._wait_for_metadata_propagation(state)
        return state

    def _make_state(self, runtime: Runtime, cluster: ClusterState, store: Store) -> BrokerState:
        offsets = OffsetStore(store)
        if self._release.since(COMMIT_CHECKS_TOPIC_SINCE):
            offsets.delete_missing_topics(cluster.topics)
        cluster.on_topic_deletion.append(offsets.delete_topic)
        cluster.before_topic_creation.append(offsets.flush_deletions)
        consumer_groups = ConsumerGroups(
            self.options,
            runtime.clock,
            cluster,
            GroupRecordLog(store),
            release=lambda: self._release,
        )
        share_groups = self._make_share_groups(
            runtime, cluster, store, consumer_groups, lambda: state
        )
        groups = GroupCoordinator(
            self.options,
            runtime.clock,
            runtime.rng,
            offsets,
            consumer_groups,
            share_groups=share_groups,
        )
        transactions = TransactionCoordinator(
            self.options,
            runtime.clock,
            cluster,
            offsets,
            store,
            bumps_epoch=lambda: state.transaction_version >= EPOCH_BUMPING_VERSION,
            leader_replica=lambda partition: self._leader_replica(state, partition),
        )
        load_s = self.options.coordinator_load_ms / 1000
        state = BrokerState(
            options=self.options,
            clock=runtime.clock,
            cluster=cluster,
            group_coordinator=groups,
            transaction_coordinator=transactions,
            coordinator_loader=CoordinatorLoader(
                cluster, groups, transactions, runtime.clock, load_s=load_s
            ),
            share_partitions=share_groups.partitions,
            releases=dict.fromkeys(self._node_ids, self._release),
            authorizer=self._authorizer,
            credentials=self._listeners.make_store(runtime.rng),
            rng=runtime.rng,
        )
        state.credentials.tokens = cluster.metadata.tokens
        for user, mechanism, credential in cluster.metadata.scram:
            state.credentials.change_scram(user, mechanism, credential)
        if self._authorizer is not None:
            cluster.metadata.acls.apply(self._authorizer)
        return state

    def _make_share_groups(
        self,
        runtime: Runtime,
        cluster: ClusterState,
        store: Store,
        consumer_groups: ConsumerGroups,
        state: Callable[[], BrokerState],
    ) -> ShareGroups:
        configs = ShareGroupConfigs(cluster.dynamic_configs)
        dead_letters = DeadLetterQueue(
            cluster,
            configs,
            runtime.clock,
            is_enabled=lambda: state().share_version >= DEAD_LETTERS_VERSION,
            leader_replica=lambda partition: self._leader_replica(state(), partition),
        )
        partitions = SharePartitionManager(
            cluster,
            SharePersister(store, runtime.clock),
            runtime.clock,
            configs,
            self.options.group_share_max_share_sessions,
            dead_letters=dead_letters,
        )
        share_groups = ShareGroups(
            self.options,
            runtime.clock,
            cluster,
            consumer_groups.log,
            partitions,
            release=lambda: self._release,
            topics=consumer_groups.topics,
        )
        cluster.on_topic_deletion.append(lambda name: share_groups.delete_missing_topics())
        return share_groups

    async def _start_nodes(
        self, runtime: Runtime, supervisor: Supervisor, state: BrokerState
    ) -> None:
        listeners = self._listeners.make(
            state.credentials,
            self.options.connections_max_reauth_ms,
            between_nodes=self.options.replicate,
        )
        for node_id in self._node_ids:
            self._nodes[node_id] = node = Node(
                node_id,
                supervisor,
                runtime,
                self._faults,
                self.requests,
                listeners=listeners,
                inter_broker_listener=self._listeners.inter_broker_listener,
            )
            await self._bind_node(node, self._bind_addresses(listeners, node_id), state)
            self._register_node(node, state)

    async def _start_kafka07(
        self, address: Address, runtime: Runtime, supervisor: Supervisor, state: BrokerState
    ) -> None:
        self._kafka07 = node = Node(
            KAFKA07_NODE_ID,
            supervisor,
            runtime,
            self._faults,
            self.requests,
            serve=connection_to(Logs(self.options, runtime.rng)),
        )
        [listener] = node.listeners
        await self._bind_node(node, {listener.name: address}, state)

    def _cluster(self, node_ids: Sequence[int], store: Store) -> ClusterState:
        assert self._runtime is not None
        if not self.options.replicate:
            return ClusterState(node_ids, store, self.options, self._runtime.rng)
        return ControllerContext(
            node_ids,
            store,
            self.options,
            self._runtime.rng,
            allow_unclean=not self._release.since(UNCLEAN_ELECTION_UNTIL),
            uses_elr=self._uses_elr,
        )

    @property
    def _uses_elr(self) -> bool:
        return finalized(self._release).get(ELIGIBLE_REPLICAS_VERSION, 0) > 0

    def _bind_addresses(
        self, listeners: Sequence[BrokerListener], node_id: int
    ) -> Mapping[str, Address]:
        """Return the address to bind for each listener of a node."""
        host, ports = self._listeners.host, self._listeners.ports
        # All nodes are in this process: others need not reach a listener without authentication.
        internal_host = host if self._has_own_runtime else LOOPBACK
        return {
            each.name: Address(
                internal_host if each.is_internal else host,
                ports[each.name][node_id - 1] if each.name in ports else 0,
            )
            for each in listeners
        }

    async def _stop(self, state: BrokerState) -> None:
        nodes = [*self._nodes.values(), *([self._kafka07] if self._kafka07 else [])]
        for node in nodes:
            node.abort_sockets()
        if state.replication is not None:
            state.replication.abort()
        for node in nodes:
            await node.wait_stopped()
        state.loggers.restore()
        state.cluster.save_if_possible()

    def _leader_replica(self, state: BrokerState, partition: Partition) -> Partition | None:
        """Return the leader's view of a partition, None while there is no leader."""
        replication = state.replication
        return partition if replication is None else replication.leader_replica(partition)


def _check_store(options: BrokerConfig, data_dir: str | Path | None) -> None:
    if options.replicate and data_dir is not None:
        raise InvalidOption("data_dir cannot be used with replicate, which keeps logs in memory")
