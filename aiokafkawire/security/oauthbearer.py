"""OAUTHBEARER (RFC 7628, KIP-255, KIP-342) as Kafka speaks it.

A broker refuses a token with a successful SaslAuthenticate that carries JSON. The client answers
with a single 0x01, and only then the error code comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiokafkawire.config import Secret
from aiokafkawire.errors import AuthenticationFailed
from aiokafkawire.security.mechanism import (
    ClientMechanism,
    CredentialsRefused,
    ServerMechanism,
    invalid_credentials,
)

__all__ = ("OAuthBearerClient", "OAuthBearerServer", "OAuthBearerToken", "TokenRefused")

SEPARATOR = "\x01"
ACKNOWLEDGE_REFUSAL = SEPARATOR.encode()
INVALID_TOKEN = '{"status":"invalid_token"}'
"""The only reason that Kafka's own validators give."""

MAX_SHOWN_CHARACTERS = 500
"""How much of a broker's reason stands in an error."""

_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")
_MESSAGE = re.compile(
    r"n,(?:a=(?P<authorization_id>[^,\x00\x01]*))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]*\x01)+)\x01"
)
_TOKEN = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_BEARER = re.compile(rf"(?i:bearer) +(?P<token>{_TOKEN.pattern})")


@dataclass(frozen=True, slots=True)
class OAuthBearerToken:
    """A token of an identity provider.

    `expires_at_ms` counts from 1970; None stands for a token that does not expire. `extensions`
    are sent to the broker beside the token (KIP-342).

    Raises:
        TypeError: The value is not a `Secret`.
        ValueError: The value or an extension has characters that the mechanism cannot carry.
    """

    value: Secret
    expires_at_ms: int | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.value, Secret):
            raise TypeError(f"the token must be a Secret, not {type(self.value).__name__}")
        if not _TOKEN.fullmatch(self.value.reveal()):
            raise ValueError("OAUTHBEARER cannot send this token: it is empty or not a b64token")
        for key, value in self.extensions.items():
            if key == "auth" or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
                raise ValueError(
                    f"OAUTHBEARER cannot send the extension {key!a}: a name has letters alone and"
                    " is not 'auth', a value has printable ASCII characters"
                )
        object.__setattr__(self, "extensions", dict(self.extensions))


class OAuthBearerClient(ClientMechanism):
    """Present a token."""

    name = "OAUTHBEARER"

    def __init__(self, token: OAuthBearerToken) -> None:
        self.token = token
        self._refusal: str | None = None

    def _first(self) -> bytes:
        pairs = {"auth": f"Bearer {self.token.value.reveal()}", **self.token.extensions}
        text = "".join(f"{key}={value}{SEPARATOR}" for key, value in pairs.items())
        return f"n,,{SEPARATOR}{text}{SEPARATOR}".encode()

    def _next(self, token: bytes) -> bytes | None:
        if self._refusal is not None:
            # The first token was the refusal. A broker must not send another one.
            raise AuthenticationFailed(f"OAUTHBEARER: the broker refused: {self._refusal!a}")
        if not token:
            return None
        self._refusal = token.decode(errors="replace")[:MAX_SHOWN_CHARACTERS]
        return ACKNOWLEDGE_REFUSAL

    @property
    def refusal(self) -> str | None:
        """The broker's JSON reason, if it refused the token."""
        return self._refusal


class TokenRefused(Exception):
    """A validator refuses a token.

    Args:
        reason: JSON that the client gets, as in RFC 7628 section 3.2.2. Must not be empty: an
            empty answer means success.
    """

    def __init__(self, reason: str = INVALID_TOKEN) -> None:
        super().__init__(reason or INVALID_TOKEN)


class OAuthBearerServer(ServerMechanism):
    """Check a token.

    Args:
        validate: Returns the principal of a token and its extensions, or raises `TokenRefused`.
    """

    name = "OAUTHBEARER"

    def __init__(self, validate: Callable[[Secret, Mapping[str, str]], str]) -> None:
        self._validate = validate
        self._refusal: str | None = None

    def _next(self, token: bytes) -> bytes:
        if self._refusal is not None:
            if token != ACKNOWLEDGE_REFUSAL:
                raise invalid_credentials(self.name)
            raise CredentialsRefused(self._refusal)
        # A UnicodeDecodeError would carry the token; the pattern takes ASCII alone but for the id.
        text = token.decode(errors="replace")
        found = _MESSAGE.fullmatch(text)
        if found is None or text.encode() != token:
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
