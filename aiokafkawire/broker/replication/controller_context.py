"""State that ZooKeeper would hold: live nodes, the controller, and partition leaders.

It outlives every node. Controllers change it by Kafka's rules of leader election, and leaders
record their ISR in it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from aiokafkawire.broker.callbacks import Callbacks
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.configs import TOPIC_CONFIGS, ConfigResourceType, ConfigSource
from aiokafkawire.broker.features import ELIGIBLE_REPLICAS_VERSION
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.replication.controller_commands import Key
from aiokafkawire.broker.storage import Store
from aiokafkawire.broker.topics import NO_LEADER, Partition
from aiokafkawire.wire import ZERO_UUID

__all__ = ("ControllerContext",)


class ControllerContext(ClusterState):
    """State of a cluster with replication; `allow_unclean` permits unclean leader election.

    The logs of its partitions stay empty, as each node has its own. With `uses_elr`, replicas that
    left an ISR below `min.insync.replicas` remain eligible as leaders while they cannot have lost
    records (KIP-966).
    """

    def __init__(
        self,
        node_ids: Sequence[int],
        store: Store,
        options: BrokerConfig,
        rng: random.Random,
        *,
        allow_unclean: bool,
        uses_elr: bool = False,
    ) -> None:
        self.on_change = Callbacks()
        self.shutting_down: set[int] = set()
        self._controller = NO_LEADER
        self._allow_unclean = allow_unclean
        self._uses_elr = uses_elr
        self._crashed_nodes: set[int] = set()
        super().__init__(node_ids, store, options, rng)
        self.controller_epoch = 0
        self.live = []

    @property
    def controller_id(self) -> int:
        """Id of the controller, -1 if no node is up."""
        return self._controller

    def save(self) -> None:
        super().save()
        self.on_change.notify()

    # --- nodes -------------------------------------------------------------------------------

    def on_node_failure(self, node_id: int, *, session_expired: bool = False) -> None:
        if not session_expired and node_id not in self.shutting_down:
            self._crashed_nodes.add(node_id)
        self.shutting_down.discard(node_id)
        super().on_node_failure(node_id, session_expired=session_expired)

    def on_node_startup(self, node_id: int) -> None:
        super().on_node_startup(node_id)
        self._elect_controller()

    def _remove_from_isr(self, node_id: int) -> None:
        """Remove the node from every ISR, in a new leader epoch."""
        if self._controller == node_id:
            self._elect_controller()
        for partition in self.partitions():
            led = partition.leader == node_id
            rest = [replica for replica in partition.isr if replica != node_id]
            if node_id in partition.isr and (rest or self._uses_elr):
                self._set_isr(partition, rest)
                partition.leader_epoch += not led
            if led:
                self._elect_leader(partition)

    def _add_to_isr(self, node_id: int) -> None:
        """Elect leaders where there was none. The node rejoins an ISR once it has caught up."""
        crashed = node_id in self._crashed_nodes
        for partition in self.partitions():
            if crashed and node_id in partition.elr:
                # The crash may have lost unsynced records (KIP-966).
                partition.elr.remove(node_id)
            if partition.leader == NO_LEADER and node_id in partition.replicas:
                self._elect_leader(partition)
        self._crashed_nodes.discard(node_id)

    def _elect_controller(self) -> None:
        if self._controller in self.live:
            return
        self._controller = self._first_live(self.live)
        self.controller_epoch += self._controller != NO_LEADER

    # --- configs -----------------------------------------------------------------------------

    def _set_configs(
        self, resource_type: ConfigResourceType, name: str, configs: Mapping[str, str]
    ) -> None:
        super()._set_configs(resource_type, name, configs)
        for partition in self.partitions():
            if partition.leader == NO_LEADER:
                # Unclean election may be allowed now.
                self._elect_leader(partition)

    def on_features_updated(self, finalized: Mapping[str, int]) -> None:
        super().on_features_updated(finalized)
        self._uses_elr = finalized.get(ELIGIBLE_REPLICAS_VERSION, 0) > 0

    # --- leaders -----------------------------------------------------------------------------

    def move_leaders_off(self, node_id: int) -> list[Key]:
        """Move the leaders of a node that shuts down; return partitions that it still leads.

        Partitions with a single replica do not count.
        """
        self.shutting_down.add(node_id)
        shared = [each for each in self.partitions() if len(each.replicas) > 1]
        for partition in shared:
            rest = self._electable(partition.isr)
            if not rest or node_id not in partition.isr:
                continue
            if partition.leader == node_id:
                self._make_leader(partition, rest)
            else:
                self._set_isr(partition, rest)
                partition.leader_epoch += 1
        self.save()
        return [(each.topic, each.index) for each in shared if each.leader == node_id]

    def move_leader(self, partition: Partition, node_id: int) -> None:
        """Make a live in-sync node the leader."""
        if node_id not in self.live:
            raise ValueError(f"node {node_id} is not up, so it cannot lead {partition.log.name}")
        if node_id not in partition.isr:
            raise ValueError(
                f"node {node_id} is not in sync: the ISR of {partition.log.name} is {partition.isr}"
            )
        partition.make_leader(node_id)
        self.save()

    def _apply_reassignment(self, partition: Partition) -> None:
        """Pass changed replicas on in a new leader epoch. New replicas must catch up."""
        partition.leader_epoch += 1
        if not self._complete_reassignment(partition):
            self._replace_removed_leader(partition)
        self.save()
        partition.on_change.notify()

    def _replace_removed_leader(self, partition: Partition) -> None:
        if partition.leader not in partition.replicas:
            self._elect_leader(partition)

    def _elect_unclean(self, partition: Partition) -> None:
        rest = self._electable([*partition.isr, *partition.elr, *partition.replicas])[:1]
        if not rest:
            super()._elect_unclean(partition)
        self._make_leader(partition, rest)
        self.save()

    def record_isr(self, key: Key, leader: int, leader_epoch: int, isr: tuple[int, ...]) -> bool:
        """Record the ISR of a leader; return False if the leader or its epoch is outdated."""
        topic = self.topics.get(key[0])
        if topic is None or not 0 <= key[1] < len(topic.partitions):
            return False
        partition = topic.partitions[key[1]]
        is_current = (partition.leader, partition.leader_epoch) == (leader, leader_epoch)
        if not is_current or not set(isr) <= {leader, *self._electable(isr)}:
            return False
        self._set_isr(partition, isr)
        self._complete_reassignment(partition)
        self.save()
        partition.on_change.notify()
        return True

    def max_batch_bytes(self, topic: str) -> int:
        """Return the largest batch of a topic, in bytes."""
        known = self.topics.get(topic)
        if known is None:
            return self.options.max_message_bytes
        return int(self.topic_config(known, "max.message.bytes", NO_LEADER))

    def min_in_sync(self, topic: str) -> int:
        """Return the number of in-sync replicas that acks=all needs."""
        known = self.topics.get(topic)
        if known is None:
            return self.options.min_insync_replicas
        return int(self.topic_config(known, "min.insync.replicas", NO_LEADER))

    def topic_id(self, topic: str) -> UUID:
        """Return the current id of a topic, `ZERO_UUID` if there is none."""
        known = self.topics.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    def alone_in_sync(self, node_id: int) -> Iterator[Partition]:
        """Return partitions for which no other live node is certain to have all records."""
        for partition in self.partitions():
            others = [node for node in (*partition.isr, *partition.elr) if node != node_id]
            if node_id in partition.isr and not self._electable(others):
                yield partition

    def _elect_leader(self, partition: Partition) -> None:
        """Elect an in-sync replica, or any replica if unclean election is allowed."""
        rest = self._electable(partition.isr)
        if not rest:
            rest = [node for node in self._electable(partition.replicas) if node in partition.elr][
                :1
            ]
        if not rest and self._may_be_unclean(partition):
            rest = self._electable(partition.replicas)[:1]
        if not rest and not partition.isr and not partition.elr:
            # Every replica may lack records; the last leader has most of them.
            rest = self._electable([partition.last_known_leader])
        if rest:
            self._make_leader(partition, rest)
        elif partition.leader != NO_LEADER:
            # The last in-sync replicas stay in the ISR, as each of them has all records.
            partition.make_leader(NO_LEADER)

    def _make_leader(self, partition: Partition, isr: Sequence[int]) -> None:
        """Make the first replica in the ISR the leader."""
        self._set_isr(partition, isr)
        partition.last_known_leader = NO_LEADER
        partition.make_leader(next(node for node in partition.replicas if node in isr))

    def _set_isr(self, partition: Partition, isr: Sequence[int]) -> None:
        """Set the ISR, and the ELR of replicas that have all acknowledged records."""
        if self._uses_elr:
            needed = min(self.min_in_sync(partition.topic), len(partition.replicas))
            complete = {*partition.isr, *partition.elr} if len(isr) < needed else set()
            partition.elr = [
                replica
                for replica in partition.replicas
                if replica in complete and replica not in isr
            ]
            if not isr and partition.leader != NO_LEADER:
                partition.last_known_leader = partition.leader
        partition.isr = list(isr)

    def _electable(self, nodes: Iterable[int]) -> list[int]:
        return [node for node in nodes if node in self.live and node not in self.shutting_down]

    def _may_be_unclean(self, partition: Partition) -> bool:
        name = "unclean.leader.election.enable"
        own = self.topics[partition.topic].configs
        values = self.dynamic_configs.topic_values(own, name, TOPIC_CONFIGS[name], NO_LEADER)
        value = next(values)
        if value.source is ConfigSource.DEFAULT_CONFIG:
            return self._allow_unclean
        return value.value == "true"
