"""Broker clients: one per node, and one per bootstrap address until the nodes are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiokafkawire.cluster.metadata import NodeInfo
from aiokafkawire.cluster.routing import NodeLoad
from aiokafkawire.config import ClientConfig
from aiokafkawire.connection import (
    PLAINTEXT_HANDSHAKE,
    BrokerClient,
    BrokerOutage,
    Channel,
    ClusterCheck,
    ConnectionKind,
    ConnectionMetrics,
    ExpectedNode,
    Handshake,
    NodeApiVersions,
)
from aiokafkawire.errors import ConnectionLost
from aiokafkawire.runtime import Address, Runtime, Supervisor
from aiokafkawire.types import NodeId
from aiokafkawire.wire import ApiKey

__all__ = ("BrokerClients",)

MAX_NODES = 1_000
"""Limit of nodes with metrics of their own."""

BOOTSTRAPPED = "a bootstrap connection ends when the cluster's nodes are known"

NOT_LISTED = "the cluster metadata no longer lists this address"
"""Reason to retire the client of a node that moved or left."""


class BrokerClients:
    """Creates broker clients on demand and retires those whose node moved or left.

    `on_connected`, if set, is called when a connection is open, `on_lost` when a connection to a
    node is lost, and `on_misrouted` when the server at a node's address is another node.
    `cluster_id` is that of the metadata. `metrics` are those of the connections to each node;
    None stands for bootstrap addresses, and for further nodes from `MAX_NODES` on.
    """

    def __init__(
        self,
        config: ClientConfig,
        runtime: Runtime,
        supervisor: Supervisor,
        handshake: Handshake = PLAINTEXT_HANDSHAKE,
    ) -> None:
        self.metrics: dict[NodeId | None, ConnectionMetrics] = {}
        self.on_connected: Callable[[BrokerClient], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.on_misrouted: Callable[[ExpectedNode], None] | None = None
        self.cluster_id: str | None = None
        self._config = config
        self._runtime = runtime
        self._supervisor = supervisor
        self._handshake = handshake
        self._cluster_check = (
            ClusterCheck(lambda: self.cluster_id, self._refused)
            if config.metadata_cluster_check_enable
            else None
        )
        self._nodes: dict[NodeId, BrokerClient] = {}
        self._bootstrap: dict[Address, BrokerClient] = {}
        self._retired: list[BrokerClient] = []
        self._features: NodeApiVersions | None = None

    def for_node(self, node: NodeInfo) -> BrokerClient:
        """Return the client of a node at its current address."""
        client = self._nodes.get(node.node_id)
        if client is not None and client.address == node.address:
            return client
        if client is not None:
            self._retire(client, NOT_LISTED)
        client = self._nodes[node.node_id] = self._make(node.address, node.node_id)
        return client

    def for_address(self, address: Address) -> BrokerClient:
        """Return the client of a bootstrap address."""
        client = self._bootstrap.get(address)
        if client is None:
            client = self._bootstrap[address] = self._make(address, None)
        return client

    def keep(self, nodes: Mapping[NodeId, NodeInfo]) -> None:
        """Retire the clients of other nodes and addresses; their pending requests still finish."""
        self._retired = [client for client in self._retired if client.is_connected]
        for node_id, client in list(self._nodes.items()):
            node = nodes.get(node_id)
            if node is None or node.address != client.address:
                self._retire(self._nodes.pop(node_id), NOT_LISTED)

    def disconnect_nodes(self, error: ConnectionLost) -> None:
        """Close the connections to all nodes; requests in flight fail with `error`."""
        nodes, self._nodes = self._nodes, {}
        for client in nodes.values():
            client.disconnect(error)
        self._retired.extend(nodes.values())

    def retire_bootstrap(self) -> None:
        """Retire the clients of bootstrap addresses once the nodes are known.

        The features that they reported are kept: a client that has just started has no connection
        to a node yet.
        """
        for client in self._bootstrap.values():
            self._note_features(client)
            self._retire(client, BOOTSTRAPPED)
        self._bootstrap.clear()

    def loads(self, nodes: Mapping[NodeId, NodeInfo]) -> list[NodeLoad]:
        """Return the load of each node."""
        loads = []
        for node_id in nodes:
            client = self._nodes.get(node_id)
            if client is None:
                loads.append(NodeLoad(node_id, connected=False, requests=0, ready_at=0.0))
            else:
                loads.append(
                    NodeLoad(
                        node_id,
                        client.is_connected,
                        client.in_flight_count,
                        client.next_attempt_at,
                        client.throttled_until,
                    )
                )
        return loads

    def unreachable(self, nodes: Mapping[NodeId, NodeInfo]) -> bool:
        """Return whether connecting to each of these nodes failed and none is connected."""
        clients = [self._nodes.get(node_id) for node_id in nodes]
        return all(
            client is not None
            and not client.is_connected
            and client.outages.last_failure is not None
            for client in clients
        )

    def log_unreachable(self, since: float) -> None:
        """Log nodes that are unreachable although Metadata requests succeed since `since`."""
        for client in self._nodes.values():
            client.outages.log_unreachable(since)

    def outages(self, nodes: Mapping[NodeId, NodeInfo], now: float) -> dict[NodeId, BrokerOutage]:
        """Return the outages of these nodes; call it regularly."""
        outages = {}
        for node_id in nodes:
            client = self._nodes.get(node_id)
            if client is not None and (outage := client.check_outage(now)) is not None:
                outages[node_id] = outage
        return outages

    def log_silence(self, outages: Mapping[NodeId, BrokerOutage], now: float) -> None:
        """Log the nodes that do not respond, although others do."""
        for node_id, outage in outages.items():
            self._nodes[node_id].outages.log_silence(outage, now)

    def metrics_snapshot(self) -> dict[str, int | float]:
        """Return the metrics of all connections by their public names."""
        return ConnectionMetrics.total(self.metrics.values()).snapshot()

    def usable(self, api_key: ApiKey) -> list[tuple[BrokerClient, Channel]]:
        """Return the nodes that support an API and can take a request at once, idle ones first."""
        found = []
        for client in self._nodes.values():
            channel = client.ready_channel(ConnectionKind.GENERAL)
            if channel is not None and api_key in channel.api_versions.ranges:
                found.append((client, channel))
        return sorted(found, key=lambda each: each[0].in_flight_count)

    def finalized_feature_level(self, feature: str) -> int | None:
        """Return the finalized level of a feature; None before any node reported it.

        The newest epoch of all connected brokers counts: a node that has just started may not know
        the features, and ApiVersions is sent only once per connection.
        """
        for client in self._nodes.values():
            self._note_features(client)
        return None if self._features is None else self._features.features.get(feature, 0)

    def _note_features(self, client: BrokerClient) -> None:
        """Keep the features that a broker reported, unless newer ones are known."""
        versions, known = client.api_versions, self._features
        if versions is not None and (
            known is None or versions.features_epoch >= known.features_epoch
        ):
            self._features = versions

    async def aclose(self) -> None:
        """Close all connections; pending requests fail with `ClientClosed`."""
        clients = [*self._nodes.values(), *self._bootstrap.values(), *self._retired]
        for client in clients:
            client.abort()
        for client in clients:
            await client.aclose()

    def _make(self, address: Address, node_id: NodeId | None) -> BrokerClient:
        return BrokerClient(
            address,
            self._config,
            self._runtime,
            self._supervisor,
            node_id=node_id,
            handshake=self._handshake,
            metrics=self._metrics_of(node_id),
            on_connect=self._connected,
            on_disconnect=self._disconnected,
            cluster_check=self._cluster_check,
        )

    def _metrics_of(self, node_id: NodeId | None) -> ConnectionMetrics:
        key = None if len(self.metrics) >= MAX_NODES and node_id not in self.metrics else node_id
        return self.metrics.setdefault(key, ConnectionMetrics())

    def _connected(self, client: BrokerClient) -> None:
        if self.on_connected is not None:
            self.on_connected(client)

    def _refused(self, expected: ExpectedNode) -> None:
        if self.on_misrouted is not None:
            self.on_misrouted(expected)

    def _disconnected(self) -> None:
        if self.on_lost is not None:
            self.on_lost()

    def _retire(self, client: BrokerClient, reason: str) -> None:
        client.retire(reason)
        self._retired.append(client)
