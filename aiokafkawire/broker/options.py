"""What a broker can be told when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafkawire.errors import InvalidOption

__all__ = ("MAX_NODES", "BrokerOptions")

MAX_NODES = 64
"""Nodes in one process; more would only be more sockets."""

KIB, MIB, GIB = 2**10, 2**20, 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Kafka's names in snake_case with the unit appended, and Kafka's defaults unless said.

    `default_replication_factor` None is the smaller of three and the number of nodes.
    `group_initial_rebalance_delay_ms` is 0, as in the configuration that Kafka ships; its default
    in code is 3000. `retention_bytes` bounds each partition; Kafka keeps everything for a week.
    `refuse_unknown_producers` answers UNKNOWN_PRODUCER_ID as brokers did before KIP-360.
    """

    auto_create_topics: bool = True
    default_partitions: int = 1
    default_replication_factor: int | None = None
    min_insync_replicas: int = 1
    max_message_bytes: int = MIB + 12
    max_request_bytes: int = 100 * MIB
    max_fetch_bytes: int = 55 * MIB
    max_decompressed_bytes: int = 512 * MIB
    segment_bytes: int = 64 * MIB
    retention_bytes: int = GIB
    timestamp_after_max_ms: int = 3_600_000
    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 10_000
    offset_metadata_max_bytes: int = 4_096
    refuse_unknown_producers: bool = False
    max_connections: int = 1_024
    max_fetch_sessions: int = 1_000

    def __post_init__(self) -> None:
        for name, field in self.__dataclass_fields__.items():
            value = getattr(self, name)
            if isinstance(field.default, bool):
                if not isinstance(value, bool):
                    raise InvalidOption(f"{name} must be True or False, not {value!r}")
                continue
            if value is None and field.default is None:
                continue
            lowest = 0 if name.endswith("_ms") else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
                raise InvalidOption(f"{name} must be a number of at least {lowest}, not {value!r}")
