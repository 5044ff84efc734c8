"""Arguments and results of the operations on SCRAM credentials and delegation tokens."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from enum import IntEnum

from aiokafkawire.config import Secret

__all__ = (
    "DelegationToken",
    "ScramCredentialInfo",
    "ScramMechanism",
    "TokenInformation",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
)


class ScramMechanism(IntEnum):
    """SCRAM mechanism, with Kafka's number."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """A stored SCRAM credential, without its secrets."""

    mechanism: ScramMechanism
    iterations: int


DEFAULT_ITERATIONS = 4_096


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """Creates a user's SCRAM credential, or replaces it.

    The password does not leave the client: it is salted and hashed here (RFC 5802).

    Attributes:
        user: Name of the user, without "User:".
        mechanism: Mechanism of the credential.
        password: The password; not shown by `repr`.
        iterations: Iterations of the hash, 4,096 to 16,384.
        salt: Salt of the hash; a random one by default.
    """

    user: str
    mechanism: ScramMechanism
    password: str | bytes | Secret = field(repr=False)
    iterations: int = DEFAULT_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """Deletes a user's SCRAM credential of one mechanism."""

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class TokenInformation:
    """A delegation token without its secret. Principals are as "User:alice".

    Attributes:
        token_id: Name of the token, which is the user name of SCRAM.
        owner: Principal that authenticates with the token.
        token_requester: Principal that created the token; None before Kafka 3.3.
        renewers: Principals that may renew the token besides the owner.
        issue_timestamp_ms: Time of creation, in milliseconds since 1970.
        expiry_timestamp_ms: Time of expiry unless it is renewed, in milliseconds since 1970.
        max_timestamp_ms: Time until which it can be renewed, in milliseconds since 1970.
    """

    token_id: str
    owner: str
    token_requester: str | None
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token (KIP-48). `hmac` is its secret, and not shown by `repr`."""

    token_info: TokenInformation
    hmac: bytes = field(repr=False)

    @property
    def hmac_as_base64_string(self) -> str:
        """The password of SCRAM; the user name is `token_info.token_id`."""
        return base64.b64encode(self.hmac).decode("ascii")
