"""Names that the Java client has for metrics of this package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

__all__ = (
    "ADMIN",
    "CONSUMER",
    "JAVA_NAMES",
    "PREFIXES",
    "PRODUCER",
    "REQUEST_LATENCIES",
    "SHARE_CONSUMER",
    "THROTTLE_TIMES",
    "ClientKind",
    "split_labels",
)

ClientKind = Literal["producer", "consumer", "share consumer", "admin client"]

PRODUCER: ClientKind = "producer"
CONSUMER: ClientKind = "consumer"
SHARE_CONSUMER: ClientKind = "share consumer"
ADMIN: ClientKind = "admin client"

_CONNECTIONS = {
    "connections_open": "connection.count",
    "connections_made_total": "connection.creation.total",
    "requests_total": "request.total",
    "responses_total": "response.total",
    "bytes_sent_total": "outgoing.byte.total",
    "bytes_received_total": "incoming.byte.total",
    "reauthentications_total": "successful.reauthentication.total",
}

JAVA_NAMES: Mapping[ClientKind, Mapping[str, str]] = MappingProxyType(
    {
        PRODUCER: {
            **_CONNECTIONS,
            "request_latency_ms_avg": "request.latency.avg",
            "request_latency_ms_max": "request.latency.max",
            "records_failed_total": "record.error.total",
            "batches_split_total": "batch.split.total",
            "callers_waiting": "waiting.threads",
            "buffer_size_bytes": "buffer.total.bytes",
        },
        CONSUMER: {
            **_CONNECTIONS,
            "records_lag": "fetch.manager.records.lag",
            "records_lag_max": "fetch.manager.records.lag.max",
            "records_consumed_total": "fetch.manager.records.consumed.total",
            "fetches_total": "fetch.manager.fetch.total",
            "fetch_latency_ms_avg": "fetch.manager.fetch.latency.avg",
            "fetch_latency_ms_max": "fetch.manager.fetch.latency.max",
            "assigned_partitions": "coordinator.assigned.partitions",
            "rebalances_total": "coordinator.rebalance.total",
            "commits_total": "coordinator.commit.total",
        },
        SHARE_CONSUMER: {
            **_CONNECTIONS,
            "records_consumed_total": "share.fetch.manager.records.consumed.total",
            "fetches_total": "share.fetch.manager.fetch.total",
            "fetch_latency_ms_avg": "share.fetch.manager.fetch.latency.avg",
            "fetch_latency_ms_max": "share.fetch.manager.fetch.latency.max",
        },
        ADMIN: _CONNECTIONS,
    }
)
"""Names in the metrics of the Java client, without their common prefix, by kind of client."""

PREFIXES: Mapping[ClientKind, str] = MappingProxyType(
    {
        PRODUCER: "org.apache.kafka.producer.",
        CONSUMER: "org.apache.kafka.consumer.",
        SHARE_CONSUMER: "org.apache.kafka.consumer.",
        ADMIN: "org.apache.kafka.admin.client.",
    }
)
"""Common prefix of the names of metrics that the Java client pushes (KIP-714)."""

REQUEST_LATENCIES: Mapping[ClientKind, str] = MappingProxyType({PRODUCER: "request.latency"})
"""Name of the latency of all requests, by kind of client."""

THROTTLE_TIMES: Mapping[ClientKind, str] = MappingProxyType(
    {
        PRODUCER: "produce.throttle.time",
        CONSUMER: "fetch.manager.fetch.throttle.time",
        SHARE_CONSUMER: "share.fetch.manager.fetch.throttle.time",
    }
)
"""Name of the throttle time in the responses to all requests, by kind of client."""

_LABEL = re.compile(r'(\w+)="([^"]*)"')


def split_labels(name: str) -> tuple[str, dict[str, str]]:
    """Split a name of `metrics()`, as `records_lag{topic="orders",partition="0"}`."""
    plain, _, labels = name.partition("{")
    return plain, dict(_LABEL.findall(labels))
