"""The topics of clients, by name and by id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from aiokafkawire.broker.topics import Partition, Topic

__all__ = ("TopicMap",)


class TopicMap(Mapping[str, Topic]):
    """Topics by name, in the order of their creation; `version` rises with each change."""

    def __init__(self) -> None:
        self.version = 0
        self.partition_count = 0
        self.by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}

    def __getitem__(self, name: str) -> Topic:
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def get_by_id(self, topic_id: UUID) -> Topic | None:
        """Return a topic by id, None if it does not exist."""
        return self._by_id.get(topic_id)

    def add(self, topic: Topic) -> None:
        """Add a topic with its partitions."""
        self.by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self.partition_count += len(topic.partitions)
        self.version += 1

    def remove(self, topic: Topic) -> None:
        """Remove a topic."""
        del self.by_name[topic.name]
        del self._by_id[topic.topic_id]
        self.partition_count -= len(topic.partitions)
        self.version += 1

    def replace_all(self, topics: Sequence[Topic]) -> None:
        """Make these the only topics, in this order."""
        self.by_name.clear()
        self._by_id.clear()
        self.partition_count = 0
        for topic in topics:
            self.add(topic)

    def add_partitions(self, topic: Topic, partitions: Sequence[Partition]) -> None:
        """Append partitions to a topic."""
        topic.partitions += partitions
        self.partition_count += len(partitions)
        self.version += 1

    def remove_partitions(self, topic: Topic, first: int) -> None:
        """Remove the partitions of a topic from the index `first` on."""
        self.partition_count -= len(topic.partitions) - first
        del topic.partitions[first:]
        self.version += 1
