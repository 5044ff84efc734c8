"""PLAIN (RFC 4616), with the messages of Kafka's PlainSaslServer."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.security.mechanism import (
    ClientMechanism,
    CredentialsRefused,
    ServerMechanism,
    invalid_credentials,
)
from aiokafkawire.security.secret import Secret

__all__ = ("PlainClient", "PlainServer")

PARTS = 3
"""Authorization id, user name, password."""


class PlainClient(ClientMechanism):
    """Send user name and password. Nothing but TLS keeps them from a listener on the network."""

    name = "PLAIN"

    def __init__(self, username: str, password: Secret, authorization_id: str = "") -> None:
        self._username = username
        self._password = password
        self._authorization_id = authorization_id

    def first(self) -> bytes:
        parts = (self._authorization_id, self._username, self._password.reveal())
        return "\0".join(parts).encode()

    def _next(self, token: bytes) -> None:
        if token:
            raise AuthenticationFailed(
                f"PLAIN: the broker answered with a token of {len(token)} bytes; none was expected"
            )


class PlainServer(ServerMechanism):
    """Check user name and password.

    Args:
        password_of: Returns the password of a user, or None for an unknown one.
    """

    name = "PLAIN"

    def __init__(self, password_of: Callable[[str], Secret | None]) -> None:
        self._password_of = password_of

    def next(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise invalid_credentials(self.name) from None
        if len(parts) != PARTS:
            raise CredentialsRefused(
                f"Invalid SASL/PLAIN response: expected {PARTS} tokens, got {len(parts)}"
            )
        authorization_id, username, password = parts
        for value, what in ((username, "username"), (password, "password")):
            if not value:
                raise CredentialsRefused(f"Authentication failed: {what} not specified")
        expected = self._password_of(username)
        if expected is None or not hmac.compare_digest(
            expected.reveal().encode(), password.encode()
        ):
            raise CredentialsRefused("Authentication failed: Invalid username or password")
        if authorization_id not in {"", username}:
            raise CredentialsRefused(
                "Authentication failed: Client requested an authorization id that is different"
                " from username"
            )
        self.principal = username
        return b""
