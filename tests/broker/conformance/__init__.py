"""Conformance of the embedded broker with recorded responses of real brokers."""

from tests.broker.conformance import cluster_cases, group_cases, record_cases  # noqa: F401
from tests.broker.conformance.cases import (
    CASES,
    MIN_SESSION_TIMEOUT_MS,
    NODES,
    PARTITIONS,
    RELEASES,
    TOPICS,
    Recording,
    as_of,
    run_cases,
    supported,
)
from tests.broker.conformance.embedded import embedded

__all__ = [
    "CASES",
    "MIN_SESSION_TIMEOUT_MS",
    "NODES",
    "PARTITIONS",
    "RELEASES",
    "TOPICS",
    "Recording",
    "as_of",
    "embedded",
    "run_cases",
    "supported",
]
