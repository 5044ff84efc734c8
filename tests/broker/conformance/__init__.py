"""The interview that real brokers gave, and that the embedded one is held to."""

from tests.broker.conformance import cluster_questions, group_questions, record_questions  # noqa: F401
from tests.broker.conformance.embedded import embedded
from tests.broker.conformance.questions import (
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
