"""Coordinator changes, and the time that a new coordinator needs to load its state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.groups.group_coordinator import GroupCoordinator
from aiokafkawire.broker.topics import NO_LEADER
from aiokafkawire.broker.transactions import TransactionCoordinator
from aiokafkawire.runtime import Clock

__all__ = ("CoordinatorLoader",)


class CoordinatorLoader:
    """Tracks coordinator changes. A new coordinator loads its keys for `load_s` seconds."""

    def __init__(
        self,
        cluster: ClusterState,
        group_coordinator: GroupCoordinator,
        transaction_coordinator: TransactionCoordinator,
        clock: Clock,
        *,
        load_s: float,
    ) -> None:
        self._cluster = cluster
        self._group_coordinator = group_coordinator
        self._transaction_coordinator = transaction_coordinator
        self._clock = clock
        self._load_s = load_s
        self._loaded_at: dict[int, float] = {}

    @contextmanager
    def coordinator_changes(self) -> Iterator[None]:
        """Compare coordinators before and after the block; start loading where they changed."""
        before = self._cluster.coordinators
        yield
        after = self._cluster.coordinators
        moved = [index for index, node in enumerate(after) if node != before[index]]
        if not moved:
            return
        loaded_at = self._clock.now() + self._load_s
        self._loaded_at.update(dict.fromkeys(moved, loaded_at))
        for group in self._group_coordinator:
            if self._cluster.coordinator_partition(group.group_id) in moved:
                self._group_coordinator.on_coordinator_changed(group, loaded_at)
        self._transaction_coordinator.on_coordinator_changed()

    def is_loading(self, key: str) -> bool:
        """Return True while the coordinator of a group or transactional id is loading."""
        return self._loads(self._cluster.coordinator_partition(key))

    def is_available(self, key: str) -> bool:
        """Return True if a group or transactional id has a coordinator that is ready."""
        return self._cluster.coordinator(key) != NO_LEADER and not self.is_loading(key)

    def is_loading_any(self, node_id: int) -> bool:
        """Return True while a node is loading any of its groups or transactional ids."""
        coordinators = self._cluster.coordinators
        return any(
            coordinators[index] == node_id and self._loads(index) for index in self._loaded_at
        )

    def _loads(self, index: int) -> bool:
        return self._clock.now() < self._loaded_at.get(index, 0.0)
