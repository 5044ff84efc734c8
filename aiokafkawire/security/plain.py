"""PLAIN (RFC 4616), with the messages of Kafka's PlainSaslServer."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from aiokafkawire.config import Secret, is_encodable
from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.security.mechanism import (
    ClientMechanism,
    CredentialsRefused,
    ServerMechanism,
    invalid_credentials,
)

__all__ = ("PlainClient", "PlainServer")

PARTS = 3
"""Authorization id, user name, password."""


class PlainClient(ClientMechanism):
    """Send user name and password. Nothing but TLS keeps them from a listener on the network.

    Raises:
        ValueError: A name or the password is empty, or has a character that PLAIN cannot carry.
    """

    name = "PLAIN"

    def __init__(self, username: str, password: Secret, authorization_id: str = "") -> None:
        for value, what in ((username, "user name"), (authorization_id, "authorization id")):
            if "\0" in value or not is_encodable(value):
                raise ValueError(f"PLAIN cannot send this {what}: {value!a}")
        if not username or not password or "\0" in password.reveal():
            raise ValueError("PLAIN needs a user name and a password without NUL characters")
        self._username = username
        self._password = password
        self._authorization_id = authorization_id

    def _first(self) -> bytes:
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

    def _next(self, token: bytes) -> bytes:
        # A UnicodeDecodeError would carry the password.
        text = token.decode(errors="replace")
        if text.encode() != token:
            raise invalid_credentials(self.name)
        parts = text.split("\0")
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
