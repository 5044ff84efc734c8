"""Topics as the group coordinator sees them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

__all__ = ("NO_TOPICS", "SubscribedTopic", "TopicsImage", "metadata_hash")


@dataclass(frozen=True, slots=True)
class SubscribedTopic:
    """A topic. `racks` are those of the replicas of each partition."""

    name: str
    topic_id: UUID
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics at one moment. The version grows with each change."""

    version: int
    topics: Mapping[str, SubscribedTopic] = field(default_factory=dict)
    names: Mapping[UUID, str] = field(default_factory=dict)

    @classmethod
    def of(cls, version: int, topics: Iterable[SubscribedTopic]) -> TopicsImage:
        """Return the image of some topics."""
        by_name = {topic.name: topic for topic in topics}
        return cls(version, by_name, {topic.topic_id: name for name, topic in by_name.items()})

    def ids(self, names: Iterable[str]) -> frozenset[UUID]:
        """Return the ids of the topics that exist."""
        return frozenset(self.topics[name].topic_id for name in names if name in self.topics)


NO_TOPICS = TopicsImage(-1)
"""Image of a group that has not seen any topic."""


def metadata_hash(names: Iterable[str], image: TopicsImage) -> int:
    """Return a hash of the topics that exist, 0 if there are none.

    It differs from the hash that Kafka computes, but changes with the same things: name, id,
    number of partitions, and racks.
    """
    known = sorted(name for name in names if name in image.topics)
    if not known:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name in known:
        topic = image.topics[name]
        digest.update(repr((name, topic.topic_id, topic.partitions, topic.racks)).encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
