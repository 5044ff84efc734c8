"""Responses of a token endpoint (RFC 6749 section 5)."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from aiokafkawire.oauth.failure import Failure, shown
from aiokafkawire.oauth.jwt import parse_json_object, read_jwt_times, to_seconds
from aiokafkawire.security import OAuthBearerToken, Secret

__all__ = (
    "ASSUMED_LIFETIME_S",
    "MAX_LIFETIME_S",
    "HttpResponse",
    "parse_retry_after",
    "parse_token_response",
)

ASSUMED_LIFETIME_S = 300.0
"""Lifetime of a token for which neither the response nor the token names one."""

MAX_LIFETIME_S = 365 * 86_400.0
MAX_RETRY_AFTER_S = 86_400.0
MAX_SHOWN_FIELDS = 10

SUCCESS = range(200, 300)
REDIRECTS = frozenset({300, 301, 302, 303, 305, 307, 308})
UNAUTHORIZED = frozenset({401, 403})
SERVER_ERRORS = range(500, 600)
OVERLOADED = frozenset({408, 425, 429})
TEMPORARY_ERRORS = frozenset({"server_error", "slow_down", "temporarily_unavailable"})
"""Error codes that ask to come again; with any other one, a status below 500 is final."""

_DIGITS = re.compile(r"[0-9]{1,15}")


class HttpResponse(NamedTuple):
    """Parts of an HTTP response. `repr` would show a token: it must not leave the thread."""

    status: int
    body: bytes
    content_type: str = ""
    location: str = ""
    retry_after: str = ""


def parse_token_response(
    response: HttpResponse,
    *,
    wall_ms: int,
    extensions: Mapping[str, str],
    redact: Callable[[str], str],
) -> OAuthBearerToken | Failure:
    """Return the token of a response, or why there is none.

    Args:
        response: Response of the token endpoint.
        wall_ms: Wall-clock time at which it arrived.
        extensions: Extensions of the token (KIP-342).
        redact: Removes the secrets of the request from a text: a server may repeat them.
    """
    fields = parse_json_object(response.body)
    if response.status in SUCCESS and fields is not None and not fields.get("error"):
        return _parse_success(fields, wall_ms, extensions)
    if response.status in REDIRECTS:
        target = shown(redact(response.location.partition("?")[0]))
        return Failure(
            f"redirects to {target or 'another address'} (status {response.status}): credentials"
            " are not sent there; correct token_endpoint_url"
        )
    return _parse_error(response, fields, wall_ms, redact)


def _parse_success(
    fields: Mapping[str, object], wall_ms: int, extensions: Mapping[str, str]
) -> OAuthBearerToken | Failure:
    value = fields.get("access_token")
    if not isinstance(value, str) or not value:
        names = ", ".join(shown(name, 50) for name in list(fields)[:MAX_SHOWN_FIELDS])
        return Failure(f"responded without an access_token; the response has: {names or 'nothing'}")
    kind = fields.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        return Failure(
            f"issued a token of type {shown(str(kind), 50)}; OAUTHBEARER needs Bearer",
            is_final=True,
        )
    life_s = _lifetime_s(value, fields.get("expires_in"), wall_ms)
    if life_s <= 0:
        return Failure(
            f"issued a token that expired {-life_s:.0f} s ago by the clock of this machine: check"
            " that clock"
        )
    expires_at_ms = wall_ms + int(life_s * 1_000)
    try:
        return OAuthBearerToken(Secret(value), expires_at_ms, extensions)
    except ValueError:
        return Failure(
            "issued a token that OAUTHBEARER cannot send: it is not a b64token", is_final=True
        )


def _lifetime_s(token: str, expires_in: object, wall_ms: int) -> float:
    """Return the shortest lifetime that the response and the token name.

    `expires_in`, and `exp` relative to `iat`, do not depend on the clock of this machine. `exp`
    alone is compared with that clock, and may be past.
    """
    if isinstance(expires_in, str) and _DIGITS.fullmatch(expires_in):
        expires_in = int(expires_in)  # Microsoft's v1 endpoint sends text
    named_s = to_seconds(expires_in)
    times = read_jwt_times(token)
    lifetimes = [MAX_LIFETIME_S]
    if named_s is not None:
        lifetimes.append(named_s)
    if times.expires_at_s is not None:
        if times.issued_at_s is not None and times.expires_at_s > times.issued_at_s:
            lifetimes.append(times.expires_at_s - times.issued_at_s)
        if named_s is None:
            lifetimes.append(times.expires_at_s - wall_ms / 1_000)
    elif named_s is None:
        return ASSUMED_LIFETIME_S
    return min(lifetimes)


def _parse_error(
    response: HttpResponse,
    fields: Mapping[str, object] | None,
    wall_ms: int,
    redact: Callable[[str], str],
) -> Failure:
    status = response.status
    error = "" if fields is None else fields.get("error")
    if not isinstance(error, str):
        error = ""
    if fields is not None and error:
        reason = shown(redact(error), 100)
        description = fields.get("error_description")
        if isinstance(description, str) and description:
            reason += f": {shown(redact(description))}"
        text = f"refused: {reason} (status {status})"
        is_temporary = error in TEMPORARY_ERRORS or status in OVERLOADED or status in SERVER_ERRORS
    elif fields is not None:
        text = f"responded with status {status} and JSON without an error code"
        is_temporary = status not in UNAUTHORIZED
    else:
        kind = shown(response.content_type.partition(";")[0].strip(), 50) or "no content type"
        is_down = status in SERVER_ERRORS or status in OVERLOADED
        advice = (
            "it is down or overloaded"
            if is_down
            else "check token_endpoint_url, and what answers at that address"
        )
        size = len(response.body)
        text = f"responded with status {status} and {kind} of {size} bytes, not JSON: {advice}"
        is_temporary = status not in UNAUTHORIZED
    return Failure(
        text,
        is_final=not is_temporary,
        retry_after_s=parse_retry_after(response.retry_after, wall_ms),
    )


def parse_retry_after(value: str, wall_ms: int) -> float | None:
    """Return the seconds of a `Retry-After` header (RFC 9110), bounded; None if it is not valid."""
    value = value.strip()
    if _DIGITS.fullmatch(value):
        return min(float(value), MAX_RETRY_AFTER_S)
    try:
        seconds = email.utils.parsedate_to_datetime(value).timestamp() - wall_ms / 1_000
    except (TypeError, ValueError, OverflowError, OSError, IndexError):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)
