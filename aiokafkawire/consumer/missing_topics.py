"""Detects topics and partitions that do not exist, after they had time to appear."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple
from uuid import UUID

from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.errors import (
    KafkaError,
    UnknownTopic,
)
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ZERO_UUID
from aiokafkawire.wire.error_codes import ErrorCode, error_for

__all__ = ("MissingPartitions", "MissingTopics", "MissingTopicsResult")


class MissingTopicsResult(NamedTuple):
    """Topics that stay subscribed though they are missing, and topics that were recreated."""

    kept: tuple[str, ...]
    recreated: tuple[str, ...]


class MissingTopics:
    """Detects topics that cannot be read. An unknown topic has `timeout_s` to appear.

    Attributes:
        unknown_since: When a topic was first found to be unknown, for those that are.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.unknown_since: dict[str, float] = {}
        self._absent_since: dict[str, float] = {}
        self._ids: dict[str, UUID] = {}

    def check_missing(
        self,
        metadata: MetadataSnapshot,
        present: Collection[str],
        owned: Iterable[str],
        now: float,
    ) -> MissingTopicsResult:
        """Return which assigned topics to keep though a response with all topics lacks them.

        A broker that has just started may not know them yet: they keep their positions for
        `timeout_s`. When they are back, their ids show whether they were recreated.

        Args:
            metadata: The metadata of all topics.
            present: Topics of the subscription that are in the metadata.
            owned: Topics of assigned partitions.
            now: Time of the clock.
        """
        ids = {topic: metadata.topic_id(topic) for topic in present}
        recreated = tuple(
            topic
            for topic, id in ids.items()
            if ZERO_UUID not in {id, self._ids.get(topic, ZERO_UUID)} and id != self._ids[topic]
        )
        self._absent_since = {
            topic: self._absent_since.get(topic, now) for topic in owned if topic not in ids
        }
        kept = tuple(
            topic for topic, since in self._absent_since.items() if now - since < self._timeout_s
        )
        self._ids = {topic: self._ids.get(topic, ZERO_UUID) for topic in kept} | ids
        return MissingTopicsResult(kept, recreated)

    def find_error(
        self, metadata: MetadataSnapshot, topics: Iterable[str], now: float
    ) -> KafkaError | None:
        """Return the error of the first topic that cannot be read, if there is one."""
        if not metadata.errors:
            self.unknown_since = {}
            return None
        wanted = list(topics)
        unknown = {
            topic: self.unknown_since.get(topic, now)
            for topic in wanted
            if metadata.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        self.unknown_since = unknown
        for topic in wanted:
            code = metadata.errors.get(topic, ErrorCode.NONE)
            if code == ErrorCode.NONE:
                continue
            if topic in unknown:
                if now - unknown[topic] >= self._timeout_s:
                    return UnknownTopic(
                        f"topic {topic!r} does not exist, and did not appear within"
                        f" {self._timeout_s:g} s (default_api_timeout_ms)",
                        topic=topic,
                    )
                continue
            error = error_for(code, topic=topic, api="Metadata")
            if not error.retriable:
                return error
        return None


class MissingPartitions:
    """Detects partitions that do not exist. Each has `timeout_s` to appear."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        # Deadlines, not start times: recomputing them could differ by floating-point rounding.
        self._deadlines: dict[TopicPartition, float] = {}

    def overdue(self, missing: Iterable[TopicPartition], now: float) -> list[TopicPartition]:
        """Return the missing partitions whose time is up, and restart their time."""
        deadline = now + self._timeout_s
        self._deadlines = {tp: self._deadlines.get(tp, deadline) for tp in missing}
        overdue = [tp for tp, until in self._deadlines.items() if until <= now]
        self._deadlines.update(dict.fromkeys(overdue, deadline))
        return overdue

    @property
    def next_at(self) -> float:
        """Time at which the next partition is overdue."""
        return min(self._deadlines.values(), default=math.inf)
