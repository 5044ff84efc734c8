"""Options of all clients."""

from __future__ import annotations

import dataclasses
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict, get_args

from aiokafkawire.config.checks import (
    SECURITY_PROTOCOLS,
    check_field,
    check_order,
    parse_address,
    parse_bootstrap_servers,
)
from aiokafkawire.config.option_fields import (
    append_options,
    choice_option,
    number_option,
    option,
    path_option,
    secret_option,
    switch_option,
    text_option,
)
from aiokafkawire.config.secret import Secret
from aiokafkawire.config.security_checks import check_security
from aiokafkawire.hooks import Hook

__all__ = (
    "ClientConfig",
    "ClientOptions",
    "CommonOptions",
    "FilePath",
    "SaslMechanism",
    "SecretOrCallable",
    "SecurityProtocol",
)

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
FilePath = str | os.PathLike[str]
SecretOrCallable = str | Secret | Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Options of all clients. Times are in milliseconds, sizes in bytes."""

    bootstrap_servers: str | Sequence[str] = option(
        dataclasses.MISSING,
        "Addresses of brokers to connect to first: `host:port`, comma-separated, or a list.",
    )
    client_id: str = text_option(
        "aiokafkawire", meaning="Client name used in broker logs and quotas."
    )
    client_rack: str = text_option(
        "",
        meaning="Rack or zone of this client, for rack-aware assignors, for fetching from the"
        " closest replica (KIP-392), and for `partitioner_rack_aware` of the producer.",
    )
    api_version: str | None = text_option(
        None,
        meaning='Kafka release of the brokers, such as "0.8.2". Brokers from "0.10" on report their'
        ' versions. Below "2.4", the client uses no API version that is newer than Kafka 2.3, which'
        " some mock brokers need.",
    )
    request_timeout_ms: int = number_option(
        30_000,
        1,
        meaning="Time to wait for the response to a request before it fails or is retried.",
    )
    default_api_timeout_ms: int = number_option(
        60_000, 1, meaning="Timeout of calls that have no timeout of their own."
    )
    close_timeout_ms: int = number_option(
        30_000, meaning="Time to close the client: send buffered records, commit, leave the group."
    )
    retry_backoff_ms: int = number_option(
        100, meaning="Backoff before the first retry of a request; it doubles, with jitter."
    )
    retry_backoff_max_ms: int = number_option(1_000, meaning="Maximum backoff before a retry.")
    reconnect_backoff_ms: int = number_option(
        50, meaning="Backoff before the first reconnect to a broker; it doubles, with jitter."
    )
    reconnect_backoff_max_ms: int = number_option(
        1_000, meaning="Maximum backoff before a reconnect."
    )
    socket_connection_setup_timeout_ms: int = number_option(
        10_000,
        1,
        meaning="Timeout of the first attempt to connect; it grows with each failed attempt.",
    )
    socket_connection_setup_timeout_max_ms: int = number_option(
        30_000, 1, meaning="Maximum timeout of an attempt to connect."
    )
    connections_max_idle_ms: int = number_option(
        540_000, 1, meaning="Close a connection after this time without traffic."
    )
    metadata_max_age_ms: int = number_option(
        300_000, 1, meaning="Refresh the metadata after this time, even without a change."
    )
    metadata_recovery_rebootstrap_trigger_ms: int = number_option(
        300_000,
        meaning="Time without a reachable broker before the client returns to `bootstrap_servers`"
        " (KIP-1102).",
    )
    metadata_cluster_check_enable: bool = switch_option(
        True,
        "Send cluster and node id when connecting, so that brokers of Kafka 4.4 and later refuse a"
        " misrouted connection (KIP-1242). The client then returns to `bootstrap_servers`.",
    )
    max_response_bytes: int = number_option(
        100 * 1024 * 1024,
        1024,
        meaning="Maximum size of a response; the connection closes on a larger one. A consumer adds"
        " `fetch_max_bytes`.",
    )
    max_decompressed_bytes: int = number_option(
        128 * 1024 * 1024, 1024, meaning="Maximum decompressed size of one batch."
    )
    allow_auto_create_topics: bool = switch_option(
        True,
        "Let a metadata request create an unknown topic, if the brokers have"
        " `auto.create.topics.enable`.",
    )
    connect_on_start: bool = switch_option(
        True,
        "Wait for a broker in `start`, and fail without one. If False, `start` returns at once and"
        " the client connects in the background.",
    )
    bootstrap_refused_timeout_ms: int | None = number_option(
        None,
        meaning="Time until `start` fails while every address of `bootstrap_servers` refuses"
        " connections, or has a name that cannot be resolved. Default: `default_api_timeout_ms`.",
    )
    hooks: Sequence[Hook] = option(
        (),
        "Objects that the client calls when something happens, for traces and metrics: see"
        " `aiokafkawire.hooks`.",
        hooks=True,
    )
    enable_metrics_push: bool = switch_option(
        True,
        "Push metrics of the client to brokers that collect them (KIP-714).",
    )
    security_protocol: SecurityProtocol = choice_option(
        *get_args(SecurityProtocol),
        meaning="Protocol of the brokers' listener: TLS with `SSL` and `SASL_SSL`, authentication"
        " with `SASL_PLAINTEXT` and `SASL_SSL`.",
    )
    ssl_context: ssl.SSLContext | None = option(
        None,
        "TLS settings as a whole, instead of the other `ssl_` options.",
        instance=ssl.SSLContext,
    )
    ssl_cafile: FilePath | None = path_option(
        "PEM file of the authorities that sign the brokers' certificates. Default: those"
        " that the system trusts.",
    )
    ssl_cadata: str | None = option(
        None, "The same as PEM text. With both, the authorities of both are trusted.", pem=True
    )
    ssl_certfile: FilePath | None = path_option(
        "PEM file of the client's certificate and its chain; with `ssl_keyfile` or the key"
        " in the same file.",
    )
    ssl_keyfile: FilePath | None = path_option("PEM file of the client's private key.")
    ssl_certdata: str | Secret | None = secret_option(
        meaning="The client's certificate and its chain as PEM text; with `ssl_keydata` or the key"
        " in the same text.",
        pem=True,
    )
    ssl_keydata: str | Secret | None = secret_option(
        meaning="The client's private key as PEM text.", pem=True
    )
    ssl_password: str | Secret | None = secret_option(
        meaning="Password of an encrypted private key."
    )
    ssl_keystore_location: FilePath | None = path_option(
        "PKCS12 file of the client's certificate, its chain and its key, instead of PEM."
        " Needs `aiokafkawire[tls]`.",
    )
    ssl_keystore_password: str | Secret | None = secret_option(
        meaning="Password of `ssl_keystore_location`."
    )
    ssl_check_hostname: bool = switch_option(
        True, "Verify that the certificate of a broker is for its host name."
    )
    sasl_mechanism: SaslMechanism | None = option(
        None, "Mechanism of the authentication.", choices=get_args(SaslMechanism)
    )
    sasl_username: str | None = text_option(
        None, meaning="User name for PLAIN and SCRAM, or the id of a delegation token."
    )
    sasl_password: SecretOrCallable | None = secret_option(
        meaning="Password for PLAIN and SCRAM, or an async function that returns it. It is called"
        " for each authentication, so that passwords can change.",
        may_be_callable=True,
    )
    sasl_token_auth: bool = switch_option(
        False,
        "`sasl_username` and `sasl_password` are the id and the HMAC of a delegation token"
        " (KIP-48); with SCRAM.",
    )
    sasl_oauth_token_provider: Callable[[], Awaitable[Any]] | None = option(
        None,
        "Async function that returns an `OAuthBearerToken` for OAUTHBEARER.",
        callable=True,
    )

    sasl_kerberos_service_name: str = text_option(
        "kafka", meaning="Service in the Kerberos principal of the brokers, for GSSAPI."
    )
    sasl_kerberos_domain_name: str | None = text_option(
        None,
        meaning="Host in the Kerberos principal of the brokers. Default: the name of each broker.",
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            check_field(field, value)
            if "path" in field.metadata and value is not None:
                object.__setattr__(self, field.name, os.fspath(value))
            if "hooks" in field.metadata:
                object.__setattr__(self, field.name, tuple(value))
            if "secret" in field.metadata and isinstance(value, str):
                object.__setattr__(self, field.name, Secret(value))
        object.__setattr__(
            self, "bootstrap_servers", parse_bootstrap_servers(self.bootstrap_servers)
        )
        self._check_together()

    def _check_together(self) -> None:
        """Raise `InvalidOption` for options that contradict each other."""
        for low, high in (
            ("retry_backoff_ms", "retry_backoff_max_ms"),
            ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
            ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
        ):
            check_order(self, low, high)
        check_security(self)

    @property
    def uses_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.security_protocol in {"SSL", "SASL_SSL"}

    @property
    def uses_sasl(self) -> bool:
        """True if connections are authenticated by SASL."""
        return self.security_protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    @property
    def uses_controllers(self) -> bool:
        """True if the client talks to controllers instead of brokers (KIP-919)."""
        return False

    @property
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each bootstrap server."""
        return tuple(parse_address(server, SECURITY_PROTOCOLS) for server in self.bootstrap_servers)

    @property
    def max_frame_bytes(self) -> int:
        """Maximum size of a response frame."""
        return self.max_response_bytes


class CommonOptions(TypedDict, total=False):
    """Keyword arguments of all clients but the addresses; see `ClientConfig`."""

    client_id: str
    client_rack: str
    api_version: str | None
    request_timeout_ms: int
    default_api_timeout_ms: int
    close_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    metadata_recovery_rebootstrap_trigger_ms: int
    metadata_cluster_check_enable: bool
    max_response_bytes: int
    max_decompressed_bytes: int
    allow_auto_create_topics: bool
    connect_on_start: bool
    bootstrap_refused_timeout_ms: int | None
    hooks: Sequence[Hook]
    enable_metrics_push: bool
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    ssl_cafile: FilePath | None
    ssl_cadata: str | None
    ssl_certfile: FilePath | None
    ssl_keyfile: FilePath | None
    ssl_certdata: str | Secret | None
    ssl_keydata: str | Secret | None
    ssl_password: str | Secret | None
    ssl_keystore_location: FilePath | None
    ssl_keystore_password: str | Secret | None
    ssl_check_hostname: bool
    sasl_mechanism: SaslMechanism | None
    sasl_username: str | None
    sasl_password: SecretOrCallable | None
    sasl_token_auth: bool
    sasl_oauth_token_provider: Callable[[], Awaitable[Any]] | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None


class _Addresses(TypedDict):
    bootstrap_servers: Required[str | Sequence[str]]


class ClientOptions(_Addresses, CommonOptions, total=False):
    """Keyword arguments of all clients; see `ClientConfig`."""


append_options(ClientOptions, ClientConfig)
