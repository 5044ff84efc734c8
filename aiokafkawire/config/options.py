"""Options of the clients.

Names are Kafka's in snake_case; where Kafka's name hides the unit it is appended
(`batch.size` is `batch_size_bytes`). Each client has a frozen class, checked when it is made, and
a TypedDict of the same names for its constructor's keyword arguments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Required, TypedDict, TypeVar, get_args

from aiokafkawire.config.checks import (
    check_acks,
    check_field,
    check_level,
    check_order,
    parse_address,
    parse_bootstrap_servers,
    reset_duration_ms,
)
from aiokafkawire.config.option_hints import option_hint
from aiokafkawire.errors import InvalidOption

__all__ = (
    "MAX_INT32",
    "Acks",
    "ClientConfig",
    "ClientOptions",
    "CompressionName",
    "ConsumerConfig",
    "ConsumerOptions",
    "Option",
    "ProducerConfig",
    "ProducerOptions",
    "list_options",
    "make_config",
    "unknown_option_hint",
)

MAX_INT32 = 2**31 - 1

Acks = Literal["all", -1, 0, 1] | int
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_Config = TypeVar("_Config", bound="ClientConfig")


def _number(
    default: int | None, minimum: int = 0, maximum: int = MAX_INT32, *, meaning: str
) -> Any:
    return _option(default, meaning, range=(minimum, maximum))


def _choice(*allowed: Any, meaning: str) -> Any:
    return _option(allowed[0], meaning, choices=allowed)


def _text(default: str | None, *, meaning: str) -> Any:
    return _option(default, meaning, text=True)


def _switch(default: bool | None, meaning: str) -> Any:
    return _option(default, meaning, switch=True)


def _option(default: Any, meaning: str, **checks: Any) -> Any:
    return dataclasses.field(default=default, metadata={"meaning": meaning, **checks})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Options that every client has. Times are in milliseconds, sizes in bytes."""

    bootstrap_servers: str | Sequence[str] = _option(
        dataclasses.MISSING,
        "Where to find the cluster: `host:port`, several with commas between, or a list of them.",
    )
    client_id: str = _text(
        "aiokafkawire", meaning="How the client is called in the brokers' logs and quotas."
    )
    client_rack: str = _text(
        "", meaning="Rack or zone of this client, for assignors and replicas that are near."
    )
    api_version: str | None = _text(
        None,
        meaning='Kafka release of the brokers, as "0.8.2"; from "0.10" on brokers'
        ' report their versions; below "2.4" the client uses none that is newer than Kafka 2.3, as'
        " some mock brokers need.",
    )
    request_timeout_ms: int = _number(
        30_000, 1, meaning="How long the answer to one request is awaited, before another attempt."
    )
    default_api_timeout_ms: int = _number(
        60_000, 1, meaning="How long a call may take that has no deadline of its own."
    )
    close_timeout_ms: int = _number(
        30_000, meaning="How long closing may take: what is unsent, commits, leaving the group."
    )
    retry_backoff_ms: int = _number(
        100, meaning="Pause before the first repeat of what failed; it doubles, with jitter."
    )
    retry_backoff_max_ms: int = _number(1_000, meaning="The longest pause before a repeat.")
    reconnect_backoff_ms: int = _number(
        50, meaning="Pause before a broker is connected to again; it doubles, with jitter."
    )
    reconnect_backoff_max_ms: int = _number(
        1_000, meaning="The longest pause before a broker is connected to again."
    )
    socket_connection_setup_timeout_ms: int = _number(
        10_000, 1, meaning="How long the first attempt to connect may take; later ones longer."
    )
    socket_connection_setup_timeout_max_ms: int = _number(
        30_000, 1, meaning="The longest that an attempt to connect may take."
    )
    connections_max_idle_ms: int = _number(
        540_000, 1, meaning="A connection without traffic for this time is closed."
    )
    metadata_max_age_ms: int = _number(
        300_000, 1, meaning="The cluster's metadata is refreshed after this time."
    )
    metadata_recovery_rebootstrap_trigger_ms: int = _number(
        300_000,
        meaning="After this time without a reachable broker, `bootstrap_servers` are tried again.",
    )
    max_response_bytes: int = _number(
        100 * 1024 * 1024,
        1024,
        meaning="A larger response is refused and its connection closed"
        " (a consumer's `fetch_max_bytes` comes on top).",
    )
    max_decompressed_bytes: int = _number(
        128 * 1024 * 1024, 1024, meaning="The most that one compressed batch may unpack to."
    )
    allow_auto_create_topics: bool = _switch(
        True, "Whether asking for an unknown topic may make it, where the brokers do that."
    )
    connect_on_start: bool = _switch(
        True,
        "Whether `start` waits for a broker and fails without one; off, it returns at once and the"
        " client connects in the background.",
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_field(field, getattr(self, field.name))
        object.__setattr__(
            self, "bootstrap_servers", parse_bootstrap_servers(self.bootstrap_servers)
        )
        self._check_together()

    def _check_together(self) -> None:
        """Refuse options that contradict each other."""
        for low, high in (
            ("retry_backoff_ms", "retry_backoff_max_ms"),
            ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
            ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
        ):
            check_order(self, low, high)

    @property
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each bootstrap server."""
        return tuple(parse_address(server) for server in self.bootstrap_servers)

    @property
    def max_frame_bytes(self) -> int:
        """The longest response of any kind; one that claims more ends its connection."""
        return self.max_response_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Options of `Producer`; the defaults are the Java producer's."""

    acks: Acks = _option(
        "all", "Who must have a record before it counts: all replicas in sync, the leader, nobody."
    )
    enable_idempotence: bool | None = _switch(
        None,
        "Whether batches are numbered, so that each is written once and in order;"
        " on by default, unless `acks` or the requests in flight rule it out.",
    )
    max_in_flight_requests_per_connection: int = _number(
        5, 1, 1_000, meaning="Requests to one broker that may be unanswered at a time."
    )
    linger_ms: int = _number(5, meaning="How long a batch waits for more records.")
    batch_size_bytes: int = _number(
        16_384, 1, meaning="A batch is sent when it holds this much, before compression."
    )
    buffer_memory_bytes: int = _number(
        32 * 1024 * 1024, 1, meaning="What all records that are not acknowledged yet may take."
    )
    max_request_size_bytes: int = _number(
        1024 * 1024, 1, meaning="The largest record, and the most that one request carries."
    )
    max_block_ms: int = _number(
        60_000, meaning="How long `send` waits for room in the buffer or for an unknown topic."
    )
    delivery_timeout_ms: int = _number(
        120_000, 1, meaning="How long a record may take to be acknowledged, repeats included."
    )
    retries: int = _number(
        MAX_INT32, meaning="How often a batch is repeated, within `delivery_timeout_ms`."
    )
    compression_type: CompressionName = _choice(
        *get_args(CompressionName), meaning="The codec in which batches are sent and stored."
    )
    compression_level: int | None = _number(
        None,
        -131_072,
        22,
        meaning="How hard the codec tries: gzip 1 to 9, lz4 1 to 17, zstd -131072 to 22;"
        " its own default unless set.",
    )
    partitioner: Callable[..., int] | None = _option(
        None,
        "A function that chooses the partition of each record; see `Partitioner`.",
        callable=True,
    )
    partitioner_ignore_keys: bool = _switch(
        False, "Spread records with a key as those without: a key decides nothing."
    )
    partitioner_adaptive_partitioning_enable: bool = _switch(
        True, "Without a key: let partitions with short queues have more records (KIP-794)."
    )
    partitioner_availability_timeout_ms: int = _number(
        0,
        meaning="Without a key: avoid partitions whose broker has accepted nothing for this time;"
        " 0: never.",
    )
    metadata_max_idle_ms: int = _number(
        300_000,
        5_000,
        meaning="How long metadata of a topic that nothing is sent to is kept fresh.",
    )
    transactional_id: str | None = _text(
        None,
        meaning="The name under which transactions are made; of two producers with one name the"
        " older is fenced.",
    )
    transaction_timeout_ms: int = _number(
        60_000,
        1,
        meaning="The coordinator aborts a transaction that is open longer; at most the"
        " brokers' `transaction.max.timeout.ms`.",
    )

    @property
    def required_acks(self) -> int:
        """acks as it stands in a Produce request: -1 for all."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def idempotent(self) -> bool:
        """Return True if the producer is idempotent: the default unless `acks` is lowered."""
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
                raise InvalidOption("transactional_id needs idempotence: enable_idempotence is off")
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
        None, meaning="The group that shares the topics and keeps the offsets; none by default."
    )
    group_instance_id: str | None = _text(
        None,
        meaning="Name of a static member: it keeps its partitions through a restart (KIP-345).",
    )
    session_timeout_ms: int | None = _number(
        None,
        1,
        meaning="A member without a heartbeat for this time leaves the group; 45 s unless set.",
    )
    heartbeat_interval_ms: int = _number(3_000, 1, meaning="Time between two heartbeats.")
    max_poll_interval_ms: int = _number(
        300_000,
        1,
        meaning="A member whose application asks for no records for this time loses its"
        " partitions.",
    )
    rebalance_callback_timeout_ms: int = _number(
        60_000, 1, meaning="How long a method of the `RebalanceListener` may take."
    )
    max_poll_records: int = _number(
        500, 1, meaning="The most records that one `getmany` or one batch gives."
    )
    fetch_min_bytes: int = _number(
        1, meaning="A broker answers a fetch when it has this much, or the wait is over."
    )
    fetch_max_bytes: int = _number(
        50 * 1024 * 1024, 1, meaning="The most that one fetch brings from one broker."
    )
    fetch_max_wait_ms: int = _number(
        500, meaning="How long a broker may wait for `fetch_min_bytes`."
    )
    max_partition_fetch_bytes: int = _number(
        1024 * 1024, 1, meaning="The most that one fetch brings of one partition."
    )
    enable_auto_commit: bool = _switch(
        True, "Whether what was processed is committed by itself, also before a rebalance."
    )
    auto_commit_interval_ms: int = _number(5_000, 1, meaning="Time between two such commits.")
    auto_offset_reset: str = _option(
        "latest",
        "Where to begin without a committed offset, or where the log has not the offset any more:"
        ' "earliest", "latest", "by_duration:PnDTnHnMnS" (that long ago, as "by_duration:P7D"), or'
        ' "none" (`NoOffsetForPartition` is raised).',
        text=True,
    )
    offsets_storage: Literal["kafka", "zookeeper"] = _choice(
        "kafka", "zookeeper", meaning="Where offsets are committed to (ZooKeeper: Kafka 0.8.1-2.8)."
    )
    check_crcs: bool = _switch(True, "Whether the checksum of each batch is verified.")
    isolation_level: Literal["read_uncommitted", "read_committed"] = _choice(
        "read_uncommitted",
        "read_committed",
        meaning="Whether records of open and aborted transactions are given or passed over.",
    )
    partition_assignment_strategy: Sequence[Any] = _option(
        ("range", "cooperative-sticky"),
        "The assignors that this member can work with, by name or as `Assignor`s.",
    )

    @property
    def effective_session_timeout_ms(self) -> int:
        """The session timeout to ask for: Java's 45 s unless set."""
        return 45_000 if self.session_timeout_ms is None else self.session_timeout_ms

    @property
    def max_frame_bytes(self) -> int:
        """A fetch brings up to `fetch_max_bytes`, and one batch that is as long as any response."""
        return self.max_response_bytes + self.fetch_max_bytes

    def _check_together(self) -> None:
        super(ConsumerConfig, self)._check_together()
        policy = self.auto_offset_reset
        if policy not in ("earliest", "latest", "none") and reset_duration_ms(policy) is None:
            raise InvalidOption(
                "auto_offset_reset must be 'earliest', 'latest', 'none' or 'by_duration:PnDTnHnMnS'"
                f" (as 'by_duration:P7D'), not {policy!r}"
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
    """The keyword arguments of every client; see `ClientConfig`."""

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


class ProducerOptions(ClientOptions, total=False):
    """The keyword arguments of `Producer`; see `ProducerConfig`."""

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
    """The keyword arguments of `Consumer`; see `ConsumerConfig`."""

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
        InvalidOption: An option is unknown or has a wrong value. For an unknown one the text says
            which option was meant, also for names of other Kafka clients.
    """
    known = [field.name for field in dataclasses.fields(config_class)]
    for name in options:
        if name not in known:
            raise InvalidOption(f"unknown option {name!r}{unknown_option_hint(name, config_class)}")
    if "bootstrap_servers" not in options:
        raise InvalidOption("bootstrap_servers is missing: give 'host:port', or several of them")
    return config_class(**options)


def unknown_option_hint(name: str, config_class: type[Any]) -> str:
    """Return the end of a sentence about an option that `config_class` does not have."""
    return option_hint(
        name,
        [field.name for field in dataclasses.fields(config_class)],
        {
            client: [field.name for field in dataclasses.fields(other)]
            for client, other in (("Producer", ProducerConfig), ("Consumer", ConsumerConfig))
        },
    )


class Option(NamedTuple):
    """One option as it is declared.

    `default` is `dataclasses.MISSING` for what must be given; `range` and `unit` are those of a
    number.
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
    """The options of a class, in the order of their declaration, those of its base first."""
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
    return {"Acks": "'all' | -1 | 0 | 1"}.get(str(field.type), str(field.type))


def _list_options(options: type, config_class: type[ClientConfig]) -> None:
    """Add the options to the docstring that help() shows."""
    lines = "\n".join(f"    {option}" for option in list_options(config_class))
    options.__doc__ = f"{options.__doc__}\n\n{lines}"


_list_options(ClientOptions, ClientConfig)
_list_options(ProducerOptions, ProducerConfig)
_list_options(ConsumerOptions, ConsumerConfig)
