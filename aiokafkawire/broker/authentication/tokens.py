"""Validators of OAUTHBEARER tokens."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafkawire.security import Secret, TokenRefused

__all__ = (
    "PARTS",
    "TokenValidator",
    "ValidatedToken",
    "decode_part",
    "make_unsecured_token",
    "time_ms",
    "validate_unsecured_token",
)

MAX_TIME_S = 1e12
"""Far in the future; more is not a time in seconds."""

PARTS = 3
"""Header, claims and signature."""


@dataclass(frozen=True, slots=True)
class ValidatedToken:
    """Result of a token's validation.

    Attributes:
        principal: Name of the user.
        expires_at_ms: Expiry in milliseconds since 1970, which ends the session; None for none.
    """

    principal: str
    expires_at_ms: int | None = None


TokenValidator = Callable[[Secret, Mapping[str, str]], "ValidatedToken | str"]
"""Returns the user of a token, given with its extensions; or raises `TokenRefused`."""


def make_unsecured_token(user: str, lifetime_s: float = 3600.0) -> str:
    """Return a JWT without signature, which a broker without `token_validator` accepts.

    Args:
        user: Name of the user, the claim `sub`.
        lifetime_s: Seconds from now to the expiry; negative for a token that has expired.
    """
    now_s = time.time()
    claims = {"sub": user, "iat": min(now_s, now_s + lifetime_s), "exp": now_s + lifetime_s}
    return f"{_encode({'alg': 'none'})}.{_encode(claims)}."


def validate_unsecured_token(token: str, now_ms: int) -> ValidatedToken:
    """Validate a JWT without signature, as Kafka's default validator does.

    Raises:
        TokenRefused: The token is malformed or signed, has no `sub` or `exp`, has expired, or was
            issued in the future.
    """
    parts = token.split(".")
    if len(parts) != PARTS or parts[2]:
        raise TokenRefused
    header, claims = decode_part(parts[0]), decode_part(parts[1])
    if header.get("alg") != "none":
        raise TokenRefused
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject.strip():
        raise TokenRefused
    expires_at_ms = time_ms(claims, "exp")
    issued_at_ms = time_ms(claims, "iat") if "iat" in claims else 0
    if not issued_at_ms <= now_ms < expires_at_ms:
        raise TokenRefused
    return ValidatedToken(subject, expires_at_ms)


def _encode(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def decode_part(part: str) -> dict[str, Any]:
    """Return the JSON object in a part of a JWT. Raises `TokenRefused`."""
    try:
        text = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        value = json.loads(text)
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused from None
    if not isinstance(value, dict):
        raise TokenRefused
    return value


def time_ms(claims: Mapping[str, Any], name: str) -> int:
    """Return a claim in seconds since 1970 as milliseconds. Raises `TokenRefused`."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_TIME_S:
        raise TokenRefused
    return int(value * 1000)
