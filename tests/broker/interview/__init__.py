"""The interview that real brokers gave, and that the embedded one is held to."""

from tests.broker.interview import of_clusters, of_groups, of_records  # noqa: F401
from tests.broker.interview.embedded import embedded
from tests.broker.interview.interview import (
    MIN_SESSION_TIMEOUT_MS,
    NODES,
    PARTITIONS,
    QUESTIONS,
    RELEASES,
    TOPICS,
    Recording,
    as_of,
    interview,
    supported,
)

__all__ = [
    "MIN_SESSION_TIMEOUT_MS",
    "NODES",
    "PARTITIONS",
    "QUESTIONS",
    "RELEASES",
    "TOPICS",
    "Recording",
    "as_of",
    "embedded",
    "interview",
    "supported",
]
