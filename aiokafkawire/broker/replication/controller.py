"""What a controller tells each node: the difference of what is to what it has told. A machine.

It keeps no queue of orders. A node is told one thing at a time, and after each answer the next that
it does not know yet; so one that was unreachable is told what is true when it is back, not what
happened in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from aiokafkawire.broker.cluster_state import ClusterState, Partition
from aiokafkawire.broker.replication.messages import (
    LEADER_DURING_DELETE,
    Assignment,
    Key,
    LeadOrder,
    LiveNode,
    MetadataOrder,
    Order,
    StopOrder,
)
from aiokafkawire.runtime import Address

__all__ = ("Controller",)


@dataclass(slots=True)
class _Known:
    """What one node was told: what it leads or follows, and what it tells clients."""

    led: dict[Key, tuple[UUID, int]] = field(default_factory=dict)
    shown: dict[Key, Assignment] = field(default_factory=dict)
    live: Mapping[int, LiveNode] | None = None


class Controller:
    """One node's term as the controller; the next controller begins a new one.

    `internal` are the addresses of nodes for each other, `shown` those for clients.
    """

    def __init__(
        self,
        node_id: int,
        epoch: int,
        cluster: ClusterState,
        internal: Mapping[int, Address],
        shown: Mapping[int, Address],
    ) -> None:
        self.node_id = node_id
        self.epoch = epoch
        self._cluster = cluster
        self._internal = internal
        self._shown = shown
        self._known: dict[int, _Known] = {}
        self._given: dict[int, Order] = {}

    def forget(self, node_id: int) -> None:
        """The node knows nothing any more, whatever it was just told: it died."""
        self._known.pop(node_id, None)
        self._given.pop(node_id, None)

    def next_order(self, node_id: int) -> Order | None:
        """What a node has to be told first, None if it knows everything."""
        order = self._order(node_id)
        if order is not None:
            self._given[node_id] = order
        return order

    def obeyed(self, node_id: int, order: Order) -> None:
        """A node answered to the order that it was given last, whatever it said."""
        if self._given.pop(node_id, None) is not order:
            return
        known = self._known[node_id]
        match order:
            case StopOrder():
                for key in order.partitions:
                    known.led.pop(key, None)
            case LeadOrder():
                for key, told in order.partitions.items():
                    known.led[key] = order.topic_ids[key[0]], told.leader_epoch
            case MetadataOrder():
                known.live = order.live
                for key, told in order.partitions.items():
                    if told.leader == LEADER_DURING_DELETE:
                        known.shown.pop(key, None)
                    else:
                        known.shown[key] = told

    def knows_all(self, node_id: int) -> bool:
        """Whether there is nothing to tell to a node."""
        return self._order(node_id) is None

    # --- orders ------------------------------------------------------------------------------

    def _order(self, node_id: int) -> Order | None:
        if node_id not in self._cluster.live:
            return None
        known = self._known.setdefault(node_id, _Known())
        return self._stop(node_id, known) or self._lead(node_id, known) or self._metadata(known)

    def _stop(self, node_id: int, known: _Known) -> StopOrder | None:
        """Partitions that are no more, or whose name another topic has by now."""
        here = {key: topic_id for key, topic_id, _ in self._partitions(node_id)}
        gone = {key: True for key, (topic_id, _) in known.led.items() if here.get(key) != topic_id}
        if not gone:
            return None
        return StopOrder(controller_id=self.node_id, controller_epoch=self.epoch, partitions=gone)

    def _lead(self, node_id: int, known: _Known) -> LeadOrder | None:
        told: dict[Key, Assignment] = {}
        topic_ids: dict[str, UUID] = {}
        for key, topic_id, partition in self._partitions(node_id):
            assignment = _assignment(partition)
            if assignment.led and known.led.get(key) != (topic_id, partition.leader_epoch):
                told[key], topic_ids[key[0]] = assignment, topic_id
        if not told:
            return None
        leaders = dict.fromkeys(assignment.leader for assignment in told.values())
        return LeadOrder(
            controller_id=self.node_id,
            controller_epoch=self.epoch,
            partitions=told,
            leaders={node: self._internal[node] for node in leaders if node in self._internal},
            topic_ids=topic_ids,
        )

    def _metadata(self, known: _Known) -> MetadataOrder | None:
        live = {
            node: LiveNode(self._shown[node], self._cluster.racks.get(node))
            for node in self._cluster.live
            if node in self._shown
        }
        present = {
            (topic.name, partition.index): _assignment(partition)
            for topic in self._cluster.topics.values()
            for partition in topic.partitions
        }
        told = {key: now for key, now in present.items() if known.shown.get(key) != now}
        for key, before in known.shown.items():
            if key not in present:
                told[key] = Assignment(
                    LEADER_DURING_DELETE, before.leader_epoch, before.isr, before.replicas
                )
        if not told and live == known.live:
            return None
        topics = self._cluster.topics
        return MetadataOrder(
            controller_id=self.node_id,
            controller_epoch=self.epoch,
            partitions=told,
            live=live,
            topic_ids={name: topics[name].topic_id for name, _ in told if name in topics},
        )

    def _partitions(self, node_id: int) -> Iterator[tuple[Key, UUID, Partition]]:
        for topic in self._cluster.topics.values():
            for partition in topic.partitions:
                if node_id in partition.replicas:
                    yield (topic.name, partition.index), topic.topic_id, partition


def _assignment(partition: Partition) -> Assignment:
    return Assignment(
        partition.leader,
        partition.leader_epoch,
        tuple(partition.isr),
        tuple(partition.replicas),
    )
