"""The other nodes, as one node reaches them: over the wire, as a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aiokafkawire.broker.releases import NODE_CLIENT_ID, Release
from aiokafkawire.config import ClientConfig
from aiokafkawire.connection import BrokerClient, ByVersion, Lane
from aiokafkawire.errors import RequestTimedOut
from aiokafkawire.runtime import Address, Host, Runtime
from aiokafkawire.wire import Request, Response

__all__ = ("RESPONSE_TIMEOUT_S", "InterBrokerClients")

R = TypeVar("R", bound=Response)

RESPONSE_TIMEOUT_S = 30.0
"""How long a node waits for another one's answer before it connects anew."""

RECONNECT_BACKOFF_MAX_MS = 200

FIRST_WITH_API_VERSIONS = "0.10.0"
"""Since this release a broker tells what it speaks."""


class InterBrokerClients:
    """One node's connections to the others, and to itself as far as it is the controller.

    `get_release` tells which release a node is of: those that cannot be asked are taken at that.
    """

    def __init__(
        self, node_id: int, runtime: Runtime, host: Host, get_release: Callable[[int], Release]
    ) -> None:
        self._node_id = node_id
        self._runtime = runtime
        self._host = host
        self._get_release = get_release
        self._clients: dict[int, BrokerClient] = {}

    async def request(
        self,
        node_id: int,
        address: Address,
        request: Request[R] | ByVersion[R],
        lane: Lane,
        max_version: int | None = None,
    ) -> R:
        """One request to a node. Raises `KafkaError`."""
        client = self._client(node_id, address)
        deadline = self._runtime.clock.now() + RESPONSE_TIMEOUT_S
        try:
            return await client.request(
                request, deadline=deadline, lane=lane, max_version=max_version
            )
        except RequestTimedOut:
            # What comes next would wait behind the answer that did not come.
            client.leave(lane)
            raise

    def forget(self, node_id: int) -> None:
        """The node is another one now: it was started anew."""
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
        client = BrokerClient(address, config, self._runtime, self._host, node_id=node_id)
        self._clients[node_id] = client
        return client
