"""Embedded broker in a background thread, for tests of any kind."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from anyio.lowlevel import current_token

from aiokafkawire.broker import (
    Acl,
    ApiKey,
    Broker,
    BrokerOptions,
    BrokerSasl,
    BrokerTls,
    CertificateAuthority,
    SeenRequest,
)
from aiokafkawire.broker.faults import Action
from aiokafkawire.broker.telemetry import ClientMetrics
from aiokafkawire.config import SecurityProtocol
from aiokafkawire.runtime import Address
from aiokafkawire.testing.broker_fault import BrokerFault
from aiokafkawire.testing.broker_thread import BrokerThread
from aiokafkawire.testing.seen_requests import SeenRequests
from aiokafkawire.types import TopicPartition

__all__ = ("KafkaBroker",)


class KafkaBroker(BrokerThread):
    """Embedded `Broker` in a background thread with its own event loop.

    All methods are synchronous and may be called from any thread and event loop. Functions passed
    to `on` run in the broker's thread. An exception of such a function closes the connection of the
    request; `reset` and `close` raise it.

    Example::

        with KafkaBroker(nodes=3) as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        data_dir: str | Path | None = None,
        host: str = "127.0.0.1",
        advertised_host: str | None = None,
        ports: Sequence[int] | None = None,
        racks: Sequence[str | None] | None = None,
        kafka07_port: int | None = None,
        tls: bool | ssl.SSLContext | BrokerTls = False,
        sasl: Mapping[str, str] | BrokerSasl | None = None,
        listeners: Sequence[SecurityProtocol]
        | Mapping[SecurityProtocol, Sequence[int]]
        | None = None,
        acls: Sequence[Acl] | None = None,
        super_users: Sequence[str] = (),
        **options: Unpack[BrokerOptions],
    ) -> None:
        """Store the arguments of `Broker`, which `start` and `with` check.

        Args:
            nodes: Number of nodes, 1 to 64.
            data_dir: Directory for topics, records and committed offsets. Defaults to memory.
            host: Address to listen on.
            advertised_host: Host that the broker advertises to clients. Defaults to `host`.
            ports: Port of each node on the first listener. Defaults to free ports.
            racks: Rack of each node.
            kafka07_port: Additional port that speaks Kafka 0.7, with separate logs (0: any free
                port). Defaults to none.
            tls: True to make certificates for tests (see `authority`), or settings.
            sasl: Password of each user, or settings.
            listeners: Security protocol of each listener, also as keys of the ports of each node.
                Defaults to one listener with what `tls` and `sasl` give: PLAINTEXT, SSL,
                SASL_PLAINTEXT or SASL_SSL.
            acls: Operations that principals may perform. Defaults to no authorizer.
            super_users: Principals that may do everything in spite of `acls`.
            options: See `BrokerOptions`.
        """
        make = partial(
            Broker,
            nodes,
            data_dir=data_dir,
            host=host,
            advertised_host=advertised_host,
            ports=ports,
            racks=racks,
            kafka07_port=kafka07_port,
            tls=tls,
            sasl=sasl,
            listeners=listeners,
            acls=acls,
            super_users=super_users,
            **options,
        )
        super().__init__(make)
        self._numbers = itertools.count(1)

    # --- state -------------------------------------------------------------------------------

    @property
    def listeners(self) -> Mapping[SecurityProtocol, str]:
        """Addresses of all nodes by security protocol, for clients of each listener."""
        return self._call(lambda: self._running_broker.listeners)

    @property
    def authority(self) -> CertificateAuthority | None:
        """Authority that issued the certificate of the broker, None if the broker has no such."""
        return self._running_broker.authority

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
        broker = self._running_broker
        return self._call(broker.client_options, listener, username=username, mechanism=mechanism)

    @property
    def kafka07_server(self) -> str:
        """Address that speaks Kafka 0.7.

        Raises:
            KafkaError: The broker has no `kafka07_port`.
        """
        return self._call(lambda: self._running_broker.kafka07_server)

    @property
    def nodes(self) -> Mapping[int, Address]:
        """Address of each node by node id, from 1, including stopped nodes."""
        return self._call(lambda: self._running_broker.nodes)

    @property
    def live_nodes(self) -> tuple[int, ...]:
        """Ids of the nodes that are up."""
        return self._call(lambda: self._running_broker.live_nodes)

    @property
    def controller_id(self) -> int:
        """Id of the controller that clients see in metadata."""
        return self._call(lambda: self._running_broker.controller_id)

    @property
    def cluster_id(self) -> str:
        """Id of the cluster that clients see in metadata."""
        return self._call(lambda: self._running_broker.cluster_id)

    @property
    def topics(self) -> Mapping[str, int]:
        """Number of partitions of each topic."""
        return self._call(lambda: self._running_broker.topics)

    def leader(self, topic: str, partition: int) -> int:
        """Return the node id of a partition's leader; -1 if no replica is up."""
        return self._call(self._running_broker.leader, topic, partition)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch of a partition, which rises with each leader change."""
        return self._call(self._running_broker.leader_epoch, topic, partition)

    def coordinator(self, group_id: str) -> int:
        """Return the node id of a group's coordinator; -1 if no node is up."""
        return self._call(self._running_broker.coordinator, group_id)

    def isr(self, topic: str, partition: int) -> tuple[int, ...]:
        """Return the in-sync replicas of a partition."""
        return self._call(self._running_broker.isr, topic, partition)

    def alone_in_sync(self, node_id: int) -> tuple[TopicPartition, ...]:
        """Return the partitions for which no other live node has all acknowledged records."""
        return self._call(self._running_broker.alone_in_sync, node_id)

    def end_offset(self, topic: str, partition: int, *, node: int | None = None) -> int:
        """Return the end offset of a partition.

        Args:
            topic: The topic.
            partition: The partition.
            node: Use the log of this node instead of the leader's; only with `replicate`.

        Returns:
            The offset; -1 without a leader, or without a log on the node.
        """
        return self._call(self._running_broker.end_offset, topic, partition, node=node)

    @property
    def client_metrics(self) -> tuple[ClientMetrics, ...]:
        """The last 100 pushes of client metrics (KIP-714), the oldest first."""
        return self._call(lambda: self._running_broker.client_metrics)

    # --- topics ------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str | None = None,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic.

        Args:
            name: Name of the topic. Default: a unique one.
            partitions: Number of partitions. Default: option `default_partitions`.
            replication_factor: Replicas of each partition. Default: option
                `default_replication_factor`.
            configs: Configs of the topic, such as `{"max.message.bytes": "1000"}`.

        Returns:
            The name.

        Raises:
            BrokerError: With the error code of the CreateTopics API.
        """
        if name is None:
            name = f"topic-{next(self._numbers)}"
        make = partial(
            self._running_broker.create_topic, name, partitions, replication_factor, configs=configs
        )
        self._await(make)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records.

        Raises:
            BrokerError: The topic does not exist.
        """
        self._await(partial(self._running_broker.delete_topic, name))

    def add_partitions(self, topic: str, total_count: int) -> None:
        """Raise the number of partitions of a topic to `total_count`.

        Raises:
            BrokerError: With the error code of the CreatePartitions API.
        """
        self._await(partial(self._running_broker.add_partitions, topic, total_count))

    def set_password(self, username: str, password: str) -> None:
        """Set the password of a user for PLAIN and SCRAM; add the user if there is none."""
        self._call(self._running_broker.set_password, username, password)

    def delete_user(self, username: str) -> None:
        """Remove a user of SASL, if there is one. Open connections stay."""
        self._call(self._running_broker.delete_user, username)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Raise the log start offset of a partition, as retention does."""
        self._call(self._running_broker.delete_records, topic, partition, before_offset)

    # --- permissions -------------------------------------------------------------------------

    @property
    def acls(self) -> tuple[Acl, ...]:
        """The ACLs, also those that clients created.

        Raises:
            KafkaError: The broker has no `acls`.
        """
        return self._call(lambda: self._running_broker.acls)

    def add_acls(self, *acls: Acl) -> None:
        """Add ACLs. They apply to the next request of every connection.

        Raises:
            KafkaError: The broker has no `acls`.
        """
        self._call(self._running_broker.add_acls, *acls)

    def remove_acls(self, *acls: Acl) -> None:
        """Remove ACLs, if they exist. The next request of every connection notices it.

        Raises:
            KafkaError: The broker has no `acls`.
        """
        self._call(self._running_broker.remove_acls, *acls)

    # --- faults ------------------------------------------------------------------------------

    def on(
        self,
        api_key: ApiKey | int | None,
        action: Action,
        *,
        node: int | None = None,
        times: int | None = None,
    ) -> BrokerFault:
        """Add a fault. It ends with `remove()`, its `with` block, `clear_faults` or `reset`.

        Args:
            api_key: API of the requests; None for all.
            action: `Delay`, `Answer`, `Drop`, `Close`, `Corrupt` or a function, as in `Broker.on`.
            node: Only requests to this node.
            times: Number of requests that the fault applies to. Default: all.
        """
        if callable(action):
            action = self._guarded(action)
        fault = self._call(self._running_broker.on, api_key, action, node=node, times=times)
        return BrokerFault(self, fault)

    def clear_faults(self) -> None:
        """Remove every fault added with `on`."""
        self._call(self._running_broker.clear_faults)

    def kill(self, node_id: int, *, lose_unsynced: bool = False) -> None:
        """Close the sockets of a node abruptly; other replicas take over its partitions.

        Args:
            node_id: The node.
            lose_unsynced: Also lose records that are not synced to disk; only with `replicate`.
        """
        self._await(partial(self._running_broker.kill, node_id, lose_unsynced=lose_unsynced))

    def shut_down(self, node_id: int) -> None:
        """Stop a node by a controlled shutdown; with `replicate` its leaders move first."""
        self._await(partial(self._running_broker.shut_down, node_id))

    def restart(self, node_id: int, *, as_of: str | None = None) -> None:
        """Start a killed node on its port; kill it first if it is up.

        Args:
            node_id: The node.
            as_of: Kafka release that the node emulates from now on. Default: the same as before.
        """
        self._await(partial(self._running_broker.restart, node_id, as_of=as_of))

    def pause(self, node_id: int) -> None:
        """Make a node hang: it accepts connections and requests but does not respond."""
        self._call(self._running_broker.pause, node_id)

    def resume(self, node_id: int) -> None:
        """End a `pause` and handle the requests that arrived meanwhile."""
        self._call(self._running_broker.resume, node_id)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make another node the leader of a partition.

        Raises:
            ValueError: The node is down.
        """
        self._call(self._running_broker.move_leader, topic, partition, node_id)

    def move_coordinator(self, key: str, node_id: int) -> None:
        """Make another live node the coordinator of a group or transactional id."""
        self._call(self._running_broker.move_coordinator, key, node_id)

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Truncate the log of a partition, as an unclean leader election does."""
        self._call(self._running_broker.truncate, topic, partition, offset)

    def reset(self) -> None:
        """Remove all faults, restart stopped nodes and clear `requests`; topics and records stay.

        Raises:
            Exception: An exception of a function passed to `on`.
        """
        broker = self._running_broker

        async def heal() -> None:
            broker.clear_faults()
            for node_id in broker.nodes:
                broker.resume(node_id)
                if node_id not in broker.live_nodes:
                    await broker.restart(node_id)
            broker.requests.clear()

        self._await(heal)
        self._raise()

    # --- requests ----------------------------------------------------------------------------

    @property
    def requests(self) -> SeenRequests:
        """The most recent requests, oldest first."""
        return SeenRequests(self)

    def wait_for_request(
        self,
        api_key: ApiKey | int,
        *,
        count: int = 1,
        node: int | None = None,
        matching: Callable[[SeenRequest], bool] = lambda seen: True,
        timeout_s: float = 30.0,
    ) -> SeenRequest:
        """Block until the broker has received a number of matching requests.

        Args:
            api_key: API of the requests.
            count: Number of requests.
            node: Only requests to this node.
            matching: Predicate for requests.
            timeout_s: Timeout in seconds.

        Returns:
            The last of the requests.

        Raises:
            TimeoutError: Fewer requests arrived in time.
            RuntimeError: Called in an event loop, which it would block: use `asyncio.to_thread` or
                `anyio.to_thread.run_sync`.
        """
        _may_block("wait_for_request")
        wait = partial(
            self._running_broker.wait_for_request,
            api_key,
            count=count,
            node=node,
            matching=matching,
            timeout_s=timeout_s,
        )
        return self._await(wait, timeout_s)

    def wait_for_isr(
        self, topic: str, partition: int, *nodes: int, timeout_s: float = 30.0
    ) -> None:
        """Block until exactly these nodes are in the ISR of a partition.

        Raises:
            TimeoutError: The ISR differs after `timeout_s` seconds.
            RuntimeError: Called in an event loop, as for `wait_for_request`.
        """
        _may_block("wait_for_isr")
        wait = partial(
            self._running_broker.wait_for_isr, topic, partition, *nodes, timeout_s=timeout_s
        )
        self._await(wait, timeout_s)


def _may_block(name: str) -> None:
    """Raise `RuntimeError` in an event loop, which the call would block."""
    try:
        current_token()
    except RuntimeError:
        return
    raise RuntimeError(
        f"{name} would block the event loop: await it in a thread, with asyncio.to_thread or"
        " anyio.to_thread.run_sync"
    )
