"""GSSAPI (Kerberos, RFC 4752) as Kafka speaks it, with the package `gssapi`.

The client's credentials come from Kerberos itself: the cache that `kinit` fills (`KRB5CCNAME`) or a
client keytab (`KRB5_CLIENT_KTNAME`), as its environment says.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from aiokafkawire.errors import AuthenticationFailed, InvalidOption
from aiokafkawire.security.mechanism import ClientMechanism

__all__ = ("GssapiClient", "SecurityContext", "kerberos_context", "require_gssapi")

NO_LAYER = 1
"""Bit of the broker's offer: neither integrity nor confidentiality after the authentication."""

OFFER_BYTES = 4
"""Security layers (one byte) and the maximum size of messages (three)."""

CHOICE = bytes((NO_LAYER, 0, 0, 0))
"""Without an authorization id: the principal is that of the ticket."""


class SecurityContext(Protocol):
    """The client's side of a Kerberos context. Errors are `OSError`s with Kerberos's text."""

    def step(self, token: bytes | None) -> bytes:
        """Return the next token, which may be empty. The first step may ask the KDC."""
        ...

    @property
    def is_complete(self) -> bool:
        """True if no further token of the broker is needed."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """Return a message with its checksum."""
        ...

    def unwrap(self, token: bytes) -> bytes:
        """Return the message of a token whose checksum is right."""
        ...


class GssapiClient(ClientMechanism):
    """Present a Kerberos ticket, and have the broker prove that it has its own key.

    Args:
        new_context: Returns a context; raises `OSError` if there are no credentials.
    """

    name = "GSSAPI"
    may_hang = True

    def __init__(self, new_context: Callable[[], SecurityContext]) -> None:
        self._new_context = new_context
        self._has_chosen = False

    @property
    def is_answered(self) -> bool:
        # Without requests, a broker does not answer the choice of the layer.
        return not self._has_chosen

    def _first(self) -> bytes:
        try:
            self._context = self._new_context()
        except OSError as error:
            raise AuthenticationFailed(f"GSSAPI: {error}") from error
        return self._call(self._context.step, None)

    def _next(self, token: bytes) -> bytes | None:
        if self._has_chosen:
            if token:
                raise AuthenticationFailed(
                    f"GSSAPI: the broker sent {len(token)} bytes after the exchange"
                )
            return None
        if not self._context.is_complete:
            return self._call(self._context.step, token)
        offer = self._call(self._context.unwrap, token)
        if len(offer) != OFFER_BYTES or not offer[0] & NO_LAYER:
            raise AuthenticationFailed(
                "GSSAPI: the broker requires a security layer, which Kafka does not have: use TLS"
            )
        self._has_chosen = True
        return self._call(self._context.wrap, CHOICE)

    def _call(self, function: Any, argument: bytes | None) -> bytes:
        try:
            return bytes(function(argument))
        except OSError as error:
            raise AuthenticationFailed(f"GSSAPI: {error}") from error


class _KerberosContext:
    """A context of the package `gssapi`."""

    def __init__(self, gssapi: Any, service: str, host: str) -> None:
        self._gssapi = gssapi
        flags = gssapi.RequirementFlag
        self._errors = gssapi.exceptions.GSSError
        try:
            name = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
            self._context = gssapi.SecurityContext(
                name=name,
                usage="initiate",
                mech=gssapi.MechType.kerberos,
                # Without integrity the broker's offer could not be checked.
                flags=flags.mutual_authentication | flags.integrity,
            )
        except self._errors as error:
            raise OSError(_text(error, f"{service}/{host}")) from error
        self._server = f"{service}/{host}"

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes:
        try:
            return self._context.step(token) or b""
        except self._errors as error:
            raise OSError(_text(error, self._server)) from error

    def wrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.wrap(message, False).message)
        except self._errors as error:
            raise OSError(_text(error, self._server)) from error

    def unwrap(self, token: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(token).message)
        except self._errors as error:
            raise OSError(_text(error, self._server)) from error


def require_gssapi() -> None:
    """Import the package `gssapi`.

    Raises:
        InvalidOption: It is not installed, or finds no Kerberos library.
    """
    try:
        import_module("gssapi")
    except (ImportError, OSError) as error:
        raise InvalidOption(
            "sasl_mechanism 'GSSAPI' needs the package gssapi and a Kerberos library:"
            f" pip install 'aiokafkawire[gssapi]' ({error})"
        ) from error


def kerberos_context(service: str, host: str) -> SecurityContext:
    """Return a context for a service on a host, as in the ticket `service/host`.

    Raises:
        OSError: There are no credentials.
    """
    return _KerberosContext(import_module("gssapi"), service, host)


def _text(error: Any, server: str) -> str:
    texts = [str(text) for get in ("maj_str", "min_str") if (text := getattr(error, get, None))]
    reason = "; ".join(texts) or str(error).partition("\n")[0]
    return f"{reason} (server {server}; check kinit or the keytab, and the broker's host name)"
