"""Options of `Broker`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from aiokafkawire.broker.acls import Acl, check_principal
from aiokafkawire.config import check_field, check_number, check_text, list_options
from aiokafkawire.errors import InvalidOption

__all__ = ("MAX_NODES", "BrokerConfig", "BrokerOptions", "check_arguments", "check_ports")

MAX_NODES = 64
"""Limit of nodes in one process; more would only add sockets."""

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
    """Options of the broker: Kafka's names in snake_case with units, and Kafka's defaults.

    Options that are not given have the defaults of the release in `as_of`.
    """

    as_of: str | None = dataclasses.field(
        default=None,
        metadata={
            "meaning": 'Release of Kafka to answer as, from "0.8" to "4.4"; None is the newest'
            " with all APIs that were ever removed.",
            "text": True,
        },
    )
    auto_create_topics: bool = _switch(
        True, meaning="Create topics when clients request their metadata."
    )
    default_partitions: int = _number(
        1, meaning="Partitions of a topic that is created without a number."
    )
    default_replication_factor: int | None = _number(
        None,
        meaning="Replicas of a topic that is created without a number; None is 3, or the number of"
        " nodes if smaller.",
    )
    min_insync_replicas: int = _number(
        1, meaning="Replicas that must be in sync for a write with acks=all."
    )
    max_message_bytes: int = _number(MIB + 12, meaning="Largest record batch.")
    max_request_bytes: int = _number(
        100 * MIB, meaning="Largest request; a larger one closes its connection."
    )
    max_fetch_bytes: int = _number(
        55 * MIB, meaning="Largest Fetch response, except that the first batch is always complete."
    )
    max_decompressed_bytes: int = _number(512 * MIB, meaning="Largest decompressed batch.")
    segment_bytes: int = _number(64 * MIB, meaning="Size at which a log rolls to a new segment.")
    retention_bytes: int = _number(
        GIB,
        meaning="Size at which a partition deletes old segments; Kafka keeps all for a week.",
    )
    log_retention_check_interval_ms: int = _number(
        300_000,
        meaning="Interval at which logs are checked for segments past `retention.ms` and"
        " `retention.bytes` of topics.",
    )
    timestamp_after_max_ms: int = _number(
        3_600_000, 0, meaning="How far a record timestamp may be in the future."
    )
    group_initial_rebalance_delay_ms: int = _number(
        0, 0, meaning="Time that the first rebalance of a group waits for more members."
    )
    group_min_session_timeout_ms: int = _number(
        6_000, 0, meaning="Shortest session timeout of a member."
    )
    group_max_session_timeout_ms: int = _number(
        1_800_000, 0, meaning="Longest session timeout of a member."
    )
    group_max_size: int = _number(10_000, meaning="Largest number of members in a group.")
    group_consumer_session_timeout_ms: int = _number(
        45_000, meaning="Session timeout of the members of consumer groups (KIP-848)."
    )
    group_consumer_heartbeat_interval_ms: int = _number(
        5_000, meaning="Heartbeat interval of the members of consumer groups."
    )
    group_consumer_min_session_timeout_ms: int = _number(
        45_000, meaning="Shortest session timeout that a config of a consumer group may set."
    )
    group_consumer_min_heartbeat_interval_ms: int = _number(
        5_000, meaning="Shortest heartbeat interval that a config of a consumer group may set."
    )
    group_consumer_assignment_interval_ms: int = _number(
        0,
        0,
        meaning="Least time between two assignments of a consumer group. Kafka waits 1,000 ms from"
        " 4.3 on.",
    )
    group_consumer_regex_refresh_interval_ms: int = _number(
        600_000,
        meaning="Interval at which a consumer group looks up the topics of its regular expressions;"
        " it notices a new topic after 10 s.",
    )
    group_consumer_max_size: int = _number(
        2**31 - 1, meaning="Largest number of members in a consumer group."
    )
    group_consumer_migration_policy: str = dataclasses.field(
        default="bidirectional",
        metadata={
            "meaning": "Conversions of groups with members between the classic and the consumer"
            " protocol.",
            "choices": ("bidirectional", "upgrade", "downgrade", "disabled"),
        },
    )
    group_share_session_timeout_ms: int = _number(
        45_000, meaning="Session timeout of the members of share groups (KIP-932)."
    )
    group_share_heartbeat_interval_ms: int = _number(
        5_000, meaning="Heartbeat interval of the members of share groups."
    )
    group_share_min_session_timeout_ms: int = _number(
        45_000, meaning="Shortest session timeout that a config of a share group may set."
    )
    group_share_min_heartbeat_interval_ms: int = _number(
        5_000, meaning="Shortest heartbeat interval that a config of a share group may set."
    )
    group_share_assignment_interval_ms: int = _number(
        0,
        0,
        meaning="Least time between two assignments of a share group. Kafka waits 1,000 ms from"
        " 4.3 on.",
    )
    group_share_record_lock_duration_ms: int = _number(
        30_000, meaning="Time after which a record that a share group has acquired is released."
    )
    group_share_min_record_lock_duration_ms: int = _number(
        15_000, meaning="Shortest lock duration that a config of a share group may set."
    )
    group_share_delivery_count_limit: int = _number(
        5, 2, meaning="Times that a share group delivers a record before it is archived."
    )
    group_share_partition_max_record_locks: int = _number(
        2_000, meaning="Records of a partition that a share group may have in flight."
    )
    group_share_max_size: int = _number(200, meaning="Largest number of members in a share group.")
    group_share_max_share_sessions: int = _number(
        2_000, meaning="Share sessions of a node; SHARE_SESSION_LIMIT_REACHED beyond that."
    )
    offset_metadata_max_bytes: int = _number(
        4_096, meaning="Largest metadata of a committed offset."
    )
    coordinator_load_ms: int = _number(
        0,
        0,
        meaning="Time that a new coordinator needs to load groups and transactional ids; it answers"
        " COORDINATOR_LOAD_IN_PROGRESS meanwhile.",
    )
    transaction_max_timeout_ms: int = _number(
        900_000, meaning="Longest transaction timeout that a producer may set."
    )
    transactional_id_expiration_ms: int = _number(
        604_800_000,
        meaning="Time after which an unused transactional id is forgotten.",
    )
    transaction_marker_delay_ms: int = _number(
        0, 0, meaning="Delay between the EndTxn response and the markers of the transaction."
    )
    refuse_unknown_producers: bool = _switch(
        False,
        meaning="Reject an idempotent producer without records in the log unless its sequence"
        " starts at 0, as brokers did before KIP-360.",
    )
    flush_messages: int | None = _number(
        None,
        meaning="Number of records after which a log is synced to disk; None is no limit (with"
        " `replicate`).",
    )
    flush_interval_ms: int = _number(
        30_000,
        meaning="Interval at which logs are synced to disk. Kafka leaves that to the operating"
        " system, which takes about as long (with `replicate`).",
    )
    high_watermark_checkpoint_interval_ms: int = _number(
        5_000,
        meaning="Interval at which the high watermark is saved for a restart of the node (with"
        " `replicate`).",
    )
    broker_session_timeout_ms: int = _number(
        9_000,
        meaning="Time after which other nodes take over the leaders of a node that hangs; 18 s"
        " before 3.0 and 6 s before 2.5.",
    )
    max_connections: int = _number(1_024, meaning="Connections per node; further ones are closed.")
    connections_max_idle_ms: int = _number(
        600_000, meaning="Time without requests after which a connection is closed."
    )
    connections_max_reauth_ms: int = _number(
        0,
        0,
        meaning="Lifetime of a SASL session, within which the client must authenticate again"
        " (KIP-368); 0 is no limit.",
    )
    connection_failed_authentication_delay_ms: int = _number(
        100, 0, meaning="Delay of the response to a failed authentication; 0 before 2.1."
    )
    delegation_token_secret_key: str | None = dataclasses.field(
        default=None,
        repr=False,
        metadata={
            "meaning": "Key of delegation tokens (KIP-48); None disables them.",
            "text": True,
        },
    )
    delegation_token_max_lifetime_ms: int = _number(
        604_800_000, meaning="Longest lifetime of a delegation token."
    )
    delegation_token_expiry_time_ms: int = _number(
        86_400_000, meaning="Time after which a delegation token expires unless it is renewed."
    )
    max_fetch_sessions: int = _number(1_000, meaning="Fetch sessions (KIP-227) per node.")
    allow_everyone_if_no_acl_found: bool = _switch(
        False,
        meaning="Allow every operation on a resource that no ACL matches (with `acls`).",
    )
    client_telemetry: bool = _switch(
        False,
        meaning="List GetTelemetrySubscriptions and PushTelemetry in ApiVersions, as brokers with a"
        " reporter of client metrics do (KIP-714).",
    )
    replicate: bool = _switch(
        False,
        meaning="Give each node its own logs, and replicate them.",
    )
    replica_lag_time_max_ms: int = _number(
        30_000,
        meaning="Time that a replica may lag behind its leader before it is out of sync (with"
        " `replicate`).",
    )
    replica_fetch_wait_max_ms: int = _number(
        500,
        meaning="Time that a leader holds a follower's fetch without new records (with"
        " `replicate`).",
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_field(field, getattr(self, field.name))


class BrokerOptions(TypedDict, total=False):
    """Keyword arguments of `Broker`, defined by `BrokerConfig`."""

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
    log_retention_check_interval_ms: int
    timestamp_after_max_ms: int
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_assignment_interval_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_share_session_timeout_ms: int
    group_share_heartbeat_interval_ms: int
    group_share_min_session_timeout_ms: int
    group_share_min_heartbeat_interval_ms: int
    group_share_assignment_interval_ms: int
    group_share_record_lock_duration_ms: int
    group_share_min_record_lock_duration_ms: int
    group_share_delivery_count_limit: int
    group_share_partition_max_record_locks: int
    group_share_max_size: int
    group_share_max_share_sessions: int
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
    connections_max_reauth_ms: int
    connection_failed_authentication_delay_ms: int
    delegation_token_secret_key: str | None
    delegation_token_max_lifetime_ms: int
    delegation_token_expiry_time_ms: int
    max_fetch_sessions: int
    allow_everyone_if_no_acl_found: bool
    client_telemetry: bool
    replicate: bool
    replica_lag_time_max_ms: int
    replica_fetch_wait_max_ms: int


def check_ports(name: str, ports: Any, nodes: int) -> None:
    """Raise `InvalidOption` unless `ports` has a port for each node."""
    check_each_node(name, ports, nodes)
    for port in ports:
        check_number(f"each of {name}", port, 0, MAX_PORT)


def check_each_node(name: str, values: Any, nodes: int) -> None:
    """Raise `InvalidOption` unless `values` is a list with a value for each node."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidOption(f"{name} must be a list, not {values!r:.80}")
    if len(values) != nodes:
        raise InvalidOption(f"{nodes} nodes need {nodes} {name}, not {len(values)}")


def check_arguments(
    nodes: Any,
    *,
    data_dir: Any,
    host: Any,
    advertised_host: Any,
    ports: Any,
    racks: Any,
    kafka07_port: Any,
    acls: Any,
    super_users: Any,
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
    _check_acls(acls, super_users)
    if kafka07_port is not None:
        check_number("kafka07_port", kafka07_port, 0, MAX_PORT)
    if ports is not None:
        check_ports("ports", ports, nodes)
    if racks is not None:
        check_each_node("racks", racks, nodes)
    for rack in racks or ():
        if rack is not None:
            check_text("each of racks", rack, may_be_empty=True)


def _check_acls(acls: Any, super_users: Any) -> None:
    if isinstance(super_users, str | bytes) or not isinstance(super_users, Sequence):
        raise InvalidOption(f"super_users must be a list, not {super_users!r:.80}")
    for principal in super_users:
        check_principal("each of super_users", principal)
    if acls is None:
        if super_users:
            raise InvalidOption("super_users needs acls; acls=[] forbids everything to others")
        return
    if isinstance(acls, str | bytes) or not isinstance(acls, Sequence):
        raise InvalidOption(f"acls must be a list, not {acls!r:.80}")
    for acl in acls:
        if not isinstance(acl, Acl):
            raise InvalidOption(f"each of acls must be an Acl, not {acl!r:.80}")


_LINES = "\n".join(f"    {option}" for option in list_options(BrokerConfig))
BrokerOptions.__doc__ = f"{BrokerOptions.__doc__}\n\n{_LINES}"
