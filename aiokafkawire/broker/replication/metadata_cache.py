"""What one node tells clients of the cluster: what the controller told it last."""

from __future__ import annotations

from aiokafkawire.broker.replication.messages import (
    LEADER_DURING_DELETE,
    Assignment,
    LiveNode,
    MetadataOrder,
)
from aiokafkawire.broker.topics import NO_LEADER

__all__ = ("MetadataCache",)


class MetadataCache:
    """UpdateMetadata alone sets it, whatever the node itself leads or follows."""

    def __init__(self) -> None:
        self.controller_id = NO_LEADER
        self.live: dict[int, LiveNode] = {}
        self.topics: dict[str, dict[int, Assignment]] = {}

    def update(self, order: MetadataOrder) -> None:
        """Take the nodes as the only ones that live, and what is said of partitions beside it."""
        self.controller_id = order.controller_id
        self.live = dict(order.live)
        for (topic, index), told in order.partitions.items():
            if told.leader != LEADER_DURING_DELETE:
                self.topics.setdefault(topic, {})[index] = told
                continue
            known = self.topics.get(topic, {})
            known.pop(index, None)
            if not known:
                self.topics.pop(topic, None)
