"""Looks out for what keeps a consumer waiting: no broker, or a topic that does not exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple
from uuid import UUID

from aiokafkawire.cluster.metadata import MetadataSnapshot
from aiokafkawire.errors import (
    BrokerError,
    ConnectionFailed,
    KafkaError,
    RequestTimedOut,
    UnknownTopic,
)
from aiokafkawire.wire import ZERO_UUID
from aiokafkawire.wire.error_codes import ErrorCode, error_for

__all__ = ("OUTAGE_S", "Absence", "Outage", "TopicWatch")

OUTAGE_S = 60.0
"""So long may no broker be reachable before it is logged."""


class Outage:
    """Tells once of each time that no broker answers for `OUTAGE_S`, though connected to.

    `over_s` is the length of the outage that the last call of `heard` ended, else None; `failure`
    is the last one while an outage lasts.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._told = False
        self.over_s: float | None = None
        self.failure: KafkaError | None = None

    def heard(self, failure: KafkaError | None, now: float) -> str | None:
        """A broker answered (None, or an error of its own), or none could be reached."""
        self.over_s = None
        if failure is None or isinstance(failure, BrokerError):
            if self._told and self._since is not None:
                self.over_s = now - self._since
            self._since = self.failure = None
            self._told = False
            return None
        self.failure = failure
        if self._since is None:
            self._since = now
        if self._told or now - self._since < OUTAGE_S or _is_unconnected(failure):
            return None
        self._told = True
        return f"no broker was reachable for {OUTAGE_S:.0f} s: {failure}"


def _is_unconnected(failure: KafkaError) -> bool:
    """Return whether there was no connection: the cluster client has logged that already."""
    if isinstance(failure, RequestTimedOut):
        return not failure.sent
    return isinstance(failure, ConnectionFailed)


class Absence(NamedTuple):
    """Topics that are kept though they are missing, and others that came back as new ones."""

    kept: tuple[str, ...]
    renewed: tuple[str, ...]


class TopicWatch:
    """Says which topic is in the way. An unknown one has `patience_s` to come to be."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._unknown_since: dict[str, float] = {}
        self._absent_since: dict[str, float] = {}
        self._ids: dict[str, UUID] = {}

    def absence(
        self,
        metadata: MetadataSnapshot,
        present: Collection[str],
        owned: Iterable[str],
        now: float,
    ) -> Absence:
        """What to make of owned topics that an answer of all topics leaves out.

        A broker that was just started may not have heard of them yet: they keep their positions
        for `patience_s`, and their ids tell whether they are the same when they are back.
        """
        ids = {topic: metadata.topic_id(topic) for topic in present}
        renewed = tuple(
            topic
            for topic, id in ids.items()
            if ZERO_UUID not in {id, self._ids.get(topic, ZERO_UUID)} and id != self._ids[topic]
        )
        self._absent_since = {
            topic: self._absent_since.get(topic, now) for topic in owned if topic not in ids
        }
        kept = tuple(
            topic for topic, since in self._absent_since.items() if now - since < self._patience_s
        )
        self._ids = {topic: self._ids.get(topic, ZERO_UUID) for topic in kept} | ids
        return Absence(kept, renewed)

    def check(
        self, metadata: MetadataSnapshot, topics: Iterable[str], now: float
    ) -> KafkaError | None:
        """The error for the first topic that cannot be read, if there is one."""
        if not metadata.errors:
            self._unknown_since = {}
            return None
        wanted = list(topics)
        unknown = {
            topic: self._unknown_since.get(topic, now)
            for topic in wanted
            if metadata.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        self._unknown_since = unknown
        for topic in wanted:
            code = metadata.errors.get(topic, ErrorCode.NONE)
            if code == ErrorCode.NONE:
                continue
            if topic in unknown:
                if now - unknown[topic] >= self._patience_s:
                    return UnknownTopic(
                        f"topic {topic!r} does not exist, and did not appear within"
                        f" {self._patience_s:g} s (default_api_timeout_ms)",
                        topic=topic,
                    )
                continue
            error = error_for(code, topic=topic, api="Metadata")
            if not error.retriable:
                return error
        return None
