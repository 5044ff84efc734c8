"""The shape of a SASL mechanism: tokens in, tokens out.

The same machine serves raw frames (SaslHandshake v0), SaslAuthenticate requests, and
re-authentication (KIP-368): each authentication takes a new instance.
"""

from __future__ import annotations

import abc

from aiokafkawire.errors import AuthenticationFailed

__all__ = (
    "MAX_TOKEN_BYTES",
    "ClientMechanism",
    "CredentialsRefused",
    "ServerMechanism",
    "invalid_credentials",
)

MAX_TOKEN_BYTES = 524_288
"""The longest token either side accepts (`sasl.server.max.receive.size` of Kafka)."""


class CredentialsRefused(Exception):
    """A server mechanism refuses the client. The text is sent with SASL_AUTHENTICATION_FAILED."""


class ClientMechanism(abc.ABC):
    """The client's side of one authentication.

    Send what `first` returns, then pass each token of the broker to `next` and send what that
    returns, until it returns None: the exchange is complete.
    """

    name: str
    """The mechanism's name in SaslHandshake."""

    @abc.abstractmethod
    def first(self) -> bytes:
        """Return the first token."""

    def next(self, token: bytes) -> bytes | None:
        """Return the next token, or None when the exchange is complete.

        Args:
            token: The broker's token.

        Raises:
            AuthenticationFailed: The broker refused, or did not prove that it knows the password.
        """
        if len(token) > MAX_TOKEN_BYTES:
            raise AuthenticationFailed(
                f"{self.name}: the broker's token has {len(token)} bytes, more than"
                f" {MAX_TOKEN_BYTES}"
            )
        return self._next(token)

    @abc.abstractmethod
    def _next(self, token: bytes) -> bytes | None:
        """As `next`, for a token of bounded length."""

    def blocks(self, token: bytes) -> bool:
        """Return whether `next(token)` takes long enough to run in a thread."""
        del token
        return False


class ServerMechanism(abc.ABC):
    """The broker's side of one authentication."""

    name: str

    principal: str | None = None
    """The authenticated user, once the exchange is complete."""

    @property
    def is_complete(self) -> bool:
        """True once the client has proved who it is."""
        return self.principal is not None

    @abc.abstractmethod
    def next(self, token: bytes) -> bytes:
        """Return the answer to a token of the client.

        Raises:
            CredentialsRefused: The client is refused.
        """


def invalid_credentials(mechanism: str) -> CredentialsRefused:
    """Return the error of Kafka's brokers that does not say what was wrong."""
    return CredentialsRefused(
        "Authentication failed during authentication due to invalid credentials with SASL"
        f" mechanism {mechanism}"
    )
