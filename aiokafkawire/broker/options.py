"""What a broker can be told when it is made."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from aiokafkawire.config import check_field, check_number, check_text, options_of
from aiokafkawire.errors import InvalidOption

__all__ = ("MAX_NODES", "BrokerConfig", "BrokerOptions", "check_arguments")

MAX_NODES = 64
"""Nodes in one process; more would only be more sockets."""

MAX_PORT = 65_535

KIB, MIB, GIB = 2**10, 2**20, 2**30
MAX_INT64 = 2**63 - 1


def _number(default: int | None, minimum: int = 1, *, meaning: str) -> Any:
    return dataclasses.field(
        default=default, metadata={"meaning": meaning, "range": (minimum, MAX_INT64)}
    )


def _switch(default: bool, *, meaning: str) -> Any:
    return dataclasses.field(default=default, metadata={"meaning": meaning, "switch": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Kafka's names in snake_case with the unit appended, and Kafka's defaults unless said.

    Where `as_of` names an older release, options that are not given have its defaults.
    """

    as_of: str | None = dataclasses.field(
        default=None,
        metadata={
            "meaning": 'Release of Kafka to answer as, from "0.8" to "4.3"; None is the newest,'
            " with all that was ever removed.",
            "text": True,
        },
    )
    auto_create_topics: bool = _switch(
        True, meaning="Whether a topic is made when a client asks for it."
    )
    default_partitions: int = _number(
        1, meaning="Partitions of a topic for which no number is given."
    )
    default_replication_factor: int | None = _number(
        None,
        meaning="Replicas where no number is given; None is three, or as many as there are nodes.",
    )
    min_insync_replicas: int = _number(
        1, meaning="Replicas that must be up for a write with acks=all."
    )
    max_message_bytes: int = _number(MIB + 12, meaning="The largest record batch.")
    max_request_bytes: int = _number(
        100 * MIB, meaning="The largest request; a larger one ends its connection."
    )
    max_fetch_bytes: int = _number(
        55 * MIB, meaning="What one Fetch gives at most, a first batch that is larger excepted."
    )
    max_decompressed_bytes: int = _number(
        512 * MIB, meaning="What one batch may be when it is decompressed."
    )
    segment_bytes: int = _number(64 * MIB, meaning="When a log goes on in a new segment.")
    retention_bytes: int = _number(
        GIB, meaning="What a partition keeps, in whole segments; Kafka keeps all for a week."
    )
    timestamp_after_max_ms: int = _number(
        3_600_000, 0, meaning="How far ahead the time of a record may be."
    )
    group_initial_rebalance_delay_ms: int = _number(
        0, 0, meaning="How long the first rebalance of a group waits for more members."
    )
    group_min_session_timeout_ms: int = _number(
        6_000, 0, meaning="The shortest session that a member may ask for."
    )
    group_max_session_timeout_ms: int = _number(
        1_800_000, 0, meaning="The longest session that a member may ask for."
    )
    group_max_size: int = _number(10_000, meaning="Members of one group.")
    offset_metadata_max_bytes: int = _number(
        4_096, meaning="The longest note that a committed offset may bear."
    )
    coordinator_load_ms: int = _number(
        0,
        0,
        meaning="How long a new coordinator of groups or transactional ids takes to load them; it"
        " answers COORDINATOR_LOAD_IN_PROGRESS until then.",
    )
    transaction_max_timeout_ms: int = _number(
        900_000, meaning="The longest that a producer may let a transaction take."
    )
    transactional_id_expiration_ms: int = _number(
        604_800_000,
        meaning="How long a transactional id that is not used is known.",
    )
    transaction_marker_delay_ms: int = _number(
        0, 0, meaning="How long the markers of a transaction wait after its end was answered."
    )
    refuse_unknown_producers: bool = _switch(
        False,
        meaning="Whether an idempotent producer that the log holds nothing of is refused unless it"
        " begins at 0, as brokers did before KIP-360.",
    )
    flush_messages: int | None = _number(
        None,
        meaning="After how many records a log is synced to the disk; None: no number (with"
        " `replicate`).",
    )
    flush_interval_ms: int = _number(
        30_000,
        meaning="How long what is written may wait to be synced. Kafka leaves that to the system,"
        " which takes about so long (with `replicate`).",
    )
    high_watermark_checkpoint_interval_ms: int = _number(
        5_000,
        meaning="How old the high watermark may be that outlives the process of a node (with"
        " `replicate`).",
    )
    broker_session_timeout_ms: int = _number(
        9_000,
        meaning="How long a node may hang before others take what it leads; 18 s before 3.0 and 6 s"
        " before 2.5.",
    )
    max_connections: int = _number(1_024, meaning="Connections to one node; more are closed.")
    connections_max_idle_ms: int = _number(
        600_000, meaning="How long a connection may bring no request before it is closed."
    )
    max_fetch_sessions: int = _number(
        1_000, meaning="Fetch sessions (KIP-227) that one node remembers."
    )
    replicate: bool = _switch(
        False,
        meaning="Whether each node has logs of its own that it replicates.",
    )
    replica_lag_time_max_ms: int = _number(
        30_000,
        meaning="How long a replica may be behind its leader before it is out of sync"
        " (with `replicate`).",
    )
    replica_fetch_wait_max_ms: int = _number(
        500, meaning="How long a leader keeps a replica's fetch waiting (with `replicate`)."
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_field(field, getattr(self, field.name))


class BrokerOptions(TypedDict, total=False):
    """The keyword arguments of `Broker` that are `BrokerConfig`'s."""

    as_of: str | None
    auto_create_topics: bool
    default_partitions: int
    default_replication_factor: int | None
    min_insync_replicas: int
    max_message_bytes: int
    max_request_bytes: int
    max_fetch_bytes: int
    max_decompressed_bytes: int
    segment_bytes: int
    retention_bytes: int
    timestamp_after_max_ms: int
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    offset_metadata_max_bytes: int
    coordinator_load_ms: int
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_marker_delay_ms: int
    refuse_unknown_producers: bool
    flush_messages: int | None
    flush_interval_ms: int
    high_watermark_checkpoint_interval_ms: int
    broker_session_timeout_ms: int
    max_connections: int
    connections_max_idle_ms: int
    max_fetch_sessions: int
    replicate: bool
    replica_lag_time_max_ms: int
    replica_fetch_wait_max_ms: int


def check_arguments(
    nodes: Any,
    *,
    data_dir: Any,
    host: Any,
    advertised_host: Any,
    ports: Any,
    racks: Any,
    kafka07_port: Any,
) -> None:
    """Check the arguments of `Broker` that are not in `BrokerConfig`.

    Raises:
        InvalidOption: An argument has the wrong type or is out of range, or there is not one port
            or rack for each node.
    """
    check_number("nodes", nodes, 1, MAX_NODES)
    check_text("host", host)
    if advertised_host is not None:
        check_text("advertised_host", advertised_host)
    if data_dir is not None and not isinstance(data_dir, str | os.PathLike):
        raise InvalidOption(f"data_dir must be a path, not {data_dir!r:.80}")
    if kafka07_port is not None:
        check_number("kafka07_port", kafka07_port, 0, MAX_PORT)
    for name, given in (("ports", ports), ("racks", racks)):
        if given is None:
            continue
        if isinstance(given, str | bytes) or not isinstance(given, Sequence):
            raise InvalidOption(f"{name} must be a list, not {given!r:.80}")
        if len(given) != nodes:
            raise InvalidOption(f"{nodes} nodes need {nodes} {name}, not {len(given)}")
    for port in ports or ():
        check_number("each of ports", port, 0, MAX_PORT)
    for rack in racks or ():
        if rack is not None:
            check_text("each of racks", rack, may_be_empty=True)


_LINES = "\n".join(f"    {option}" for option in options_of(BrokerConfig))
BrokerOptions.__doc__ = f"{BrokerOptions.__doc__}\n\n{_LINES}"
