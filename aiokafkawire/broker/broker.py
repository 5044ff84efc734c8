"""`Broker`, the embedded cluster that a test or a program starts."""

from __future__ import annotations

import errno
import functools
import inspect
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from aiokafkawire.broker.acls import Acl
from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.authentication import (
    BrokerListener,
    BrokerSasl,
    BrokerTls,
    CertificateAuthority,
    check_user,
    resolve_listeners,
)
from aiokafkawire.broker.authorizer import Authorizer
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.coordinator_loading import CoordinatorLoader
from aiokafkawire.broker.faults import Action, Fault, Faults, RequestLog, SeenRequest
from aiokafkawire.broker.features import ELIGIBLE_REPLICAS_VERSION, finalized
from aiokafkawire.broker.fetch_session_cache import FetchSessionCache
from aiokafkawire.broker.groups import GroupCoordinator, OffsetStore
from aiokafkawire.broker.groups.consumer_group.coordination import ConsumerGroups
from aiokafkawire.broker.groups.consumer_group.record_log import GroupRecordLog
from aiokafkawire.broker.kafka07 import Logs, connection_to
from aiokafkawire.broker.log_retention import LogRetention
from aiokafkawire.broker.node import Node
from aiokafkawire.broker.options import BrokerOptions, check_arguments, check_ports
from aiokafkawire.broker.release_choice import resolve_options, resolve_release
from aiokafkawire.broker.replication import ControllerContext, Replication
from aiokafkawire.broker.request_context import BrokerState
from aiokafkawire.broker.storage import DirectoryStore, MemoryStore, Store
from aiokafkawire.broker.telemetry import ClientMetrics
from aiokafkawire.broker.topics import Partition
from aiokafkawire.broker.transactions import TransactionCoordinator
from aiokafkawire.config import SecurityProtocol
from aiokafkawire.errors import InvalidOption, KafkaError
from aiokafkawire.runtime import Address, BaseClient, Runtime, Supervisor
from aiokafkawire.security import Secret
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, error_for

__all__ = ("Broker",)

KAFKA07_NODE_ID = 0
"""Node id of the Kafka 0.7 listener. Its clients never ask for it; other node ids start at 1."""

EPOCH_BUMPING_VERSION = 2
"""From this transaction.version on, every end of a transaction bumps the epoch (KIP-890)."""

COMMIT_CHECKS_TOPIC_SINCE = "0.9.0"
"""Earlier releases accept commits for topics that do not exist."""

UNCLEAN_ELECTION_UNTIL = "0.11.0"
"""Earlier releases elect a replica that is out of sync when no other is left."""

PROPAGATION_TIMEOUT_S = 10.0
"""Time limit for the changes of a call to reach every running node."""

LOOPBACK = "127.0.0.1"

CLOSE_TIMEOUT_S = 5.0
"""Time limit for connections to end on close; then they are dropped."""


class Broker(BaseClient[BrokerState]):
    """A Kafka cluster inside this process, on real sockets, for development and tests.

    ::

        async with Broker(nodes=3) as broker:
            async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer: ...

    Node ids start at 1. Each node listens on its own port, by default on loopback. All nodes
    share one log, so killing a node loses nothing that has another replica. With `replicate`, each
    node has its own logs and replicates. With `data_dir`, topics, records and committed offsets
    survive a restart.
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
        """Check the arguments; nothing listens before `start` or `async with`.

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
        if self.options.replicate and data_dir is not None:
            raise InvalidOption(
                "data_dir cannot be used with replicate, which keeps logs in memory"
            )
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
        self._host = host
        self._kafka07_bind = None if kafka07_port is None else Address(host, kafka07_port)
        self._advertised_host = advertised_host
        self._racks = {node: rack for node, rack in enumerate(racks or [], 1) if rack}
        self._authorizer = (
            None
            if acls is None
            else Authorizer(
                [acl.binding for acl in acls],
                super_users,
                allow_everyone_if_no_acl_found=self.options.allow_everyone_if_no_acl_found,
            )
        )
        self._faults = Faults()
        self._nodes: dict[int, Node] = {}
        self._kafka07: Node | None = None
        self._store: Store | None = None

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
        groups = GroupCoordinator(
            self.options, runtime.clock, runtime.rng, offsets, consumer_groups
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
            releases=dict.fromkeys(self._node_ids, self._release),
            authorizer=self._authorizer,
            credentials=self._listeners.make_store(runtime.rng),
            rng=runtime.rng,
        )
        state.credentials.tokens = cluster.metadata.tokens
        return state

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
        ports = self._listeners.ports
        # All nodes are in this process: others need not reach a listener without authentication.
        internal_host = self._host if self._has_own_runtime else LOOPBACK
        return {
            each.name: Address(
                internal_host if each.is_internal else self._host,
                ports[each.name][node_id - 1] if each.name in ports else 0,
            )
            for each in listeners
        }

    async def _bind_node(
        self, node: Node, addresses: Mapping[str, Address], state: BrokerState
    ) -> None:
        try:
            await node.start(state, addresses)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            reason = "the port is in use by another process" if in_use else str(error)
            address = ", ".join(str(each.port) for each in addresses.values())
            raise KafkaError(
                f"node {node.node_id} cannot listen on port {address} of {self._host}: {reason}"
            ) from error

    def _register_node(self, node: Node, state: BrokerState) -> None:
        """Add a node that listens to the cluster."""
        assert self._runtime is not None
        sessions = FetchSessionCache(self._runtime.rng, self.options.max_fetch_sessions)
        state.fetch_sessions[node.node_id] = sessions
        for name, bound in node.addresses.items():
            advertised = Address(self._advertised_host or bound.host, bound.port)
            state.listener_addresses.setdefault(name, {})[node.node_id] = advertised
        state.addresses[node.node_id] = state.listener_addresses[self._first_listener][node.node_id]
        if state.replication is not None:
            state.replication.on_node_startup(node)

    async def _stop(self, state: BrokerState) -> None:
        nodes = [*self._nodes.values(), *([self._kafka07] if self._kafka07 else [])]
        for node in nodes:
            node.abort_sockets()
        if state.replication is not None:
            state.replication.abort()
        for node in nodes:
            await node.wait_stopped()
        state.cluster.save_if_possible()

    # --- state -------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes, including stopped ones, as a client option."""
        return ",".join(str(address) for address in self._running.addresses.values())

    @property
    def listeners(self) -> Mapping[SecurityProtocol, str]:
        """Addresses of all nodes by security protocol, for clients of each listener."""
        addresses = self._running.listener_addresses
        return {
            name: ",".join(str(address) for address in addresses[name].values())
            for name in self._listeners.protocols
        }

    @property
    def authority(self) -> CertificateAuthority | None:
        """Authority that issued the certificate of the broker, None if the broker has no such."""
        return self._listeners.authority

    def client_options(
        self,
        listener: SecurityProtocol | None = None,
        *,
        username: str | None = None,
        mechanism: str | None = None,
    ) -> dict[str, Any]:
        """Return the options with which a client of this package connects.

        Args:
            listener: Security protocol of the listener. Defaults to the first listener.
            username: User on a listener with SASL. Defaults to the first one.
            mechanism: SASL mechanism. Defaults to the first that is enabled for passwords.

        Returns:
            `bootstrap_servers` and the options of security. They contain the user's password.

        Raises:
            ValueError: The broker has no such listener, user or mechanism.
        """
        settings, servers = self._listeners, self.listeners
        name = self._first_listener if listener is None else listener
        if name not in servers:
            raise ValueError(f"the broker has no listener {name}; it has {', '.join(servers)}")
        return {
            "bootstrap_servers": servers[name],
            **settings.client_options(name, username, mechanism),
        }

    @property
    def kafka07_server(self) -> str:
        """Address that speaks Kafka 0.7.

        Raises:
            KafkaError: The broker has no `kafka07_port`.
        """
        self._lifecycle.require_session()
        node = self._kafka07
        if node is None or node.address is None:
            raise KafkaError("the broker has no Kafka 0.7 port: create it with kafka07_port=0")
        return str(Address(self._advertised_host or node.address.host, node.address.port))

    @property
    def nodes(self) -> Mapping[int, Address]:
        """Address of each node by node id, including stopped nodes."""
        return dict(self._running.addresses)

    @property
    def live_nodes(self) -> tuple[int, ...]:
        """Ids of the nodes that are up."""
        return tuple(self._running.cluster.live)

    @property
    def controller_id(self) -> int:
        """Id of the controller that clients see in metadata."""
        return self._running.cluster.controller_id

    @property
    def cluster_id(self) -> str:
        """Id of the cluster that clients see in metadata."""
        return self._running.cluster.cluster_id

    @property
    def topics(self) -> Mapping[str, int]:
        """Number of partitions of each topic."""
        topics = self._running.cluster.topics.values()
        return {topic.name: len(topic.partitions) for topic in topics}

    def leader(self, topic: str, partition: int) -> int:
        """Return the node id of a partition's leader; -1 if no replica is up."""
        return self._partition(topic, partition).leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch of a partition, which rises with each leader change."""
        return self._partition(topic, partition).leader_epoch

    def coordinator(self, key: str) -> int:
        """Return the node id of the coordinator of a group or transactional id; -1 without one."""
        return self._running.cluster.coordinator(key)

    def isr(self, topic: str, partition: int) -> tuple[int, ...]:
        """Return the in-sync replicas of a partition."""
        return tuple(self._partition(topic, partition).isr)

    def alone_in_sync(self, node_id: int) -> tuple[TopicPartition, ...]:
        """Return the partitions for which no other live node has all acknowledged records.

        If the node loses unsynced data, acknowledged records of these partitions can be lost ("last
        replica standing"). Empty without `replicate`, where all nodes share one log.
        """
        registry = self._running.cluster
        if not isinstance(registry, ControllerContext):
            return ()
        alone = registry.alone_in_sync(self._node(node_id).node_id)
        return tuple(TopicPartition(each.topic, each.index) for each in alone)

    def end_offset(self, topic: str, partition: int, *, node: int | None = None) -> int:
        """Return the end offset of a partition.

        Args:
            topic: Name of the topic.
            partition: Index of the partition.
            node: Use the log of this node instead of the leader's; only with `replicate`.

        Returns:
            The offset; -1 without a leader, or without a log on the node.
        """
        partition_state, replication = self._partition(topic, partition), self._running.replication
        replica: Partition | None = partition_state
        if replication is not None:
            node_id = partition_state.leader if node is None else self._node(node).node_id
            replica = replication.replica(partition_state, node_id)
        return -1 if replica is None else replica.log.end_offset

    # --- topics ------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic.

        Args:
            name: Name of the topic.
            partitions: Number of partitions. Defaults to the option `default_partitions`.
            replication_factor: Replicas of each partition. Defaults to the option
                `default_replication_factor`.
            configs: Topic configs by Kafka's names, such as `retention.ms`.

        Raises:
            BrokerError: With the error code of the CreateTopics API.
        """
        state = self._running
        try:
            state.cluster.create_topic(
                name,
                -1 if partitions is None else partitions,
                -1 if replication_factor is None else replication_factor,
                configs=configs,
            )
        except ApiError as error:
            raise error_for(error.code, topic=name) from error
        await self._wait_for_metadata_propagation(state)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its records.

        Raises:
            BrokerError: The topic does not exist.
        """
        cluster = self._running.cluster
        try:
            cluster.delete_topic(cluster.topic(name))
        except ApiError as error:
            raise error_for(error.code, topic=name) from error
        await self._wait_for_metadata_propagation(self._running)

    async def add_partitions(self, topic: str, total_count: int) -> None:
        """Raise the number of partitions of a topic to `total_count`.

        Raises:
            BrokerError: With the error code of the CreatePartitions API.
        """
        cluster = self._running.cluster
        try:
            cluster.add_partitions(cluster.topic(topic), total_count)
        except ApiError as error:
            raise error_for(error.code, topic=topic) from error
        await self._wait_for_metadata_propagation(self._running)

    def set_password(self, username: str, password: str) -> None:
        """Set the password of a user for PLAIN and SCRAM; add the user if there is none.

        Open connections stay, until they must authenticate again.

        Args:
            username: Name of the user.
            password: New password.

        Raises:
            InvalidOption: The name or password is empty or has a NUL character.
        """
        check_user(username, password)
        self._running.credentials.set_password(username, Secret(password))

    def delete_user(self, username: str) -> None:
        """Remove a user of SASL, if there is one. Open connections stay."""
        self._running.credentials.delete_user(username)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Raise the log start offset of a partition, as retention does.

        Raises:
            BrokerError: The change cannot be stored (KAFKA_STORAGE_ERROR).
        """
        partition_state, state = self._partition(topic, partition), self._running
        replication = state.replication
        for each in (
            [partition_state] if replication is None else replication.replicas(partition_state)
        ):
            each.log.delete_before(before_offset)
            each.on_change.notify()
        try:
            state.cluster.save()
        except ApiError as error:
            raise error_for(error.code, topic=topic, partition=partition) from error

    # --- client metrics ----------------------------------------------------------------------

    @property
    def client_metrics(self) -> tuple[ClientMetrics, ...]:
        """The last 100 pushes of client metrics (KIP-714), the oldest first."""
        return tuple(self._running.telemetry.pushes)

    # --- permissions -------------------------------------------------------------------------

    @property
    def acls(self) -> tuple[Acl, ...]:
        """The ACLs, also those that clients created.

        Raises:
            KafkaError: The broker has no `acls`.
        """
        return tuple(Acl.from_binding(binding) for binding in sorted(self._require_authorizer()))

    def add_acls(self, *acls: Acl) -> None:
        """Add ACLs. They apply to the next request of every connection.

        Raises:
            KafkaError: The broker has no `acls`.
        """
        for acl in acls:
            self._require_authorizer().add(acl.binding)

    def remove_acls(self, *acls: Acl) -> None:
        """Remove ACLs, if they exist. The next request of every connection notices it.

        Raises:
            KafkaError: The broker has no `acls`.
        """
        for acl in acls:
            self._require_authorizer().remove(acl.binding)

    def _require_authorizer(self) -> Authorizer:
        if self._authorizer is None:
            raise KafkaError("the broker has no authorizer: create it with acls=[]")
        return self._authorizer

    # --- faults ------------------------------------------------------------------------------

    def on(
        self,
        api_key: ApiKey | int | None,
        action: Action,
        *,
        node: int | None = None,
        times: int | None = None,
    ) -> Fault:
        """Add a fault that replaces the normal handling of matching requests.

        Faults are tried in the order in which they were added. The first one that is not a `Delay`
        decides.

        Args:
            api_key: API of the requests; None matches every API.
            action: A fault, or a function that gets the request and returns one.
            node: Node id of the requests. Defaults to every node.
            times: Number of requests after which the fault ends. Defaults to no limit.
        """
        return self._faults.add(None if api_key is None else ApiKey(api_key), action, node, times)

    def clear_faults(self) -> None:
        """Remove every fault added with `on`."""
        self._faults.clear()

    async def kill(self, node_id: int, *, lose_unsynced: bool = False) -> None:
        """Close the sockets of a node abruptly; other replicas take over its partitions.

        Args:
            node_id: Id of the node. A node that is down stays down.
            lose_unsynced: Also lose records that are not synced to disk, as when a machine loses
                power. Needs `replicate`.

        Raises:
            ValueError: There is no such node, or `lose_unsynced` without `replicate`.
        """
        node = self._node(node_id)
        if lose_unsynced and self._running.replication is None:
            raise ValueError(
                "lose_unsynced needs replicate=True, as otherwise all nodes share one log"
            )
        if not node.running:
            return
        node.abort_sockets()
        state = self._running
        with state.coordinator_loader.coordinator_changes():
            if state.replication is None:
                state.cluster.on_node_failure(node_id)
            else:
                state.replication.on_node_failure(node_id, lose_unsynced=lose_unsynced)
        await node.wait_stopped()

    async def shut_down(self, node_id: int) -> None:
        """Stop a node by a controlled shutdown: the controller first moves its leaders.

        Partitions that no other in-sync replica can lead are left without a leader. `restart`
        starts the node again.
        """
        node, replication = self._node(node_id), self._running.replication
        if node.running and replication is not None:
            await replication.shut_down(node)
        await self.kill(node_id)

    async def restart(self, node_id: int, *, as_of: str | None = None) -> None:
        """Start a killed node on its port; kill it first if it is up.

        Args:
            node_id: Id of the node.
            as_of: Kafka release that the node emulates from now on, for rolling upgrades. Options
                and stored data stay.

        Raises:
            InvalidOption: `as_of` is not a known release.
        """
        node = self._node(node_id)
        release = (
            None if as_of is None else resolve_release(as_of, replicate=self.options.replicate)
        )
        await self.kill(node_id)
        if release is not None:
            self._running.releases[node_id] = release
        await self._bind_node(node, node.addresses, self._running)
        with self._running.coordinator_loader.coordinator_changes():
            self._register_node(node, self._running)
            if self._running.replication is None:
                self._running.cluster.on_node_startup(node_id)
        await self._wait_for_metadata_propagation(self._running)

    def pause(self, node_id: int) -> None:
        """Make a node hang: it accepts connections and requests but does not respond.

        After `broker_session_timeout_ms`, other nodes take over what it leads and coordinates.
        """
        node = self._node(node_id)
        if node.running and not node.paused:
            node.pause()
            node.spawn(self._expire_session, "session", node, self._running)

    def resume(self, node_id: int) -> None:
        """End a `pause` and handle the requests that arrived meanwhile."""
        node, state = self._node(node_id), self._running
        node.resume()
        if node.running and node_id not in state.cluster.live:
            with state.coordinator_loader.coordinator_changes():
                if state.replication is None:
                    state.cluster.on_node_startup(node_id)
                else:
                    state.replication.on_session_restored(node_id)

    async def _expire_session(self, node: Node, state: BrokerState) -> None:
        """Declare a node dead that hangs past its session timeout, if another node runs."""
        session_s = self.options.broker_session_timeout_ms / 1000
        while await node.stays_paused_until(state.clock.now() + session_s):
            if any(each.running and not each.paused for each in self._nodes.values()):
                with state.coordinator_loader.coordinator_changes():
                    if state.replication is None:
                        state.cluster.on_node_failure(node.node_id, session_expired=True)
                    else:
                        state.replication.on_session_expired(node.node_id)
                return

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make another live node the leader of a partition.

        With `replicate`, the new leader must be in sync, and all nodes learn of the change over the
        wire.

        Raises:
            ValueError: The node is down.
        """
        self._running.cluster.move_leader(self._partition(topic, partition), node_id)

    def move_coordinator(self, key: str, node_id: int) -> None:
        """Make another live node the coordinator of a group or transactional id.

        All keys of the same partition of __consumer_offsets or __transaction_state move with it.
        With `coordinator_load_ms` the new coordinator needs that time to load them.

        Raises:
            ValueError: The node is down.
        """
        state = self._running
        with state.coordinator_loader.coordinator_changes():
            state.cluster.move_coordinator(key, self._node(node_id).node_id)

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Truncate the log of a partition, as an unclean leader election does.

        The batch that holds `offset` and all later ones are removed, and the leader epoch rises.

        Raises:
            BrokerError: The log does not hold `offset`.
        """
        partition_state = self._partition(topic, partition)
        replication = self._running.replication
        try:
            if replication is None:
                self._running.cluster.truncate(partition_state, offset)
            else:
                replication.truncate(partition_state, offset)
        except ApiError as error:
            raise error_for(error.code, topic=topic, partition=partition, offset=offset) from error

    async def wait_for_isr(
        self, topic: str, partition: int, *nodes: int, timeout_s: float = 30.0
    ) -> None:
        """Wait until exactly these nodes are in sync.

        Raises:
            TimeoutError: The ISR is different after `timeout_s` seconds.
        """
        partition_state, state = self._partition(topic, partition), self._running
        if state.replication is not None:
            await state.replication.wait_until(
                lambda: set(partition_state.isr) == set(nodes), timeout_s
            )
        if set(partition_state.isr) != set(nodes):
            raise TimeoutError(
                f"ISR is {partition_state.isr} after {timeout_s} s, expected {nodes}"
            )

    async def wait_for_request(
        self,
        api_key: ApiKey | int,
        *,
        count: int = 1,
        node: int | None = None,
        matching: Callable[[SeenRequest], bool] = lambda seen: True,
        timeout_s: float = 30.0,
    ) -> SeenRequest:
        """Wait until the log has `count` matching requests; return the last of them.

        Args:
            api_key: API of the requests.
            count: Number of requests, those already in the log included.
            node: Node id of the requests. Defaults to every node.
            matching: Further condition.
            timeout_s: Time limit in seconds.

        Raises:
            TimeoutError: There are fewer matching requests after `timeout_s`.
        """
        assert self._runtime is not None
        key = ApiKey(api_key)

        def wanted(seen: SeenRequest) -> bool:
            return seen.api_key is key and node in {None, seen.node_id} and matching(seen)

        deadline = self._runtime.clock.now() + timeout_s
        requests = await self.requests.wait_for(wanted, count, deadline)
        if len(requests) < count:
            raise TimeoutError(
                f"{len(requests)} of {count} {key.name} requests arrived within {timeout_s} s"
            )
        return requests[count - 1]

    # --- internals ---------------------------------------------------------------------------

    @property
    def _first_listener(self) -> SecurityProtocol:
        return self._listeners.protocols[0]

    @property
    def _running(self) -> BrokerState:
        return self._lifecycle.require_session()

    def _node(self, node_id: int) -> Node:
        node = self._nodes.get(node_id)
        if node is None:
            raise ValueError(f"unknown node {node_id}; known nodes: {list(self._nodes)}")
        return node

    async def _wait_for_metadata_propagation(self, state: BrokerState) -> None:
        """Wait until every running node has learned of the change."""
        if state.replication is not None:
            await state.replication.wait_until_up_to_date(PROPAGATION_TIMEOUT_S)

    def _leader_replica(self, state: BrokerState, partition: Partition) -> Partition | None:
        """Return the leader's view of a partition, None while there is no leader."""
        replication = state.replication
        return partition if replication is None else replication.leader_replica(partition)

    def _partition(self, topic: str, partition: int) -> Partition:
        cluster = self._running.cluster
        try:
            return cluster.partition(cluster.topic(topic), partition)
        except ApiError as error:
            raise error_for(error.code, topic=topic, partition=partition) from error
