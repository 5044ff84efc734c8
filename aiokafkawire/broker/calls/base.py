"""Base of a broker's calls: the running cluster, its nodes and partitions."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.authentication.listeners import ListenerSettings
from aiokafkawire.broker.authorizer import Authorizer
from aiokafkawire.broker.faults import Faults, RequestLog
from aiokafkawire.broker.fetch_session_cache import FetchSessionCache
from aiokafkawire.broker.node import Node
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.request_context import BrokerState
from aiokafkawire.broker.topics import Partition
from aiokafkawire.config import SecurityProtocol
from aiokafkawire.errors import KafkaError
from aiokafkawire.runtime import Address, BaseClient, Runtime
from aiokafkawire.wire import error_for

__all__ = ("BrokerBase",)

PROPAGATION_TIMEOUT_S = 10.0
"""Time limit for the changes of a call to reach every running node."""


class BrokerBase(BaseClient[BrokerState]):
    """A client with a `BrokerState`."""

    options: BrokerConfig
    requests: RequestLog
    _runtime: Runtime | None
    _listeners: ListenerSettings
    _authorizer: Authorizer | None
    _faults: Faults
    _nodes: dict[int, Node]
    _kafka07: Node | None

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

    def _partition(self, topic: str, partition: int) -> Partition:
        cluster = self._running.cluster
        try:
            return cluster.partition(cluster.topic(topic), partition)
        except ApiError as error:
            raise error_for(error.code, topic=topic, partition=partition) from error

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
                f"node {node.node_id} cannot listen on port {address} of {self._listeners.host}:"
                f" {reason}"
            ) from error

    def _register_node(self, node: Node, state: BrokerState) -> None:
        """Add a node that listens to the cluster."""
        assert self._runtime is not None
        sessions = FetchSessionCache(self._runtime.rng, self.options.max_fetch_sessions)
        state.fetch_sessions[node.node_id] = sessions
        for name, bound in node.addresses.items():
            advertised = self._listeners.advertise(bound)
            state.listener_addresses.setdefault(name, {})[node.node_id] = advertised
        state.addresses[node.node_id] = state.listener_addresses[self._first_listener][node.node_id]
        if state.replication is not None:
            state.replication.on_node_startup(node)
