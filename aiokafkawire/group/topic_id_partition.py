"""Partitions with the ids of their topics, as coordinators assign them to members."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from aiokafkawire.types import TopicPartition

__all__ = ("Partitions", "TopicIdPartition", "topic_partitions", "without")


class TopicIdPartition(NamedTuple):
    """A partition with the id of its topic: a topic that is created again is another one."""

    topic_id: UUID
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


Partitions = tuple[TopicIdPartition, ...]


def topic_partitions(partitions: Collection[TopicIdPartition]) -> tuple[TopicPartition, ...]:
    return tuple(partition.topic_partition for partition in partitions)


def without(partitions: Partitions, removed: Collection[TopicIdPartition]) -> Partitions:
    removed = set(removed)
    return tuple(partition for partition in partitions if partition not in removed)
