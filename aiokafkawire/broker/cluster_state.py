"""State of the cluster: topics, partitions, leaders, coordinators and live nodes."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping, Sequence

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.cluster_topics import ClusterTopics
from aiokafkawire.broker.configs import ConfigResourceType
from aiokafkawire.broker.features import ELIGIBLE_REPLICAS_VERSION
from aiokafkawire.broker.internal_topics import COORDINATOR_PARTITIONS
from aiokafkawire.broker.reassignments import (
    check_reassignment,
    check_replication_factor,
    complete_reassignment,
    revert_reassignment,
    start_reassignment,
)
from aiokafkawire.broker.topics import (
    NO_LEADER,
    Partition,
)
from aiokafkawire.wire import ErrorCode

__all__ = (
    "COORDINATOR_PARTITIONS",
    "ClusterState",
)

logger = logging.getLogger("aiokafkawire.broker")

ELECTION_NOT_NEEDED = "Leader election not needed for topic partition."


class ClusterState(ClusterTopics):
    """State that all nodes share. Changes that a restart needs are saved at once."""

    # --- nodes -------------------------------------------------------------------------------

    @property
    def controller_id(self) -> int:
        """Id of the controller, -1 if no node is up."""
        return self._first_live(self.node_ids)

    def coordinator(self, key: str) -> int:
        """Return the coordinator of a group or transactional id, -1 if no node is up."""
        return self.internal_topics.coordinators[self.coordinator_partition(key)]

    @property
    def coordinators(self) -> tuple[int, ...]:
        """Coordinator of each coordinator partition, -1 where no node is up."""
        return tuple(self.internal_topics.coordinators)

    def move_coordinator(self, key: str, node_id: int) -> None:
        """Move the coordinator partition of a key to a live node."""
        if node_id not in self.live:
            raise ValueError(f"node {node_id} is not up, so it cannot coordinate {key!r}")
        index = self.coordinator_partition(key)
        self.internal_topics.move_coordinator(index, node_id, self.live)

    def coordinator_partition(self, key: str) -> int:
        """Return the coordinator partition of a group or transactional id."""
        return zlib.crc32(key.encode()) % COORDINATOR_PARTITIONS

    def on_node_failure(self, node_id: int, *, session_expired: bool = False) -> None:
        """Move leaders and coordinators of a node that is down to live nodes.

        Args:
            node_id: Id of the node.
            session_expired: The node may still run, as only its session expired.
        """
        del session_expired
        if node_id not in self.live:
            return
        self.live.remove(node_id)
        self._remove_from_isr(node_id)
        self.internal_topics.on_node_failure(node_id, self.live)
        self.save_if_possible()

    def on_node_startup(self, node_id: int) -> None:
        """Return a node to the cluster, as follower of partitions that have a leader."""
        self.live = [other for other in self.node_ids if other in self.live or other == node_id]
        self.metadata.register(node_id)
        self._add_to_isr(node_id)
        self.internal_topics.on_node_startup(node_id, self.live)
        self.save_if_possible()

    def on_features_updated(self, finalized: Mapping[str, int]) -> None:
        """Apply the finalized features that change the cluster's behaviour."""
        uses_elr = finalized.get(ELIGIBLE_REPLICAS_VERSION, 0) > 0
        self.dynamic_configs.requires_cluster_min_insync = uses_elr

    def _remove_from_isr(self, node_id: int) -> None:
        for partition in self.partitions():
            if node_id in partition.isr and len(partition.isr) > 1:
                partition.isr.remove(node_id)
            if partition.leader == node_id:
                partition.make_leader(self._first_live(partition.replicas))

    def _add_to_isr(self, node_id: int) -> None:
        for partition in self.partitions():
            if node_id not in partition.replicas:
                continue
            if partition.leader == NO_LEADER:
                partition.isr = [node_id]
                partition.make_leader(node_id)
            elif node_id not in partition.isr:
                partition.isr.append(node_id)
                partition.on_change.notify()
            self._complete_reassignment(partition)

    def move_leader(self, partition: Partition, node_id: int) -> None:
        """Make a live node the leader. A node without a replica gets the old leader's place."""
        if node_id not in self.live:
            raise ValueError(f"node {node_id} is not up, so it cannot lead {partition.log.name}")
        if node_id not in partition.replicas:
            old = partition.leader if partition.leader in partition.replicas else -1
            place = partition.replicas.index(old) if old >= 0 else 0
            partition.isr = [
                node_id for node_id in partition.isr if node_id != partition.replicas[place]
            ]
            partition.replicas[place] = node_id
        if node_id not in partition.isr:
            partition.isr.append(node_id)
        partition.make_leader(node_id)
        self.save_if_possible()

    def elect_leader(self, partition: Partition, *, unclean: bool = False) -> None:
        """Elect the preferred leader, or with `unclean` any live replica of a leaderless partition.

        Raises:
            ApiError: No election is needed, or no replica can be elected.
        """
        preferred = partition.replicas[0]
        if partition.leader != NO_LEADER and (unclean or partition.leader == preferred):
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, ELECTION_NOT_NEEDED)
        if unclean:
            self._elect_unclean(partition)
        elif preferred not in partition.isr or preferred not in self.live:
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
            )
        else:
            self.move_leader(partition, preferred)

    def _elect_unclean(self, partition: Partition) -> None:
        """Elect any live replica. Without replication, a partition with one has a leader."""
        raise ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )

    # --- reassignments -----------------------------------------------------------------------

    def reassign(
        self, partition: Partition, target: Sequence[int], *, allow_factor_change: bool = True
    ) -> None:
        """Start to move a partition to the replicas `target` (KIP-455).

        Raises:
            ApiError: The replicas are invalid.
        """
        check_reassignment(partition, target, self.metadata.registered)
        if not allow_factor_change:
            check_replication_factor(partition, target)
        if start_reassignment(partition, target):
            self._apply_reassignment(partition)

    def cancel_reassignment(self, partition: Partition) -> None:
        """Return a partition to the replicas that it had before its reassignment.

        Raises:
            ApiError: No reassignment is in progress, or none of these replicas is in sync.
        """
        revert_reassignment(partition, is_unclean_allowed=self._may_be_unclean(partition))
        self._apply_reassignment(partition)

    def _apply_reassignment(self, partition: Partition) -> None:
        """Apply changed replicas. All nodes share the log, so every live replica is in sync."""
        partition.isr = [node for node in partition.replicas if node in self.live]
        partition.leader_epoch += 1
        if not self._complete_reassignment(partition):
            self._replace_removed_leader(partition)
        partition.on_change.notify()
        self.save_if_possible()

    def _complete_reassignment(self, partition: Partition) -> bool:
        """Remove the old replicas once the new ones are in sync; return True if they are."""
        if not complete_reassignment(partition):
            return False
        partition.leader_epoch += 1
        self._replace_removed_leader(partition)
        partition.on_change.notify()
        return True

    def _replace_removed_leader(self, partition: Partition) -> None:
        """Elect a leader if the current one is no longer a replica."""
        if partition.leader not in partition.replicas:
            partition.make_leader(self._first_live(partition.replicas))

    def _may_be_unclean(self, partition: Partition) -> bool:
        """Return True if the topic permits unclean leader election."""
        return self.topics[partition.topic].configs.get("unclean.leader.election.enable") == "true"

    # --- configs -----------------------------------------------------------------------------

    def alter_configs(
        self, resource_type: ConfigResourceType, name: str, configs: Mapping[str, str]
    ) -> None:
        """Replace all configs that are set for a resource.

        Raises:
            StorageError: The configs are unchanged.
        """
        before = self._own_configs(resource_type, name)
        self._set_configs(resource_type, name, configs)
        try:
            self.save()
        except StorageError:
            self._set_configs(resource_type, name, before)
            raise
        logger.info("Configs of %s %r: altered", resource_type.name.lower(), name)

    def _own_configs(self, resource_type: ConfigResourceType, name: str) -> Mapping[str, str]:
        if resource_type is ConfigResourceType.TOPIC:
            return self.topic(name).configs
        return self.dynamic_configs.of(resource_type, name)

    def _set_configs(
        self, resource_type: ConfigResourceType, name: str, configs: Mapping[str, str]
    ) -> None:
        if resource_type is ConfigResourceType.TOPIC:
            self.topic(name).configs = dict(configs)
            self.dynamic_configs.changed()
        else:
            self.dynamic_configs.replace(resource_type, name, configs)
