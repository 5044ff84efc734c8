"""What may come between connecting and the first request: encryption and authentication."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiokafkawire.runtime import Address, Transport
from aiokafkawire.wire import Request, Response

__all__ = ("PLAINTEXT", "Exchange", "Handshake", "Plaintext")

Exchange = Callable[[Request[Any], int], Awaitable[Response]]
"""Send one request in one version on the new connection, and wait for its response."""


class Handshake(Protocol):
    """Makes a new connection fit for use, before its versions are negotiated.

    Both steps share the connection's setup timeout, and may be cancelled by it. They raise
    `OSError` for what another attempt may mend, `AuthenticationFailed` for what none will.
    """

    async def wrap(self, transport: Transport, address: Address) -> Transport:
        """Put TLS over a connected transport. `address` has the name that was asked for."""
        ...

    async def authenticate(self, exchange: Exchange) -> None:
        """Prove who we are (SASL)."""
        ...


class Plaintext:
    """No encryption and no authentication."""

    async def wrap(self, transport: Transport, _: Address) -> Transport:
        return transport

    async def authenticate(self, _: Exchange) -> None:
        return None


PLAINTEXT = Plaintext()
