"""Security of all connections of a run: a security protocol, a mechanism, sessions that end."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from aiokafkawire.broker import BrokerSasl, BrokerTls, CertificateAuthority
from aiokafkawire.broker.authentication.authenticator import MECHANISM_SINCE, SESSION_LIFETIME_SINCE
from aiokafkawire.broker.releases import RELEASE_NAMES

__all__ = ("PASSWORDS", "PLAINTEXT", "USER", "Security", "draw_mechanism", "first_release")

USER = "alice"

PASSWORDS = tuple(f"battery-staple-{number}" for number in range(9))
"""Passwords of the user, one after the other."""


@dataclass(frozen=True, slots=True)
class Security:
    """Listener of the broker. `max_reauth_ms` is the lifetime of sessions, 0 for no end.

    With TLS a seed is not the same run twice: OpenSSL has its own randomness, and the lengths of
    its signatures differ, which fragments and torn writes depend on.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: str | None = None
    max_reauth_ms: int = 0

    def broker_arguments(self, password: str) -> dict[str, Any]:
        """Return arguments of `Broker`."""
        arguments: dict[str, Any] = {}
        if self.protocol.endswith("SSL"):
            arguments["tls"] = BrokerTls(authority=_authority())
        if self.mechanism is not None:
            arguments["sasl"] = BrokerSasl(users={USER: password}, mechanisms=[self.mechanism])
            arguments["connections_max_reauth_ms"] = self.max_reauth_ms
        return arguments

    def __str__(self) -> str:
        return f"{self.protocol} {self.mechanism or ''} sessions of {self.max_reauth_ms} ms"


PLAINTEXT = Security()


@cache
def _authority() -> CertificateAuthority:
    return CertificateAuthority()


def draw_mechanism(rng: random.Random) -> str:
    """Draw a mechanism with a password."""
    return rng.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-512"))


def first_release(security: Security) -> str:
    """Return the first release with the mechanism, and with sessions if they end."""
    assert security.mechanism is not None
    wanted = [MECHANISM_SINCE[security.mechanism]]
    if security.max_reauth_ms:
        wanted.append(SESSION_LIFETIME_SINCE)
    return max(wanted, key=RELEASE_NAMES.index)
