"""The times in a JSON Web Token (RFC 7519). Its signature is for the broker to verify."""

from __future__ import annotations

import base64
import json
import math
from typing import NamedTuple

__all__ = (
    "MAX_EPOCH_S",
    "NO_TIMES",
    "JwtTimes",
    "parse_json_object",
    "read_jwt_times",
    "to_seconds",
)

MAX_EPOCH_S = 253_402_300_799
"""The end of the year 9999."""

JWT_PARTS = 3


class JwtTimes(NamedTuple):
    """Seconds since 1970; None for what the token does not have."""

    expires_at_s: float | None
    issued_at_s: float | None


NO_TIMES = JwtTimes(None, None)


def read_jwt_times(token: str) -> JwtTimes:
    """Return `exp` and `iat` of a token without verifying it; `NO_TIMES` if it is not a JWT."""
    parts = token.split(".")
    if len(parts) != JWT_PARTS:
        return NO_TIMES
    try:
        payload = base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), b"-_", validate=True)
    except ValueError:
        return NO_TIMES
    claims = parse_json_object(payload)
    if claims is None:
        return NO_TIMES
    return JwtTimes(_to_epoch(claims.get("exp")), _to_epoch(claims.get("iat")))


def _to_epoch(value: object) -> float | None:
    seconds = to_seconds(value)
    return seconds if seconds is not None and seconds <= MAX_EPOCH_S else None


def to_seconds(value: object) -> float | None:
    """Return a positive finite JSON number as float, else None.

    Numbers beyond the range of float become None, too.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def parse_json_object(data: bytes) -> dict[str, object] | None:
    """Return a JSON object, or None for anything else."""
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        # Also UnicodeDecodeError, and integers of thousands of digits.
        return None
    return value if isinstance(value, dict) else None
