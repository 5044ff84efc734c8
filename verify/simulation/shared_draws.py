"""Random options that scenarios share: brokers, networks, impatient clients."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from aiokafkawire.broker.releases import RELEASE_NAMES

__all__ = (
    "IMPATIENT",
    "draw_broker",
    "draw_client",
    "draw_network",
    "draw_reader",
    "draw_release",
    "has_api_versions",
    "has_idempotence",
)

IMPATIENT: dict[str, Any] = {"request_timeout_ms": 2_000}
"""Options with short timeouts: a simulated fault lasts seconds."""


def draw_client(rng: random.Random) -> dict[str, Any]:
    """Draw options of any client."""
    return {
        "request_timeout_ms": rng.choice([1_000, 2_000, 2_000, 10_000]),
        "connections_max_idle_ms": rng.choice([400, 540_000, 540_000, 540_000]),
        "metadata_max_age_ms": rng.choice([700, 300_000, 300_000, 300_000]),
    }


def draw_reader(rng: random.Random) -> dict[str, Any]:
    """Draw options of a consumer."""
    return draw_client(rng) | {
        "max_poll_records": rng.choice([3, 500, 500]),
        "max_partition_fetch_bytes": rng.choice([400, 1_048_576, 1_048_576]),
        "fetch_max_wait_ms": rng.choice([100, 500, 500]),
    }


REPLICATED_SINCE = "2.0"
"""Earlier replication may lose acknowledged records, or diverge (KIP-101, KIP-279)."""

NEWEST = 0.5
"""Share of runs on the newest release."""


def draw_release(rng: random.Random, since: str, until: str | None = None) -> str | None:
    """Draw a release not before `since`; None is the newest one."""
    lines = RELEASE_NAMES[
        RELEASE_NAMES.index(since) : None if until is None else RELEASE_NAMES.index(until) + 1
    ]
    return None if until is None and rng.random() < NEWEST else rng.choice(lines)


def draw_broker(
    rng: random.Random, *, since: str = "0.10.1", replicated: float = 0.3
) -> dict[str, Any]:
    """Draw arguments of a `Broker` with three nodes; in a share of runs its nodes replicate."""
    broker: dict[str, Any] = {
        "nodes": 3,
        "as_of": draw_release(rng, since),
        "auto_create_topics": False,
        "group_min_session_timeout_ms": 100,
        "coordinator_load_ms": rng.choice([0, 0, 0, 500]),
    }
    if rng.random() < replicated:
        broker |= {
            "replicate": True,
            "as_of": draw_release(rng, max(since, REPLICATED_SINCE, key=RELEASE_NAMES.index)),
            "flush_interval_ms": rng.choice([100, 1_000, 30_000]),
            "min_insync_replicas": 2,
            "replica_lag_time_max_ms": 3_000,
        }
    return broker


def has_idempotence(broker: Mapping[str, Any]) -> bool:
    """Return whether the brokers support producer ids and sequence numbers."""
    return _since(broker, "0.11.0")


def has_api_versions(broker: Mapping[str, Any]) -> bool:
    """Return whether the brokers support ApiVersions."""
    return _since(broker, "0.10.0")


def _since(broker: Mapping[str, Any], line: str) -> bool:
    as_of = broker.get("as_of")
    return as_of is None or RELEASE_NAMES.index(as_of) >= RELEASE_NAMES.index(line)


def draw_network(rng: random.Random) -> dict[str, Any]:
    """Draw fields of `NetworkOptions`."""
    return rng.choice(
        [
            {},
            {"max_delay_s": 0.02},
            {"max_delay_s": 0.1},
        ]
    )
