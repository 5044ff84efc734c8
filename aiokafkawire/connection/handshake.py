"""Encryption and authentication of connections: the interface, and the handshake of PLAINTEXT."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aiokafkawire.config import ClientConfig
from aiokafkawire.connection.channel import Channel
from aiokafkawire.runtime import NEVER, Address, Runtime, Supervisor, Transport

if TYPE_CHECKING:
    from aiokafkawire.security import ClientMechanism

__all__ = ("ENDLESS", "PLAINTEXT_HANDSHAKE", "Handshake", "SaslSession", "make_handshake")


class SaslSession(NamedTuple):
    """An authenticated session (KIP-368). The broker ends the connection of one that has ended."""

    renew_at: float
    ends_at: float


ENDLESS = SaslSession(NEVER, NEVER)


class Handshake:
    """No encryption and no authentication. Base class of `SecureHandshake`."""

    credentials_option: str | None = None
    """Option whose function is called for the credentials of each authentication."""

    async def prepare(self) -> None:
        """Read the files of the options.

        Raises:
            InvalidOption: A file cannot be used.
        """

    async def wrap(self, transport: Transport, address: Address) -> Transport:
        """Return a transport that encrypts (TLS).

        Args:
            transport: Connected transport.
            address: Address with the host name to verify, before resolution.

        Raises:
            TlsError: Client and broker do not trust each other.
            ConnectionFailed: The connection was lost.
        """
        del address
        return transport

    async def new_mechanism(self, address: Address) -> ClientMechanism | None:
        """Return the mechanism of one authentication; None without SASL.

        Asks the application for its credentials, which may take a while.

        Args:
            address: Address with the host name, before resolution.

        Raises:
            AuthenticationFailed: There are no usable credentials.
            ConnectionFailed: A function of the application failed.
        """
        del address
        return None

    async def authenticate(
        self, channel: Channel, mechanism: ClientMechanism, *, renew: bool = False
    ) -> SaslSession:
        """Authenticate the client (SASL), on a new connection or again on an open one.

        Args:
            channel: Connection whose `api_versions` are known.
            mechanism: A result of `new_mechanism`.
            renew: Whether the connection is authenticated already.

        Raises:
            AuthenticationFailed: The broker refused the credentials.
            ConnectionFailed: The connection was lost.
        """
        del channel, mechanism, renew
        return ENDLESS


PLAINTEXT_HANDSHAKE = Handshake()


def make_handshake(config: ClientConfig, runtime: Runtime, supervisor: Supervisor) -> Handshake:
    """Return the handshake that `security_protocol` wants."""
    if config.security_protocol == "PLAINTEXT":
        return PLAINTEXT_HANDSHAKE
    # Clients without TLS and SASL need not import this.
    from aiokafkawire.connection.secure_handshake import SecureHandshake  # noqa: PLC0415

    return SecureHandshake(config, runtime, supervisor)
