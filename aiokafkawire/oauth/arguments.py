"""Checks of what the constructors of the providers take."""

from __future__ import annotations

import inspect
import ipaddress
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiokafkawire.config.secret import is_encodable
from aiokafkawire.errors import AuthenticationFailed, InvalidOption
from aiokafkawire.security import OAuthBearerToken, Secret

__all__ = (
    "SecretSource",
    "check_endpoint_url",
    "check_extensions",
    "check_parameters",
    "check_text",
    "check_timeout",
    "hide",
    "is_loopback",
    "keep_secret",
    "resolve_secret",
    "shown_url",
)

SecretSource = str | Secret | Callable[[], Awaitable[str | Secret]]
"""A secret, or an async function that returns it."""


def check_text(name: str, value: object) -> str:
    """Return a text that is not empty; raise `InvalidOption` for anything else."""
    if not isinstance(value, str) or not value:
        raise InvalidOption(f"{name} must be a text that is not empty, not {value!r:.100}")
    return value


def check_timeout(timeout_ms: object) -> float:
    """Return a timeout in seconds."""
    if not isinstance(timeout_ms, int | float) or not 1 <= timeout_ms <= 3_600_000:
        raise InvalidOption(
            f"timeout_ms must be a number from 1 to 3600000, not {timeout_ms!r:.100}"
        )
    return timeout_ms / 1_000


def check_extensions(extensions: Mapping[str, str] | None) -> dict[str, str]:
    """Return the extensions; raise `InvalidOption` if OAUTHBEARER cannot send them."""
    try:
        return dict(OAuthBearerToken(Secret("token"), None, extensions or {}).extensions)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidOption(f"extensions: {error}") from None


def check_parameters(
    parameters: Mapping[str, str] | None, reserved: frozenset[str]
) -> dict[str, str]:
    """Return the extra parameters of a token request."""
    for name, value in (parameters or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidOption("extra_parameters must map texts to texts")
        if name in reserved:
            raise InvalidOption(f"extra_parameters must not have {name!r}: it has its own argument")
    return dict(parameters or {})


def check_endpoint_url(url: object, *, allow_http: bool) -> str:
    """Return the URL of a token endpoint; raise `InvalidOption` if no secret may be sent there."""
    name = "token_endpoint_url"
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidOption(f"{name} must be a URL of ASCII characters")
    try:
        parts = urllib.parse.urlsplit(url)
        is_port_valid = parts.port != 0
    except ValueError:
        parts, is_port_valid = urllib.parse.urlsplit(""), False
    if parts.scheme not in {"https", "http"} or not parts.hostname or not is_port_valid:
        raise InvalidOption(f"{name} must be like https://host/path")
    if "@" in parts.netloc or "#" in url:
        raise InvalidOption(
            f"{name} must have neither user name nor fragment: pass client_id and client_secret"
        )
    if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname):
        raise InvalidOption(
            f"{name} {shown_url(url)} would send the credentials unencrypted: use https, or, for"
            " a test server on a network that you trust, allow_http=True"
        )
    return url


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shown_url(url: str) -> str:
    """Return a URL without its query, which may have secrets."""
    return url.partition("?")[0]


def hide(source: Any) -> Any:
    """Return a secret text as `Secret`, anything else as it is; never raise.

    Constructors rebind their arguments to the result before they check anything, so that no
    traceback of theirs has a variable with the text.
    """
    if not isinstance(source, str):
        return source
    return Secret(source) if is_encodable(source) else _Unencodable()


class _Unencodable:
    """Stands for a secret text with a lone surrogate."""


def keep_secret(
    name: str, source: Any, *, is_pem: bool = False
) -> Secret | Callable[[], Awaitable[str | Secret]]:
    """Return a result of `hide`; raise `InvalidOption` if it is no source of a secret."""
    if callable(source):
        return source  # type: ignore[no-any-return]
    if isinstance(source, _Unencodable):
        raise InvalidOption(f"{name} cannot be encoded as UTF-8: it has a lone surrogate")
    if not isinstance(source, Secret):
        raise InvalidOption(
            f"{name} must be a text, a Secret or an async function that returns one,"
            f" not {type(source).__name__}"
        )
    problem = _problem_of(source, is_pem)
    if problem is not None:
        raise InvalidOption(f"{name} {problem}")
    return source


async def resolve_secret(
    name: str, source: Secret | Callable[[], Awaitable[str | Secret]], *, is_pem: bool = False
) -> Secret:
    """Return the secret of a source.

    Raises:
        AuthenticationFailed: The function does not return a secret. Its own exceptions are raised
            as they are.
    """
    if isinstance(source, Secret):
        return source
    value: object = source()
    if inspect.isawaitable(value):
        value = await value
    kind = type(value).__name__
    value = hide(value)
    if not isinstance(value, Secret):
        value = None
        raise AuthenticationFailed(f"the function {name} returned no secret text but {kind}")
    problem = _problem_of(value, is_pem)
    if problem is not None:
        raise AuthenticationFailed(f"the function {name} returned a secret that {problem}")
    return value


def _problem_of(secret: Secret, is_pem: bool) -> str | None:
    if not secret:
        return "is empty"
    if not is_pem and secret.reveal().endswith(("\n", "\r")):
        return "ends with a line break: strip what was read from a file"
    return None
