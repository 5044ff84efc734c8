"""The same cases on the embedded broker, and the differences from real Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aiokafkawire.broker import Broker
from tests.brokers.admin_parity.case import Case
from tests.brokers.admin_parity.cluster import NODES, PASSWORD, USER, client_options, java_options
from tests.brokers.admin_parity.comparable import Struct, differences
from tests.brokers.admin_parity.comparison import Outcome, run
from tests.brokers.kafka import DEFAULT_VERSION

__all__ = ("KNOWN_DIFFERENCES", "NOT_SERVED", "differences_from_kafka", "run_on_embedded")

NOT_SERVED = frozenset(
    {"describe_streams_groups", "delete_streams_groups", "alter_streams_group_offsets"}
)
"""Operations on streams groups, which the embedded broker does not have."""

KNOWN_DIFFERENCES: Mapping[str, str] = {
    "configs": "small defaults for retention and segments, descriptions in other words, and only"
    " the broker configs that it has",
    "quorum": "voters can be changed (kraft.version 1); the real cluster has static ones",
    "log directories": "one in memory per node",
}
"""Reasons why the embedded broker differs from real Kafka."""

_DIFFERENT = {
    "create_topics": ("configs", r"\[(retention|segment)\.bytes\]"),
    "describe_configs": ("configs", r"documentation|\[(retention|segment)\.bytes\]|\[BROKER 1\]"),
    "describe_features": ("quorum", r"kraft\.version"),
    "describe_metadata_quorum": ("quorum", r"^\.leader_id"),
    "add_raft_voter": ("quorum", ""),
    "remove_raft_voter": ("quorum", ""),
    "describe_log_dirs": ("log directories", ""),
    "describe_replica_log_dirs": ("log directories", "current_replica_log_dir"),
}
"""By operation: key of the reason, and a pattern that matches the paths that differ."""

_VOLATILE = frozenset(
    {
        *("topic_id", "cluster_id", "producer_id", "member_id", "token_id", "hmac", "host", "port"),
        *(
            "coordinator_id",
            "replica_directory_id",
            "leader_epoch",
            "finalized_features_epoch",
            "usable_bytes",
        ),
        *("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms", "timestamp_ms"),
        *("last_timestamp_ms", "transaction_start_time_ms", "high_watermark", "log_end_offset"),
        *("last_fetch_timestamp", "last_caught_up_timestamp"),
    }
)
"""Fields that differ from cluster to cluster."""

_OTHER_NAMES = re.compile(r"case[0-9a-f]{10}|\b__")
"""What other cases have made, and internal topics, which appear on demand."""


async def run_on_embedded(cases: Iterable[Case]) -> list[Outcome]:
    """Run the cases that the embedded broker serves."""
    served = [case for case in cases if case.operation not in NOT_SERVED]
    async with Broker(
        nodes=NODES,
        as_of=DEFAULT_VERSION.rpartition(".")[0],
        sasl={USER: PASSWORD},
        acls=[],
        super_users=[f"User:{USER}"],
        delegation_token_secret_key="a-secret-key",
        default_replication_factor=NODES,
        min_insync_replicas=2,
        group_initial_rebalance_delay_ms=0,
    ) as broker:
        servers = broker.bootstrap_servers
        return await run(served, java_options(servers), client_options(servers))


def differences_from_kafka(kafka: Iterable[Outcome], embedded: Iterable[Outcome]) -> list[str]:
    """Return a line per difference in Java's results, without the known ones."""
    real = {(outcome.case.operation, outcome.case.title): outcome.java for outcome in kafka}
    found = []
    for outcome in embedded:
        operation, title = outcome.case.operation, outcome.case.title
        ours = _without_others(outcome.java)
        for line in differences(_without_others(real[operation, title]), ours, _VOLATILE):
            if not _is_known(operation, line):
                found.append(f"{operation} {title}{line}")
    return found


def _is_known(operation: str, line: str) -> bool:
    known = _DIFFERENT.get(operation)
    return known is not None and re.search(known[1], line) is not None


def _without_others(value: Any) -> Any:
    if isinstance(value, Struct):
        return Struct({name: _without_others(each) for name, each in value.items()})
    if isinstance(value, Mapping):
        return {
            key: _without_others(each)
            for key, each in value.items()
            if not _OTHER_NAMES.search(str(key))
        }
    if isinstance(value, list):
        return type(value)(_kept(value))
    return value


def _kept(elements: list[Any]) -> Iterator[Any]:
    for each in elements:
        if not _OTHER_NAMES.search(str(each)):
            yield _without_others(each)
