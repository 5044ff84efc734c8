"""Calls of a broker about its addresses, nodes and partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafkawire.broker.authentication import (
    CertificateAuthority,
)
from aiokafkawire.broker.calls.base import BrokerBase
from aiokafkawire.broker.replication import ControllerContext
from aiokafkawire.broker.telemetry import ClientMetrics
from aiokafkawire.broker.topics import Partition
from aiokafkawire.config import SecurityProtocol
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime import Address
from aiokafkawire.types import TopicPartition

__all__ = ("StateCalls",)


class StateCalls(BrokerBase):
    """State of the cluster, for tests."""

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
        return str(self._listeners.advertise(node.address))

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

    @property
    def client_metrics(self) -> tuple[ClientMetrics, ...]:
        """The last 100 pushes of client metrics (KIP-714), the oldest first."""
        return tuple(self._running.telemetry.pushes)
