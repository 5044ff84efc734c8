"""Partitions without a known leader: paces metadata requests, and detects missing partitions."""

from __future__ import annotations

import math
import random

from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.connection import Backoff
from aiokafkawire.types import TopicPartition

from .assignment import ConsumerAssignment
from .missing_topics import MissingPartitions
from .partition import AssignedPartition

__all__ = ("MAX_LEADER_RETRY_S", "LeaderRetry", "LeaderlessPartitions")

MAX_LEADER_RETRY_S = 30.0
"""The longest pause between two metadata requests for a missing leader."""


class LeaderRetry:
    """Decides when to request metadata again while partitions have no known leader."""

    def __init__(self, first_s: float) -> None:
        self._backoff = Backoff(first_s, MAX_LEADER_RETRY_S)
        self._asked = 0
        self._next_at = -math.inf

    def reset(self) -> None:
        """Reset the backoff, because every partition has a leader."""
        self._asked = 0
        self._next_at = -math.inf

    def should_request(self, now: float, rng: random.Random) -> bool:
        """Return whether to request metadata now, because a partition has no leader."""
        if now < self._next_at:
            return False
        self._asked += 1
        self._next_at = now + self._backoff.delay(self._asked, rng)
        return True

    @property
    def next_at(self) -> float:
        """Time of the next request."""
        return self._next_at if self._asked else math.inf


class LeaderlessPartitions:
    """The assigned partitions without a known leader. Those that do not exist have a timeout."""

    def __init__(self, assignment: ConsumerAssignment, first_s: float, timeout_s: float) -> None:
        self._assignment = assignment
        self._partitions: dict[AssignedPartition, None] = {}
        self._is_missing_leader = False
        self._retry = LeaderRetry(first_s)
        self._missing = MissingPartitions(timeout_s)

    def add(self, partition: AssignedPartition) -> None:
        """Note a partition without a known leader."""
        self._partitions[partition] = None

    def overdue(self, metadata: MetadataSnapshot, now: float) -> list[TopicPartition]:
        """Return the partitions that their topics have lacked for the timeout.

        Partitions that have a leader now are forgotten.
        """
        absent: list[TopicPartition] = []
        self._is_missing_leader = False
        for partition in list(self._partitions):
            tp = partition.tp
            if self._assignment.get(tp) is not partition or metadata.leader(tp) is not None:
                del self._partitions[partition]
            elif not partition.pending_revocation:
                topic = metadata.topics.get(tp.topic)
                # A topic that is not in the metadata yet was requested when it was added to the
                # cluster client.
                self._is_missing_leader |= topic is not None or tp.topic in metadata.errors
                if topic is not None and tp.partition not in topic.partitions:
                    absent.append(tp)
        return self._missing.overdue(absent, now)

    def should_request(self, now: float, rng: random.Random) -> bool:
        """Return whether to request metadata now, because a partition has no leader."""
        if self._is_missing_leader:
            return self._retry.should_request(now, rng)
        self._retry.reset()
        return False

    @property
    def next_at(self) -> float:
        """Time of the next metadata request, or at which the next partition is overdue."""
        return min(self._retry.next_at, self._missing.next_at)
