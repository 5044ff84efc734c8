"""Connections of a node to other nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aiokafkawire.broker.releases import NODE_CLIENT_ID, Release
from aiokafkawire.config import ClientConfig
from aiokafkawire.connection import BrokerClient, ConnectionKind, VersionedRequest
from aiokafkawire.errors import RequestTimedOut
from aiokafkawire.runtime import Address, Runtime, Supervisor
from aiokafkawire.wire import Request, Response

__all__ = ("RESPONSE_TIMEOUT_S", "InterBrokerClients")

R = TypeVar("R", bound=Response)

RESPONSE_TIMEOUT_S = 30.0
"""Time limit for a response, after which the node reconnects."""

RECONNECT_BACKOFF_MAX_MS = 200

FIRST_WITH_API_VERSIONS = "0.10.0"
"""First release with the ApiVersions API."""


class InterBrokerClients:
    """Connections of one node to the others, and to itself if it is the controller.

    `get_release` returns the release of a node, which is assumed where ApiVersions is not
    supported.
    """

    def __init__(
        self,
        node_id: int,
        runtime: Runtime,
        supervisor: Supervisor,
        get_release: Callable[[int], Release],
    ) -> None:
        self._node_id = node_id
        self._runtime = runtime
        self._supervisor = supervisor
        self._get_release = get_release
        self._clients: dict[int, BrokerClient] = {}

    async def request(
        self,
        node_id: int,
        address: Address,
        request: Request[R] | VersionedRequest[R],
        connection_kind: ConnectionKind,
        max_version: int | None = None,
    ) -> R:
        """Send a request to a node and return the response. Raises `KafkaError`."""
        client = self._client(node_id, address)
        deadline = self._runtime.clock.now() + RESPONSE_TIMEOUT_S
        try:
            return await client.request(
                request, deadline=deadline, connection_kind=connection_kind, max_version=max_version
            )
        except RequestTimedOut:
            # Later requests would wait behind the missing response.
            client.close_connection(connection_kind)
            raise

    def forget(self, node_id: int) -> None:
        """Drop the connection to a node that was restarted."""
        client = self._clients.pop(node_id, None)
        if client is not None:
            client.abort()

    def abort(self) -> None:
        """Close all connections at once."""
        for node_id in list(self._clients):
            self.forget(node_id)

    def _client(self, node_id: int, address: Address) -> BrokerClient:
        client = self._clients.get(node_id)
        if client is not None and client.address == address:
            return client
        self.forget(node_id)
        release = self._get_release(node_id)
        config = ClientConfig(
            bootstrap_servers=str(address),
            client_id=f"{NODE_CLIENT_ID}{self._node_id}",
            api_version=None if release.since(FIRST_WITH_API_VERSIONS) else release.name,
            reconnect_backoff_max_ms=RECONNECT_BACKOFF_MAX_MS,
        )
        client = BrokerClient(address, config, self._runtime, self._supervisor, node_id=node_id)
        self._clients[node_id] = client
        return client
