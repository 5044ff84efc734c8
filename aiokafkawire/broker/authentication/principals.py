"""Principals of clients, as Kafka prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ("USER_TYPE", "certificate_principal", "user_principal")

_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""Names that RFC 2253 abbreviates. Others have no short form."""

_SPECIAL = frozenset(',+"\\<>;')


USER_TYPE = "User"
"""Type of all principals of Kafka itself."""


def user_principal(name: str) -> str:
    """Return the principal of a user name."""
    return f"{USER_TYPE}:{name}"


def certificate_principal(certificate: Mapping[str, Any]) -> str:
    """Return the principal of a client's certificate: its subject as of RFC 2253.

    Args:
        certificate: As of `ssl.SSLSocket.getpeercert`, whose subject has the order of the
            certificate. RFC 2253 reverses it.
    """
    subject = [
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escape(value)}" for name, value in relative)
        for relative in certificate.get("subject", ())
    ]
    return user_principal(",".join(reversed(subject)))


def _escape(value: str) -> str:
    escaped = "".join(
        f"\\{character}" if character in _SPECIAL else character for character in value
    )
    if escaped.startswith((" ", "#")):
        escaped = f"\\{escaped}"
    if escaped.endswith(" ") and len(value) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return escaped
