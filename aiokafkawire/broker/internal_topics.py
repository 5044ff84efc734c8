"""The topics in which Kafka keeps committed offsets and transactions, as clients see them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from uuid import UUID

from aiokafkawire.broker.log import PartitionLog
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.storage import MemoryStore
from aiokafkawire.broker.topics import (
    CONSUMER_OFFSETS,
    NO_LEADER,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    Partition,
    Topic,
)
from aiokafkawire.wire.primitives import uuid_from_text, uuid_to_text

__all__ = ("CONFIGS", "COORDINATOR_PARTITIONS", "InternalTopics")

COORDINATOR_PARTITIONS = 50
"""Groups and transactional ids are hashed to this many partitions, as in __consumer_offsets."""

MAX_REPLICAS = 3

CONFIGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        CONSUMER_OFFSETS: {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        },
        SHARE_GROUP_STATE: {
            "cleanup.policy": "delete",
            "compression.type": "uncompressed",
            "min.insync.replicas": "2",
            "retention.ms": "-1",
            "segment.bytes": "104857600",
        },
        TRANSACTION_STATE: {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "2",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        },
    }
)
"""Configs with which Kafka creates the topics."""


class InternalTopics:
    """Internal topics that were used, and the coordinator of each of their partitions: its leader.

    `coordinators` has -1 while no node is up.
    Their logs stay empty: committed offsets and transactions are kept elsewhere, so deleting such a
    topic deletes nothing.
    """

    def __init__(self, node_ids: Sequence[int], options: BrokerConfig) -> None:
        self.topics: dict[str, Topic] = {}
        self.coordinators = [
            node_ids[index % len(node_ids)] for index in range(COORDINATOR_PARTITIONS)
        ]
        self._node_ids = list(node_ids)
        self._options = options

    def get(self, name: str) -> Topic | None:
        """Return a topic, None if it does not exist."""
        return self.topics.get(name)

    def get_by_id(self, topic_id: UUID) -> Topic | None:
        """Return a topic by id, None if it does not exist."""
        return next((each for each in self.topics.values() if each.topic_id == topic_id), None)

    def create(self, name: str, topic_id: UUID, configs: Mapping[str, str] | None = None) -> Topic:
        """Create a topic; `update` gives its partitions leaders."""
        store = MemoryStore()
        partitions = [
            Partition(name, index, [], PartitionLog(f"{name}-{index}", store, self._options))
            for index in range(COORDINATOR_PARTITIONS)
        ]
        own = dict(CONFIGS[name] if configs is None else configs)
        if configs is None and "min.insync.replicas" in own:
            own["min.insync.replicas"] = str(min(2, len(self._node_ids)))
        topic = self.topics[name] = Topic(name, topic_id, partitions, own)
        return topic

    def remove(self, name: str) -> None:
        """Remove a topic; its next use creates it again."""
        for partition in self.topics.pop(name).partitions:
            partition.deleted = True
            partition.on_change.notify()

    def move_coordinator(self, index: int, node_id: int, live: Collection[int]) -> None:
        """Make a live node the coordinator of a partition."""
        self.coordinators[index] = node_id
        self.update(live)

    def on_node_failure(self, node_id: int, live: Collection[int]) -> None:
        """Move the coordinators of a node that is down to live nodes."""
        for index, leader in enumerate(self.coordinators):
            if leader == node_id:
                start = index % len(self._node_ids)
                order = self._node_ids[start:] + self._node_ids[:start]
                self.coordinators[index] = next((node for node in order if node in live), NO_LEADER)
        self.update(live)

    def on_node_startup(self, node_id: int, live: Collection[int]) -> None:
        """Make a node that starts the coordinator of partitions that have none."""
        self.coordinators = [
            node_id if leader == NO_LEADER else leader for leader in self.coordinators
        ]
        self.update(live)

    def update(self, live: Collection[int]) -> None:
        """Make the coordinators the leaders."""
        count = min(MAX_REPLICAS, len(self._node_ids))
        for topic in self.topics.values():
            for partition, leader in zip(topic.partitions, self.coordinators, strict=True):
                order = [
                    self._node_ids[(partition.index + offset) % len(self._node_ids)]
                    for offset in range(count)
                ]
                if leader not in {*order, NO_LEADER}:
                    order[-1] = leader
                partition.replicas = order
                partition.isr = [node for node in order if node in live] or order[:1]
                if partition.leader_epoch == 0 and partition.leader == NO_LEADER:
                    partition.leader = leader
                else:
                    partition.make_leader(leader)

    def to_json(self) -> list[dict[str, Any]]:
        """Return what `load` takes."""
        return [
            {
                "name": topic.name,
                "topic_id": uuid_to_text(topic.topic_id),
                "configs": topic.configs,
            }
            for topic in self.topics.values()
        ]

    def load(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Load the topics that another start of the broker stored."""
        for entry in saved:
            self.create(entry["name"], uuid_from_text(entry["topic_id"]), entry["configs"])
