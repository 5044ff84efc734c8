"""Combinations of a listener and an access that it grants, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tests.brokers.kafka import DEFAULT_VERSION
from tests.brokers.releases import RELEASES
from tests.brokers.security.access import Access
from tests.brokers.security.identity_provider import unsecured_token
from tests.brokers.security.servers import (
    FIRST_WITH_OAUTHBEARER,
    FIRST_WITH_REASONS,
    FIRST_WITH_REAUTHENTICATION,
    FIRST_WITH_SCRAM,
    PLAIN_USERS,
    SCRAM,
    SCRAM_USERS,
    SecureKafka,
    SecureServers,
)

PRINCIPAL = "billing"
"""Subject of the tokens."""

Combination = tuple[str, Access]
"""A listener's name, and the access."""


def password_access(
    servers: SecureServers, listener: str, mechanism: str, user: str | None = None
) -> Combination:
    """Return the access of one user of PLAIN or SCRAM, by default its first one."""
    users = PLAIN_USERS if mechanism == "PLAIN" else SCRAM_USERS
    name = user or next(iter(users))
    encrypted = listener.endswith(("_TLS", "_MTLS", "_SSL"))
    return listener, Access(
        protocol="SASL_SSL" if encrypted else "SASL_PLAINTEXT",
        mechanism=mechanism,
        username=name,
        password=users[name],
        authority=servers.pki.authority if encrypted else None,
        certificate=servers.pki.alice if listener.endswith("_MTLS") else None,
    )


def token_access(servers: SecureServers, listener: str) -> Combination:
    """Return the access with a token that the listener's validator takes."""
    encrypted = listener.endswith(("_TLS", "_SSL"))
    signed = listener in {"OIDC", "OIDC_TLS", "SHORT"}
    return listener, Access(
        protocol="SASL_SSL" if encrypted else "SASL_PLAINTEXT",
        mechanism="OAUTHBEARER",
        token=partial(servers.provider.issue if signed else unsecured_token, PRINCIPAL),
        authority=servers.pki.authority if encrypted else None,
    )


def tls_access(servers: SecureServers, listener: str) -> Combination:
    """Return the access with TLS alone."""
    return listener, Access(
        protocol="SSL",
        authority=servers.pki.authority,
        certificate=servers.pki.alice if listener in {"MTLS", "TLS12"} else None,
    )


COMBINATIONS: Mapping[str, Callable[[SecureServers], Combination]] = {
    "plaintext": lambda _: ("PLAINTEXT", Access()),
    "TLS": partial(tls_access, listener="SSL"),
    "TLS, client certificate": partial(tls_access, listener="MTLS"),
    "TLS 1.2, client certificate": partial(tls_access, listener="TLS12"),
    **{
        f"{mechanism}{suffix}": partial(password_access, listener=listener, mechanism=mechanism)
        for mechanism in ("PLAIN", *SCRAM)
        for suffix, listener in (
            ("", "SASL"),
            (", TLS", "SASL_TLS"),
            (", TLS, client certificate", "SASL_MTLS"),
            (", short sessions", "SHORT"),
            (", TLS, short sessions", "SHORT_TLS"),
        )
    },
    "PLAIN, other letters": partial(
        password_access, listener="SASL", mechanism="PLAIN", user="josé"
    ),
    "PLAIN, comma and equals sign": partial(
        password_access, listener="SASL", mechanism="PLAIN", user="a,b=c"
    ),
    "SCRAM-SHA-256, comma and equals sign": partial(
        password_access, listener="SASL", mechanism="SCRAM-SHA-256", user="a,b=c"
    ),
    "OAUTHBEARER, unsecured": partial(token_access, listener="OAUTH"),
    "OAUTHBEARER, JWKS": partial(token_access, listener="OIDC"),
    "OAUTHBEARER, JWKS, TLS": partial(token_access, listener="OIDC_TLS"),
    "OAUTHBEARER, JWKS, short sessions": partial(token_access, listener="SHORT"),
}
"""Combinations on Kafka 4.3."""

OLDER_RELEASES = ("3.9.1", "2.8.2", "1.1.1", "0.11.0.3", "0.10.2.2", "0.10.0.1")
OLDER_IN_SHORT = ("0.10.2.2",)
"""Those in the short form: a release without SaslAuthenticate."""


def combinations_of(servers: SecureServers, kafka: SecureKafka) -> dict[str, Combination]:
    """Return the combinations of an older release: TLS, and with each mechanism that it has."""
    found = {"TLS": tls_access(servers, "SSL")}
    for mechanism in kafka.mechanisms:
        for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
            access = token_access if mechanism == "OAUTHBEARER" else password_access
            arguments = () if mechanism == "OAUTHBEARER" else (mechanism,)
            found[f"{mechanism}, {listener}"] = access(servers, listener, *arguments)
    return found


def table() -> str:
    """Return the table of docs/compatibility.md: what the tests use on each release."""
    releases = [*reversed(OLDER_RELEASES), DEFAULT_VERSION]
    first: dict[str, tuple[int, ...]] = {
        "TLS": (0, 10),
        "PLAIN": (0, 10),
        "SCRAM-SHA-256, SCRAM-SHA-512": FIRST_WITH_SCRAM,
        "a reason for a refusal": FIRST_WITH_REASONS,
        "OAUTHBEARER": FIRST_WITH_OAUTHBEARER,
        "re-authentication (KIP-368)": FIRST_WITH_REAUTHENTICATION,
    }
    rows = [["", *releases], ["---", *[":-:"] * len(releases)]]
    for feature, since in first.items():
        has = (RELEASES[each].number >= since for each in releases)
        rows.append([feature, *("yes" if each else "–" for each in has)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(table())
