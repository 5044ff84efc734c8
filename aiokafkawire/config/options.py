"""Options of the clients.

Names are Kafka's in snake_case, with the unit appended where Kafka's name lacks it (`batch.size` is
`batch_size_bytes`). Each client has a frozen class, which validates its values, and a TypedDict of
the same names for the keyword arguments of its constructor.
"""

from __future__ import annotations

import dataclasses
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Required, TypedDict, TypeVar, get_args

from aiokafkawire.config.checks import (
    SECURITY_PROTOCOLS,
    check_acks,
    check_field,
    check_level,
    check_order,
    parse_address,
    parse_bootstrap_servers,
    reset_duration_ms,
)
from aiokafkawire.config.option_hints import option_hint
from aiokafkawire.config.secret import Secret
from aiokafkawire.config.security_checks import check_security
from aiokafkawire.errors import InvalidOption

__all__ = (
    "MAX_INT32",
    "Acks",
    "ClientConfig",
    "ClientOptions",
    "CompressionName",
    "ConsumerConfig",
    "ConsumerOptions",
    "FilePath",
    "Option",
    "ProducerConfig",
    "ProducerOptions",
    "SaslMechanism",
    "SecretOrCallable",
    "SecurityProtocol",
    "list_options",
    "make_config",
    "unknown_option_text",
)

MAX_INT32 = 2**31 - 1

Acks = Literal["all", -1, 0, 1] | int
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
FilePath = str | os.PathLike[str]
SecretOrCallable = str | Secret | Callable[[], Awaitable[str]]

_Config = TypeVar("_Config", bound="ClientConfig")


def _number(
    default: int | None, minimum: int = 0, maximum: int = MAX_INT32, *, meaning: str
) -> Any:
    return _option(default, meaning, range=(minimum, maximum))


def _choice(*allowed: Any, meaning: str) -> Any:
    return _option(allowed[0], meaning, choices=allowed)


def _text(default: str | None, *, meaning: str) -> Any:
    return _option(default, meaning, text=True)


def _path(meaning: str) -> Any:
    return _option(None, meaning, path=True)


def _switch(default: bool | None, meaning: str) -> Any:
    return _option(default, meaning, switch=True)


def _secret(*, meaning: str, may_be_callable: bool = False, pem: bool = False) -> Any:
    return _option(None, meaning, secret=True, may_be_callable=may_be_callable, pem=pem)


def _option(default: Any, meaning: str, **checks: Any) -> Any:
    return dataclasses.field(default=default, metadata={"meaning": meaning, **checks})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Options of all clients. Times are in milliseconds, sizes in bytes."""

    bootstrap_servers: str | Sequence[str] = _option(
        dataclasses.MISSING,
        "Addresses of brokers to connect to first: `host:port`, comma-separated, or a list.",
    )
    client_id: str = _text("aiokafkawire", meaning="Client name used in broker logs and quotas.")
    client_rack: str = _text(
        "",
        meaning="Rack or zone of this client, for rack-aware assignors and for fetching from the"
        " closest replica (KIP-392).",
    )
    api_version: str | None = _text(
        None,
        meaning='Kafka release of the brokers, such as "0.8.2". Brokers from "0.10" on report their'
        ' versions. Below "2.4", the client uses no API version that is newer than Kafka 2.3, which'
        " some mock brokers need.",
    )
    request_timeout_ms: int = _number(
        30_000,
        1,
        meaning="Time to wait for the response to a request before it fails or is retried.",
    )
    default_api_timeout_ms: int = _number(
        60_000, 1, meaning="Timeout of calls that have no timeout of their own."
    )
    close_timeout_ms: int = _number(
        30_000, meaning="Time to close the client: send buffered records, commit, leave the group."
    )
    retry_backoff_ms: int = _number(
        100, meaning="Backoff before the first retry of a request; it doubles, with jitter."
    )
    retry_backoff_max_ms: int = _number(1_000, meaning="Maximum backoff before a retry.")
    reconnect_backoff_ms: int = _number(
        50, meaning="Backoff before the first reconnect to a broker; it doubles, with jitter."
    )
    reconnect_backoff_max_ms: int = _number(1_000, meaning="Maximum backoff before a reconnect.")
    socket_connection_setup_timeout_ms: int = _number(
        10_000,
        1,
        meaning="Timeout of the first attempt to connect; it grows with each failed attempt.",
    )
    socket_connection_setup_timeout_max_ms: int = _number(
        30_000, 1, meaning="Maximum timeout of an attempt to connect."
    )
    connections_max_idle_ms: int = _number(
        540_000, 1, meaning="Close a connection after this time without traffic."
    )
    metadata_max_age_ms: int = _number(
        300_000, 1, meaning="Refresh the metadata after this time, even without a change."
    )
    metadata_recovery_rebootstrap_trigger_ms: int = _number(
        300_000,
        meaning="Time without a reachable broker before the client returns to `bootstrap_servers`"
        " (KIP-1102).",
    )
    max_response_bytes: int = _number(
        100 * 1024 * 1024,
        1024,
        meaning="Maximum size of a response; the connection closes on a larger one. A consumer adds"
        " `fetch_max_bytes`.",
    )
    max_decompressed_bytes: int = _number(
        128 * 1024 * 1024, 1024, meaning="Maximum decompressed size of one batch."
    )
    allow_auto_create_topics: bool = _switch(
        True,
        "Let a metadata request create an unknown topic, if the brokers have"
        " `auto.create.topics.enable`.",
    )
    connect_on_start: bool = _switch(
        True,
        "Wait for a broker in `start`, and fail without one. If False, `start` returns at once and"
        " the client connects in the background.",
    )
    security_protocol: SecurityProtocol = _choice(
        *get_args(SecurityProtocol),
        meaning="Protocol of the brokers' listener: TLS with `SSL` and `SASL_SSL`, authentication"
        " with `SASL_PLAINTEXT` and `SASL_SSL`.",
    )
    ssl_context: ssl.SSLContext | None = _option(
        None,
        "TLS settings as a whole, instead of the other `ssl_` options.",
        instance=ssl.SSLContext,
    )
    ssl_cafile: FilePath | None = _path(
        "PEM file of the authorities that sign the brokers' certificates. Default: those"
        " that the system trusts.",
    )
    ssl_cadata: str | None = _option(
        None, "The same as PEM text. With both, the authorities of both are trusted.", pem=True
    )
    ssl_certfile: FilePath | None = _path(
        "PEM file of the client's certificate and its chain; with `ssl_keyfile` or the key"
        " in the same file.",
    )
    ssl_keyfile: FilePath | None = _path("PEM file of the client's private key.")
    ssl_certdata: str | Secret | None = _secret(
        meaning="The client's certificate and its chain as PEM text; with `ssl_keydata` or the key"
        " in the same text.",
        pem=True,
    )
    ssl_keydata: str | Secret | None = _secret(
        meaning="The client's private key as PEM text.", pem=True
    )
    ssl_password: str | Secret | None = _secret(meaning="Password of an encrypted private key.")
    ssl_keystore_location: FilePath | None = _path(
        "PKCS12 file of the client's certificate, its chain and its key, instead of PEM."
        " Needs `aiokafkawire[tls]`.",
    )
    ssl_keystore_password: str | Secret | None = _secret(
        meaning="Password of `ssl_keystore_location`."
    )
    ssl_check_hostname: bool = _switch(
        True, "Verify that the certificate of a broker is for its host name."
    )
    sasl_mechanism: SaslMechanism | None = _option(
        None, "Mechanism of the authentication.", choices=get_args(SaslMechanism)
    )
    sasl_username: str | None = _text(
        None, meaning="User name for PLAIN and SCRAM, or the id of a delegation token."
    )
    sasl_password: SecretOrCallable | None = _secret(
        meaning="Password for PLAIN and SCRAM, or an async function that returns it. It is called"
        " for each authentication, so that passwords can change.",
        may_be_callable=True,
    )
    sasl_token_auth: bool = _switch(
        False,
        "`sasl_username` and `sasl_password` are the id and the HMAC of a delegation token"
        " (KIP-48); with SCRAM.",
    )
    sasl_oauth_token_provider: Callable[[], Awaitable[Any]] | None = _option(
        None,
        "Async function that returns an `OAuthBearerToken` for OAUTHBEARER.",
        callable=True,
    )

    sasl_kerberos_service_name: str = _text(
        "kafka", meaning="Service in the Kerberos principal of the brokers, for GSSAPI."
    )
    sasl_kerberos_domain_name: str | None = _text(
        None,
        meaning="Host in the Kerberos principal of the brokers. Default: the name of each broker.",
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            check_field(field, value)
            if "path" in field.metadata and value is not None:
                object.__setattr__(self, field.name, os.fspath(value))
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
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each bootstrap server."""
        return tuple(parse_address(server, SECURITY_PROTOCOLS) for server in self.bootstrap_servers)

    @property
    def max_frame_bytes(self) -> int:
        """Maximum size of a response frame."""
        return self.max_response_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Options of `Producer`; the defaults are the Java producer's."""

    acks: Acks = _option(
        "all",
        "Required acknowledgements of a record: all in-sync replicas, the leader (1), none (0).",
    )
    enable_idempotence: bool | None = _switch(
        None,
        "Number the batches, so that each is written exactly once and in order. On by default,"
        " unless `acks` or `max_in_flight_requests_per_connection` rules it out.",
    )
    max_in_flight_requests_per_connection: int = _number(
        5, 1, 1_000, meaning="Maximum number of requests in flight to one broker."
    )
    linger_ms: int = _number(5, meaning="Time that a batch waits for more records.")
    batch_size_bytes: int = _number(
        16_384, 1, meaning="Size before compression at which a batch is full and is sent."
    )
    buffer_memory_bytes: int = _number(
        32 * 1024 * 1024, 1, meaning="Memory for all records that are not acknowledged yet."
    )
    max_request_size_bytes: int = _number(
        1024 * 1024, 1, meaning="Maximum size of a record, and of a Produce request."
    )
    max_block_ms: int = _number(
        60_000, meaning="Time that `send` waits for buffer memory or for the metadata of a topic."
    )
    delivery_timeout_ms: int = _number(
        120_000,
        1,
        meaning="Time from `send` to the acknowledgement of a record, including retries.",
    )
    retries: int = _number(
        MAX_INT32, meaning="Maximum number of retries of a batch within `delivery_timeout_ms`."
    )
    compression_type: CompressionName = _choice(
        *get_args(CompressionName), meaning="Compression codec of batches."
    )
    compression_level: int | None = _number(
        None,
        -131_072,
        22,
        meaning="Compression level: gzip 1 to 9, lz4 1 to 17, zstd -131072 to 22. Default: that of"
        " the codec.",
    )
    partitioner: Callable[..., int] | None = _option(
        None,
        "Function that returns the partition of a record; see `Partitioner`.",
        callable=True,
    )
    partitioner_ignore_keys: bool = _switch(False, "Ignore keys when choosing a partition.")
    partitioner_adaptive_partitioning_enable: bool = _switch(
        True, "For records without a key: send more records to faster brokers (KIP-794)."
    )
    partitioner_availability_timeout_ms: int = _number(
        0,
        meaning="For records without a key: avoid a broker that has accepted no batch for this time"
        " (KIP-794). 0 turns it off.",
    )
    metadata_max_idle_ms: int = _number(
        300_000,
        5_000,
        meaning="Time after the last `send` to a topic during which its metadata is refreshed.",
    )
    transactional_id: str | None = _text(
        None,
        meaning="Id of a transactional producer. A newer producer with the same id fences the older"
        " one.",
    )
    transaction_timeout_ms: int = _number(
        60_000,
        1,
        meaning="The coordinator aborts a transaction that is open for longer. At most the brokers'"
        " `transaction.max.timeout.ms`.",
    )

    @property
    def required_acks(self) -> int:
        """`acks` as in a Produce request: -1 for `all`."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def idempotent(self) -> bool:
        """True if the producer is idempotent: set, or by default with `acks="all"`."""
        if self.enable_idempotence is None:
            if self.transactional_id is not None:
                return True
            return self.required_acks == -1 and self.max_in_flight_requests_per_connection <= 5
        return self.enable_idempotence

    def _check_together(self) -> None:
        super(ProducerConfig, self)._check_together()
        check_acks(self.acks, self.api_version)
        if self.enable_idempotence:
            self._check_idempotence("enable_idempotence=True")
        if self.transactional_id is not None:
            if self.enable_idempotence is False:
                raise InvalidOption("transactional_id needs enable_idempotence, which is False")
            self._check_idempotence("transactional_id")
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise InvalidOption(
                f"delivery_timeout_ms ({self.delivery_timeout_ms}) must be at least linger_ms +"
                f" request_timeout_ms ({self.linger_ms + self.request_timeout_ms})"
            )
        if self.compression_level is not None:
            check_level(self.compression_type, self.compression_level)

    def _check_idempotence(self, who: str) -> None:
        if self.required_acks != -1:
            raise InvalidOption(f"{who} needs acks='all', but acks is {self.acks!r}")
        if self.max_in_flight_requests_per_connection > 5:
            raise InvalidOption(
                f"{who} allows at most 5 for max_in_flight_requests_per_connection,"
                f" not {self.max_in_flight_requests_per_connection}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Options of `Consumer`; the defaults are the Java consumer's."""

    group_id: str | None = _text(
        None,
        meaning="Consumer group that shares partitions and stores offsets; none by default.",
    )
    group_instance_id: str | None = _text(
        None,
        meaning="Id of a static member, which keeps its partitions across a restart (KIP-345).",
    )
    session_timeout_ms: int | None = _number(
        None,
        1,
        meaning="The coordinator removes a member without a heartbeat for this time; default 45 s.",
    )
    heartbeat_interval_ms: int = _number(3_000, 1, meaning="Interval between heartbeats.")
    max_poll_interval_ms: int = _number(
        300_000,
        1,
        meaning="Maximum time between two calls for records; after it, the member loses its"
        " partitions.",
    )
    rebalance_callback_timeout_ms: int = _number(
        60_000, 1, meaning="Timeout of a method of the `RebalanceListener`."
    )
    max_poll_records: int = _number(
        500, 1, meaning="Maximum number of records that one `getmany` call or batch returns."
    )
    fetch_min_bytes: int = _number(
        1, meaning="Size of data at which a broker responds to a fetch before `fetch_max_wait_ms`."
    )
    fetch_max_bytes: int = _number(
        50 * 1024 * 1024, 1, meaning="Maximum size of one fetch response."
    )
    fetch_max_wait_ms: int = _number(
        500, meaning="Maximum time that a broker waits for `fetch_min_bytes`."
    )
    max_partition_fetch_bytes: int = _number(
        1024 * 1024, 1, meaning="Maximum size of one partition in a fetch response."
    )
    enable_auto_commit: bool = _switch(
        True, "Commit processed records periodically, before a rebalance and on close."
    )
    auto_commit_interval_ms: int = _number(5_000, 1, meaning="Interval between automatic commits.")
    auto_offset_reset: str = _option(
        "latest",
        "Start position without a committed offset, or if the position is out of range:"
        ' "earliest", "latest", "by_duration:PnDTnHnMnS" (that long ago, such as "by_duration:P7D";'
        ' KIP-1106), or "none" (raise `NoOffsetForPartition`).',
        text=True,
    )
    offsets_storage: Literal["kafka", "zookeeper"] = _choice(
        "kafka", "zookeeper", meaning="Storage of committed offsets. ZooKeeper: Kafka 0.8.1 to 2.8."
    )
    check_crcs: bool = _switch(True, "Verify the CRC-32C of each batch.")
    isolation_level: Literal["read_uncommitted", "read_committed"] = _choice(
        "read_uncommitted",
        "read_committed",
        meaning="With `read_committed`, skip records of open and aborted transactions.",
    )
    partition_assignment_strategy: Sequence[Any] = _option(
        ("range", "cooperative-sticky"),
        "Assignors that this member supports, in order of preference: names or `Assignor`s.",
    )

    @property
    def effective_session_timeout_ms(self) -> int:
        """Session timeout in milliseconds: Java's default of 45 s unless set."""
        return 45_000 if self.session_timeout_ms is None else self.session_timeout_ms

    @property
    def max_frame_bytes(self) -> int:
        """Maximum size of a response frame: `fetch_max_bytes` plus one batch of any size."""
        return self.max_response_bytes + self.fetch_max_bytes

    def _check_together(self) -> None:
        super(ConsumerConfig, self)._check_together()
        policy = self.auto_offset_reset
        if policy not in ("earliest", "latest", "none") and reset_duration_ms(policy) is None:
            raise InvalidOption(
                "auto_offset_reset must be 'earliest', 'latest', 'none' or 'by_duration:PnDTnHnMnS'"
                f" (such as 'by_duration:P7D'), not {policy!r}"
            )
        if self.heartbeat_interval_ms >= self.effective_session_timeout_ms:
            raise InvalidOption(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be below"
                f" session_timeout_ms ({self.effective_session_timeout_ms})"
            )
        if self.group_instance_id is not None and self.group_id is None:
            raise InvalidOption("group_instance_id needs a group_id")
        strategy = self.partition_assignment_strategy
        if isinstance(strategy, bytes) or not isinstance(strategy, Sequence):
            raise InvalidOption(
                f"partition_assignment_strategy must be a list of assignors, not {strategy!r:.80}"
            )
        if not strategy:
            raise InvalidOption("partition_assignment_strategy must name at least one assignor")


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of all clients; see `ClientConfig`."""

    bootstrap_servers: Required[str | Sequence[str]]
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
    max_response_bytes: int
    max_decompressed_bytes: int
    allow_auto_create_topics: bool
    connect_on_start: bool
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


class ProducerOptions(ClientOptions, total=False):
    """Keyword arguments of `Producer`; see `ProducerConfig`."""

    acks: Acks
    enable_idempotence: bool | None
    max_in_flight_requests_per_connection: int
    linger_ms: int
    batch_size_bytes: int
    buffer_memory_bytes: int
    max_request_size_bytes: int
    max_block_ms: int
    delivery_timeout_ms: int
    retries: int
    compression_type: CompressionName
    compression_level: int | None
    partitioner: Callable[..., int] | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    metadata_max_idle_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int


class ConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of `Consumer`; see `ConsumerConfig`."""

    group_id: str | None
    group_instance_id: str | None
    session_timeout_ms: int | None
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    rebalance_callback_timeout_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    offsets_storage: Literal["kafka", "zookeeper"]
    check_crcs: bool
    isolation_level: Literal["read_uncommitted", "read_committed"]
    partition_assignment_strategy: Sequence[Any]


def make_config(config_class: type[_Config], options: Mapping[str, Any]) -> _Config:
    """Build an option class from keyword arguments.

    Raises:
        InvalidOption: An option is unknown or its value is invalid. For an unknown option, the
            message suggests the right name, also for names of other Kafka clients.
    """
    known = [field.name for field in dataclasses.fields(config_class)]
    for name in options:
        if name not in known:
            raise InvalidOption(unknown_option_text(name, config_class), option=name)
    if "bootstrap_servers" not in options:
        raise InvalidOption("bootstrap_servers is missing: pass 'host:port' or a list of them")
    return config_class(**options)


def unknown_option_text(name: str, config_class: type[Any], others: str = "") -> str:
    """Return the error message about an option that `config_class` lacks.

    Args:
        name: The option.
        config_class: Declares the options of the client.
        others: End of the text if there is no hint.
    """
    known = [field.name for field in dataclasses.fields(config_class)]
    clients = {
        client: [field.name for field in dataclasses.fields(other)]
        for client, other in (("producer", ProducerConfig), ("consumer", ConsumerConfig))
    }
    owner = next((client for client, options in clients.items() if name in options), None)
    if owner is not None:
        asked = config_class.__name__.removesuffix("Config").lower()
        return f"{name!r} is a {owner} option, not one of a {asked}"
    return f"unknown option {name!r}{option_hint(name, known, clients) or others}"


class Option(NamedTuple):
    """Declaration of an option.

    `default` is `dataclasses.MISSING` for a required option; `range` and `unit` apply to numbers.
    """

    name: str
    kind: str
    default: Any
    range: tuple[int, int] | None
    unit: str
    meaning: str

    def __str__(self) -> str:
        default = "" if self.default is dataclasses.MISSING else f", default {self.default!r}"
        unit = f" {self.unit}" if self.unit and self.default is not None else ""
        return f"{self.name} ({self.kind}{default}{unit}): {self.meaning}"


def list_options(config_class: type[Any]) -> list[Option]:
    """Return the options of a class in declaration order, those of its base class first."""
    return [
        Option(
            field.name,
            _kind(field),
            field.default,
            field.metadata.get("range"),
            {"ms": "ms", "bytes": "bytes"}.get(field.name.rpartition("_")[2], ""),
            field.metadata["meaning"],
        )
        for field in dataclasses.fields(config_class)
    ]


def _kind(field: dataclasses.Field[Any]) -> str:
    if "choices" in field.metadata:
        return " | ".join(map(repr, field.metadata["choices"]))
    kind = str(field.type)
    return {
        "Acks": "'all' | -1 | 0 | 1",
        "FilePath | None": "str | os.PathLike | None",
        "SecretOrCallable | None": "str | Secret | async function | None",
    }.get(kind, kind)


def _list_options(options: type, config_class: type[ClientConfig]) -> None:
    """Add the options to the docstring for `help()`."""
    lines = "\n".join(f"    {option}" for option in list_options(config_class))
    options.__doc__ = f"{options.__doc__}\n\n{lines}"


_list_options(ClientOptions, ClientConfig)
_list_options(ProducerOptions, ProducerConfig)
_list_options(ConsumerOptions, ConsumerConfig)
