"""Encryption and authentication of a new connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiokafkawire.runtime import Address, Transport
from aiokafkawire.wire import Request, Response

__all__ = ("PLAINTEXT", "Exchange", "Handshake", "Plaintext")

Exchange = Callable[[Request[Any], int], Awaitable[Response]]
"""Sends a request in a given version on the new connection and returns its response."""


class Handshake(Protocol):
    """Encrypts and authenticates a new connection, before its API versions are negotiated.

    Both steps run within the setup timeout of the connection, which may cancel them. They raise
    `OSError` for retriable errors and `AuthenticationFailed` for permanent ones.
    """

    async def wrap(self, transport: Transport, address: Address) -> Transport:
        """Return a transport that encrypts (TLS).

        Args:
            transport: Connected transport.
            address: Address with the host name to verify, before resolution.
        """
        ...

    async def authenticate(self, exchange: Exchange) -> None:
        """Authenticate the client (SASL).

        Args:
            exchange: Sends a request on the connection.
        """
        ...


class Plaintext:
    """No encryption and no authentication."""

    async def wrap(self, transport: Transport, _: Address) -> Transport:
        """Return the transport itself."""
        return transport

    async def authenticate(self, _: Exchange) -> None:
        """Send nothing."""
        return None


PLAINTEXT = Plaintext()
