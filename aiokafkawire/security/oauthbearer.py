"""OAUTHBEARER (RFC 7628, KIP-255, KIP-342) as Kafka speaks it.

A broker refuses a token with a successful SaslAuthenticate that carries JSON. The client answers
with a single 0x01, and only then the error code comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.security.mechanism import (
    ClientMechanism,
    CredentialsRefused,
    ServerMechanism,
    invalid_credentials,
)
from aiokafkawire.security.secret import Secret

__all__ = ("OAuthBearerClient", "OAuthBearerServer", "OAuthBearerToken", "TokenRefused")

SEPARATOR = "\x01"
ACKNOWLEDGE_REFUSAL = SEPARATOR.encode()
MAX_SHOWN_CHARACTERS = 500
"""How much of a broker's reason stands in an error."""

_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")
_MESSAGE = re.compile(
    r"n,(?:a=(?P<authorization_id>[^,\x00\x01]*))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]*\x01)+)\x01"
)
_BEARER = re.compile(r"(?i:bearer) +(?P<token>[-._~+/A-Za-z0-9]+=*)")


@dataclass(frozen=True, slots=True)
class OAuthBearerToken:
    """A token of an identity provider.

    `expires_at_ms` counts from 1970; None stands for a token that does not expire. `extensions`
    are sent to the broker beside the token (KIP-342).
    """

    value: Secret
    expires_at_ms: int | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


class OAuthBearerClient(ClientMechanism):
    """Present a token.

    Raises:
        ValueError: An extension has a name or value that the mechanism cannot carry.
    """

    name = "OAUTHBEARER"

    def __init__(self, token: OAuthBearerToken) -> None:
        for key, value in token.extensions.items():
            if key == "auth" or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
                raise ValueError(
                    f"OAUTHBEARER cannot send the extension {key!r}: a name has letters alone and"
                    " is not 'auth', a value has printable ASCII characters"
                )
        self._token = token
        self._refusal: str | None = None

    def first(self) -> bytes:
        pairs = {"auth": f"Bearer {self._token.value.reveal()}", **self._token.extensions}
        text = "".join(f"{key}={value}{SEPARATOR}" for key, value in pairs.items())
        return f"n,,{SEPARATOR}{text}{SEPARATOR}".encode()

    def _next(self, token: bytes) -> bytes | None:
        if self._refusal is not None:
            # The first token was the refusal. A broker must not send another one.
            raise AuthenticationFailed(f"OAUTHBEARER: the broker refused: {self._refusal}")
        if not token:
            return None
        self._refusal = token.decode(errors="replace")[:MAX_SHOWN_CHARACTERS]
        return ACKNOWLEDGE_REFUSAL

    @property
    def refusal(self) -> str | None:
        """The broker's JSON reason, if it refused the token."""
        return self._refusal


class TokenRefused(Exception):
    """A validator refuses a token. The text is the JSON that the client gets."""


class OAuthBearerServer(ServerMechanism):
    """Check a token.

    Args:
        validate: Returns the principal of a token and its extensions, or raises `TokenRefused`.
    """

    name = "OAUTHBEARER"

    def __init__(self, validate: Callable[[Secret, Mapping[str, str]], str]) -> None:
        self._validate = validate
        self._refusal: str | None = None

    def next(self, token: bytes) -> bytes:
        if self._refusal is not None:
            if token != ACKNOWLEDGE_REFUSAL:
                raise invalid_credentials(self.name)
            raise CredentialsRefused(self._refusal)
        try:
            found = _MESSAGE.fullmatch(token.decode())
        except UnicodeDecodeError:
            found = None
        if found is None:
            raise invalid_credentials(self.name)
        pairs = dict(pair.partition("=")[::2] for pair in found["pairs"].split(SEPARATOR) if pair)
        bearer = _BEARER.fullmatch(pairs.pop("auth", ""))
        if bearer is None:
            raise invalid_credentials(self.name)
        try:
            principal = self._validate(Secret(bearer["token"]), pairs)
        except TokenRefused as refused:
            self._refusal = str(refused)
            return self._refusal.encode()
        if (asked := found["authorization_id"]) and asked != principal:
            raise CredentialsRefused(
                f"Authentication failed: Client requested an authorization id ({asked}) that is"
                f" different from the token's principal name ({principal})"
            )
        self.principal = principal
        return b""
