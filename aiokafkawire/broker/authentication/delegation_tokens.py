"""Delegation tokens: credentials for SCRAM that a user creates for others (KIP-48, KIP-373)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.authentication.credentials import random_text
from aiokafkawire.security import SCRAM_HASHES, ScramCredential, Secret
from aiokafkawire.security.scram import MIN_ITERATIONS
from aiokafkawire.wire import ErrorCode
from aiokafkawire.wire.primitives import uuid_to_text

__all__ = ("DelegationTokens", "StoredToken")

MAX_TOKENS = 1_000
"""Limit of tokens."""


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token. Principals have the form `User:alice`, times are in milliseconds since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)

    def is_owned_or_renewed_by(self, principal: str) -> bool:
        """Return True if the principal owns the token or may renew it."""
        return principal == self.owner or principal in self.renewers


class DelegationTokens:
    """All tokens of the cluster; without `secret_key` there are none.

    Args:
        secret_key: Key of the HMACs, which are the passwords of the tokens.
        max_lifetime_ms: Longest lifetime of a token.
        expiry_time_ms: Time after which a token expires unless it is renewed.
    """

    def __init__(
        self, secret_key: Secret | None, max_lifetime_ms: int, expiry_time_ms: int
    ) -> None:
        self.max_lifetime_ms = max_lifetime_ms
        self.expiry_time_ms = expiry_time_ms
        self._secret_key = secret_key
        self._tokens: dict[str, StoredToken] = {}

    def __iter__(self) -> Iterator[StoredToken]:
        return iter(list(self._tokens.values()))

    def require_enabled(self) -> None:
        """Raise `ApiError` without a secret key."""
        if self._secret_key is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def create(
        self,
        owner: str,
        requester: str,
        renewers: Sequence[str],
        lifetime_ms: int,
        *,
        now_ms: int,
        rng: random.Random,
    ) -> StoredToken:
        """Create a token; a lifetime that is not positive is the longest one.

        Raises:
            ApiError: Tokens are disabled, or there are too many.
        """
        self.require_enabled()
        self._remove_expired(now_ms)
        if len(self._tokens) >= MAX_TOKENS:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        if lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, self.max_lifetime_ms)
        else:
            lifetime_ms = self.max_lifetime_ms
        max_ms = now_ms + lifetime_ms
        token_id = uuid_to_text(UUID(int=rng.getrandbits(128), version=4))
        token = StoredToken(
            token_id,
            owner,
            requester,
            tuple(renewers),
            now_ms,
            min(max_ms, now_ms + self.expiry_time_ms),
            max_ms,
            self._hmac(token_id),
        )
        self._tokens[token_id] = token
        return token

    def renew(self, password: bytes, principal: str, period_ms: int, now_ms: int) -> int:
        """Prolong a token; return its new expiry. Raises `ApiError`."""
        token = self._find(password, principal, now_ms)
        period_ms = min(period_ms, self.expiry_time_ms) if period_ms > 0 else self.expiry_time_ms
        return self._set_expiry(token, now_ms + period_ms)

    def expire(self, password: bytes, principal: str, period_ms: int, now_ms: int) -> int:
        """Set the expiry of a token; with a negative period, remove it. Raises `ApiError`.

        Returns:
            The expiry, which is now for a removed token.
        """
        token = self._find(password, principal, now_ms)
        if period_ms < 0:
            del self._tokens[token.token_id]
            return now_ms
        return self._set_expiry(token, now_ms + period_ms)

    def credential(
        self, token_id: str, mechanism: str, now_ms: int, rng: random.Random
    ) -> tuple[StoredToken, ScramCredential] | None:
        """Return a valid token and its credential for SCRAM, None without one."""
        token = self._tokens.get(token_id)
        if mechanism not in SCRAM_HASHES or token is None or token.expires_ms < now_ms:
            return None
        password = Secret(base64.b64encode(token.hmac).decode())
        salt = random_text(rng).encode()
        return token, ScramCredential.from_password(mechanism, password, salt, MIN_ITERATIONS)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the tokens to store, without their HMACs."""
        return [
            {
                "token_id": token.token_id,
                "owner": token.owner,
                "requester": token.requester,
                "renewers": list(token.renewers),
                "issued_ms": token.issued_ms,
                "expires_ms": token.expires_ms,
                "max_ms": token.max_ms,
            }
            for token in self
        ]

    def load(self, stored: Iterable[Mapping[str, Any]]) -> None:
        """Replace all tokens by stored ones."""
        self._tokens.clear()
        if self._secret_key is None:
            return
        for each in stored:
            token_id = str(each["token_id"])
            self._tokens[token_id] = StoredToken(
                token_id,
                str(each["owner"]),
                str(each["requester"]),
                tuple(each["renewers"]),
                int(each["issued_ms"]),
                int(each["expires_ms"]),
                int(each["max_ms"]),
                self._hmac(token_id),
            )

    def _find(self, password: bytes, principal: str, now_ms: int) -> StoredToken:
        """Return the token of an HMAC that the principal may change. Raises `ApiError`."""
        self.require_enabled()
        token = next((each for each in self if hmac.compare_digest(each.hmac, password)), None)
        if token is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if token.expires_ms < now_ms:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        if not token.is_owned_or_renewed_by(principal):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _set_expiry(self, token: StoredToken, expires_ms: int) -> int:
        expires_ms = min(token.max_ms, expires_ms)
        self._tokens[token.token_id] = replace(token, expires_ms=expires_ms)
        return expires_ms

    def _remove_expired(self, now_ms: int) -> None:
        for token in self:
            if token.expires_ms < now_ms:
                del self._tokens[token.token_id]

    def _hmac(self, token_id: str) -> bytes:
        assert self._secret_key is not None
        key = self._secret_key.reveal().encode()
        return hmac.new(key, token_id.encode(), hashlib.sha512).digest()
