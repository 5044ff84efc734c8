"""Checks of the options of TLS and SASL against each other.

A text names the option to change and what to set. None contains a secret.
"""

from __future__ import annotations

from typing import Any

from aiokafkawire.config.checks import PEM_MARK, address_scheme
from aiokafkawire.config.secret import Secret
from aiokafkawire.errors import InvalidOption

__all__ = ("check_security",)

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER, GSSAPI)

FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
CERTIFICATES = ("ssl_certfile", "ssl_certdata", "ssl_keystore_location")
"""Options that give the client's certificate; at most one of them."""

NEEDED = {
    "ssl_keyfile": ("ssl_certfile",),
    "ssl_keydata": ("ssl_certdata",),
    "ssl_password": ("ssl_certfile", "ssl_certdata"),
    "ssl_keystore_password": ("ssl_keystore_location",),
}
"""Options that have no use alone. One of the others is needed with each."""

CONTEXT_PARTS = ("ssl_cafile", "ssl_cadata", *CERTIFICATES, *NEEDED)
"""Options that `ssl_context` replaces, beside `ssl_check_hostname`."""

SASL_OPTIONS = (
    "sasl_mechanism",
    "sasl_username",
    "sasl_password",
    "sasl_token_auth",
    "sasl_oauth_token_provider",
)
DEFAULT_SERVICE = "kafka"


def check_security(config: Any) -> None:
    """Raise `InvalidOption` for security options that contradict or lack each other."""
    protocol = config.security_protocol
    _check_schemes(config.bootstrap_servers, protocol)
    if not config.uses_tls:
        _reject_unused(_tls_options(config), protocol, "'SSL' or 'SASL_SSL'")
    if not config.uses_sasl:
        given = [name for name in SASL_OPTIONS if getattr(config, name)]
        given += _kerberos_options(config)
        _reject_unused(given, protocol, "'SASL_SSL' or 'SASL_PLAINTEXT'")
    _check_tls(config)
    if config.uses_sasl:
        _check_mechanism(config)


def _check_schemes(servers: tuple[str, ...], protocol: str) -> None:
    for server in servers:
        scheme = address_scheme(server)
        if scheme and scheme != protocol:
            raise InvalidOption(
                f"bootstrap server {server!r:.80} contradicts security_protocol, which is"
                f" {protocol!r}: set security_protocol={scheme!r}, or omit {scheme + '://'!r}"
            )


def _reject_unused(names: list[str], protocol: str, needed: str) -> None:
    if names:
        raise InvalidOption(f"{names[0]} needs security_protocol {needed}; it is {protocol!r}")


def _tls_options(config: Any) -> list[str]:
    """Return the options of TLS that are set."""
    given = [name for name in ("ssl_context", *CONTEXT_PARTS) if getattr(config, name) is not None]
    return given if config.ssl_check_hostname else [*given, "ssl_check_hostname"]


def _kerberos_options(config: Any) -> list[str]:
    """Return the options of Kerberos that are set."""
    given = [] if config.sasl_kerberos_domain_name is None else ["sasl_kerberos_domain_name"]
    if config.sasl_kerberos_service_name != DEFAULT_SERVICE:
        given.append("sasl_kerberos_service_name")
    return given


def _check_tls(config: Any) -> None:
    given = _tls_options(config)
    if "ssl_context" in given and len(given) > 1:
        raise InvalidOption(
            f"{given[1]} contradicts ssl_context, which has all settings of TLS: set it in the"
            " context"
        )
    for name in FILES:
        if PEM_MARK in (getattr(config, name) or ""):
            # Not with the value: it can be a private key.
            raise InvalidOption(
                f"{name} must be the path of a file, not PEM text;"
                f" {name.replace('file', 'data')} takes the text"
            )
    certificates = [name for name in CERTIFICATES if name in given]
    if len(certificates) > 1:
        raise InvalidOption(
            f"{certificates[0]} contradicts {certificates[1]}: give one certificate"
        )
    for name, needed in NEEDED.items():
        if name in given and not {*needed} & {*given}:
            raise InvalidOption(f"{name} needs {' or '.join(needed)}")


def _check_mechanism(config: Any) -> None:
    mechanism = config.sasl_mechanism
    if mechanism is None:
        raise InvalidOption(
            f"security_protocol {config.security_protocol!r} needs sasl_mechanism, one of"
            f" {_names(*MECHANISMS)}; the brokers must have it enabled"
        )
    if mechanism == OAUTHBEARER:
        _check_oauthbearer(config)
    elif mechanism == GSSAPI:
        _check_gssapi(config)
    else:
        _check_password(config)
    if mechanism != GSSAPI and (unused := _kerberos_options(config)):
        raise InvalidOption(f"{unused[0]} needs sasl_mechanism {GSSAPI!r}, not {mechanism!r}")
    if config.sasl_token_auth and mechanism not in SCRAM_MECHANISMS:
        raise InvalidOption(
            "sasl_token_auth needs sasl_mechanism 'SCRAM-SHA-256' or 'SCRAM-SHA-512',"
            f" not {mechanism!r}"
        )


def _check_password(config: Any) -> None:
    mechanism = config.sasl_mechanism
    for name in ("sasl_username", "sasl_password"):
        if not getattr(config, name):
            raise InvalidOption(
                f"sasl_mechanism {mechanism!r} needs sasl_username and sasl_password;"
                f" {name} is missing"
            )
    if config.sasl_oauth_token_provider is not None:
        raise InvalidOption(
            f"sasl_oauth_token_provider needs sasl_mechanism {OAUTHBEARER!r}, not {mechanism!r}"
        )
    if "\0" in config.sasl_username:
        raise InvalidOption("sasl_username must not contain a NUL character")
    password = config.sasl_password
    if mechanism == PLAIN and isinstance(password, Secret) and "\0" in password.reveal():
        raise InvalidOption(
            f"sasl_password must not contain a NUL character with sasl_mechanism {PLAIN!r}"
        )


def _check_oauthbearer(config: Any) -> None:
    for name in ("sasl_username", "sasl_password"):
        if getattr(config, name) is not None:
            raise InvalidOption(
                f"{name} is not for sasl_mechanism {OAUTHBEARER!r}, whose token names the user:"
                f" omit it, or set sasl_mechanism to one of {_names(*PASSWORD_MECHANISMS)}"
            )
    if config.sasl_oauth_token_provider is None:
        raise InvalidOption(
            f"sasl_mechanism {OAUTHBEARER!r} needs sasl_oauth_token_provider, an async function"
            " that returns an OAuthBearerToken"
        )


def _check_gssapi(config: Any) -> None:
    for name in ("sasl_username", "sasl_password", "sasl_oauth_token_provider"):
        if getattr(config, name) is not None:
            raise InvalidOption(
                f"{name} is not for sasl_mechanism {GSSAPI!r}, whose ticket names the user: run"
                " kinit, or set KRB5_CLIENT_KTNAME to a keytab"
            )


def _names(*values: str) -> str:
    return ", ".join(map(repr, values))
