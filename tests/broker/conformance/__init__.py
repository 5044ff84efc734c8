"""The interview that real brokers gave, and that the embedded one is held to."""

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
