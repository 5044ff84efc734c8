"""Metadata that a node returns to clients, as last sent by the controller."""

from __future__ import annotations

from aiokafkawire.broker.cluster_topics import MAX_TOTAL_PARTITIONS
from aiokafkawire.broker.replication.controller_commands import (
    LEADER_DURING_DELETE,
    LeaderAndIsr,
    LiveNode,
    UpdateMetadataCommand,
)
from aiokafkawire.broker.topics import NO_LEADER

__all__ = ("MetadataCache",)


class MetadataCache:
    """Set by UpdateMetadata only, independently of what the node leads or follows."""

    def __init__(self) -> None:
        self.controller_id = NO_LEADER
        self.live: dict[int, LiveNode] = {}
        self.topics: dict[str, dict[int, LeaderAndIsr]] = {}
        self._count = 0

    def update(self, command: UpdateMetadataCommand) -> None:
        """Replace the live nodes and update the partitions.

        Partitions beyond `MAX_TOTAL_PARTITIONS` are ignored.
        """
        self.controller_id = command.controller_id
        self.live = dict(command.live)
        for (topic, index), assignment in command.partitions.items():
            if assignment.leader == LEADER_DURING_DELETE:
                self._delete(topic, index)
            else:
                self._set(topic, index, assignment)

    def _set(self, topic: str, index: int, assignment: LeaderAndIsr) -> None:
        known = self.topics.get(topic, {})
        if index not in known:
            if self._count >= MAX_TOTAL_PARTITIONS:
                return
            self._count += 1
        self.topics.setdefault(topic, known)[index] = assignment

    def _delete(self, topic: str, index: int) -> None:
        known = self.topics.get(topic, {})
        if known.pop(index, None) is not None:
            self._count -= 1
        if not known:
            self.topics.pop(topic, None)
