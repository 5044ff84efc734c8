"""One node of the broker: its listener and its connections."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from aiokafkawire.broker.authentication import BrokerListener
from aiokafkawire.broker.faults import Faults, RequestLog, SeenRequest
from aiokafkawire.broker.node_connections import NodeConnections, ServedConnection
from aiokafkawire.broker.request_context import BrokerState
from aiokafkawire.broker.server import ServerConnection
from aiokafkawire.runtime import (
    Address,
    AutoResetEvent,
    Listener,
    Runtime,
    Supervisor,
    TaskHandle,
    Transport,
)

__all__ = ("Node",)

logger = logging.getLogger("aiokafkawire.broker")

ACCEPT_RETRY_S = 0.1
"""Pause after accept failed for lack of resources such as file descriptors."""

PLAINTEXT_LISTENER = BrokerListener("PLAINTEXT")


@dataclass(slots=True, eq=False)
class _Pause:
    """One pause of a node; `ended` is set at its end."""

    is_active: bool = False
    ended: AutoResetEvent = field(default_factory=AutoResetEvent)


class Node:
    """A node of the cluster with its ports. It can be killed, paused and restarted.

    `serve` creates the handler of an accepted transport from the node, the transport, a number and
    the listener. Other nodes connect to `inter_broker_listener`.
    """

    def __init__(
        self,
        node_id: int,
        supervisor: Supervisor,
        runtime: Runtime,
        faults: Faults,
        requests: RequestLog,
        *,
        listeners: Sequence[BrokerListener] = (PLAINTEXT_LISTENER,),
        inter_broker_listener: str = PLAINTEXT_LISTENER.name,
        serve: Callable[
            [Node, Transport, int, BrokerListener], ServedConnection
        ] = ServerConnection,
    ) -> None:
        self.node_id = node_id
        self.faults = faults
        self.requests = requests
        self.listeners = listeners
        self.addresses: Mapping[str, Address] = {}
        self.connections = NodeConnections(runtime.clock)
        self._inter_broker_listener = inter_broker_listener
        self._state: BrokerState | None = None
        self._supervisor = supervisor
        self._runtime = runtime
        self._serve = serve
        self._tasks: dict[TaskHandle, None] = {}
        self._listeners: Mapping[str, Listener] = {}
        self._current_pause = _Pause()

    @property
    def state(self) -> BrokerState:
        assert self._state is not None, "the node has not started"
        return self._state

    @property
    def rng(self) -> random.Random:
        return self._runtime.rng

    @property
    def running(self) -> bool:
        return bool(self._listeners)

    @property
    def address(self) -> Address | None:
        """Address for other nodes, None without a listener for them."""
        return self.addresses.get(self._inter_broker_listener)

    @property
    def paused(self) -> bool:
        return self._current_pause.is_active

    async def start(self, state: BrokerState, addresses: Mapping[str, Address]) -> None:
        """Start listening on the address of each listener. Raises `OSError` if a port is in use."""
        self._state = state
        self.connections.clear()
        listening: dict[str, Listener] = {}
        try:
            for each in self.listeners:
                listening[each.name] = await self._runtime.listen(addresses[each.name])
        except BaseException:
            with anyio.CancelScope(shield=True):
                for listener in listening.values():
                    await listener.aclose()
            raise
        self._listeners = listening
        self.addresses = {name: listener.address for name, listener in listening.items()}
        for each in self.listeners:
            self.spawn(self._accept, "accept", each, listening[each.name])
        max_idle_s = state.options.connections_max_idle_ms / 1000
        self.spawn(self.connections.close_idle, "idle", max_idle_s)

    def abort_sockets(self) -> None:
        """Close the listener and every connection at once."""
        self._listeners = {}
        self.resume()
        for task in list(self._tasks):
            task.cancel()

    async def wait_stopped(self) -> None:
        """Wait until no task of the node runs and its port is free."""
        for task in list(self._tasks):
            await task.wait()

    def pause(self) -> None:
        """Stop answering but keep all sockets open, like a stopped process."""
        if not self._current_pause.is_active:
            self._current_pause = _Pause(is_active=True)

    def resume(self) -> None:
        self._current_pause.is_active = False
        self._current_pause.ended.set()

    async def wait_until_resumed(self) -> None:
        while self._current_pause.is_active:
            await self._current_pause.ended.wait()

    async def stays_paused_until(self, deadline: float) -> bool:
        """Wait for the end of a pause; return True if it lasts until the deadline."""
        this = self._current_pause
        while this.is_active:
            if not await this.ended.wait(deadline):
                return True
        return False

    def on_request(self, request: SeenRequest) -> None:
        self.requests.append(request)

    def spawn(self, function: Callable[..., Awaitable[None]], name: str, *args: object) -> None:
        """Start a task that ends with `abort_sockets`."""

        async def run() -> None:
            try:
                await function(*args)
            finally:
                self._tasks.pop(handle, None)

        handle = self._supervisor.spawn(run, name=f"node-{self.node_id}-{name}")
        self._tasks[handle] = None

    async def _accept(self, listener: BrokerListener, listening: Listener) -> None:
        try:
            while True:
                try:
                    transport = await listening.accept()
                except OSError as error:
                    if error.errno not in _OUT_OF_RESOURCES:
                        logger.warning(
                            "node %d: stopped accepting connections: %s", self.node_id, error
                        )
                        return
                    logger.warning("node %d: accept failed: %s; retrying", self.node_id, error)
                    await self._pause_accepting()
                    continue
                if (
                    self._listeners.get(listener.name) is not listening
                    or not self._supervisor.is_running
                ):
                    # The node or the broker stopped while this connection was being accepted.
                    transport.abort()
                    await transport.aclose()
                    return
                configs = self.state.cluster.dynamic_configs
                limit = int(configs.broker_value("max.connections", self.node_id))
                if len(self.connections) >= limit:
                    logger.warning(
                        "node %d: rejected a connection: max_connections reached", self.node_id
                    )
                    await transport.aclose()
                    continue
                host, now = transport.peer.rpartition(":")[0], self._runtime.clock.now()
                quotas = self.state.quota_manager(self.node_id)
                if throttle_s := quotas.record_connection(host.strip("[]"), now):
                    close = self.connections.close_throttled
                    self.spawn(close, "throttled", transport, now + throttle_s)
                    continue
                self._connect(transport, listener)
        finally:
            with anyio.CancelScope(shield=True):
                await listening.aclose()

    async def _pause_accepting(self) -> None:
        clock = self._runtime.clock
        await clock.sleep_until(clock.now() + ACCEPT_RETRY_S)

    def _connect(self, transport: Transport, listener: BrokerListener) -> None:
        number = self.connections.next_number()
        connection = self._serve(self, transport, number, listener)
        self.connections.add(connection)
        self.spawn(self.connections.serve, f"connection-{number}", connection)


_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
