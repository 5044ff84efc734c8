"""Client connections of a node: open ones, and those beyond its quota."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Protocol

import anyio

from aiokafkawire.runtime import NEVER, AutoResetEvent, Clock, Transport

__all__ = ("MAX_THROTTLED_CONNECTIONS", "NodeConnections", "ServedConnection")

logger = logging.getLogger("aiokafkawire.broker")

MAX_THROTTLED_CONNECTIONS = 100
"""Connections beyond the quota that are open at once; further ones are closed without delay."""


class ServedConnection(Protocol):
    """One client connection. `idle_since` is when it began to wait for a request."""

    name: str
    idle_since: float

    def close_when_idle(self) -> None:
        """Close it once it is idle."""
        ...

    async def run(self) -> None:
        """Serve the client until the connection ends, and release the transport."""
        ...


class NodeConnections:
    """Open connections of a node, in the order in which they were accepted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[ServedConnection, None] = {}
        self._opened = AutoResetEvent()
        self._last_number = 0
        self._throttled = 0

    def __iter__(self) -> Iterator[ServedConnection]:
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def next_number(self) -> int:
        """Return a number that no other connection of the node has."""
        self._last_number += 1
        return self._last_number

    def add(self, connection: ServedConnection) -> None:
        """Count a connection; `serve` follows."""
        self._open[connection] = None
        self._opened.set()

    async def serve(self, connection: ServedConnection) -> None:
        """Serve a connection until it ends."""
        try:
            await connection.run()
        finally:
            self._open.pop(connection, None)

    def clear(self) -> None:
        """Forget connections, whose tasks have ended."""
        self._open.clear()

    async def close_throttled(self, transport: Transport, until: float) -> None:
        """Close a connection beyond `connection_creation_rate`, which is never read (KIP-612)."""
        self._throttled += 1
        try:
            if self._throttled <= MAX_THROTTLED_CONNECTIONS:
                await self._clock.sleep_until(until)
        finally:
            self._throttled -= 1
            transport.abort()
            with anyio.CancelScope(shield=True):
                await transport.aclose()

    async def close_idle(self, max_idle_s: float) -> None:
        """Close connections that have been idle for too long, until the node stops."""
        while True:
            if not self._open:
                await self._opened.wait()
            now = self._clock.now()
            for connection in self:
                if connection.idle_since + max_idle_s <= now:
                    logger.debug(
                        "%s: closed: idle for longer than connections_max_idle_ms", connection.name
                    )
                    connection.close_when_idle()
                    connection.idle_since = NEVER
            # Connections that become idle later have later deadlines.
            since = min((each.idle_since for each in self._open), default=now)
            await self._clock.sleep_until(min(since, now) + max_idle_s)
