"""Who coordinates groups and transactional ids, and how long it takes a node to load them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokafkawire.broker.cluster_state import NO_LEADER, ClusterState
from aiokafkawire.broker.groups.coordinator import Groups
from aiokafkawire.broker.transactions import Transactions
from aiokafkawire.runtime import Clock

__all__ = ("CoordinatorLoader",)


class CoordinatorLoader:
    """Sees what moves from node to node; a node takes `load_s` to read what it coordinates."""

    def __init__(
        self,
        cluster: ClusterState,
        groups: Groups,
        transactions: Transactions,
        clock: Clock,
        *,
        load_s: float,
    ) -> None:
        self._cluster = cluster
        self._groups = groups
        self._transactions = transactions
        self._clock = clock
        self._load_s = load_s
        self._loaded_at: dict[int, float] = {}

    @contextmanager
    def coordinator_changes(self) -> Iterator[None]:
        """Let nodes come, go, or be chosen; whatever has another coordinator then is loaded."""
        before = self._cluster.coordinators
        yield
        after = self._cluster.coordinators
        moved = [index for index, node in enumerate(after) if node != before[index]]
        if not moved:
            return
        loaded_at = self._clock.now() + self._load_s
        self._loaded_at.update(dict.fromkeys(moved, loaded_at))
        for group in self._groups:
            if self._cluster.coordinator_partition(group.group_id) in moved:
                self._groups.moved(group, loaded_at)
        self._transactions.moved()

    def is_loading(self, key: str) -> bool:
        """Whether the coordinator of a group or a transactional id is not ready yet."""
        return self._loads(self._cluster.coordinator_partition(key))

    def is_available(self, key: str) -> bool:
        """Whether there is a coordinator of a group or a transactional id that is ready."""
        return self._cluster.coordinator(key) != NO_LEADER and not self.is_loading(key)

    def is_loading_any(self, node_id: int) -> bool:
        """Whether a node has not read yet all that it coordinates."""
        coordinators = self._cluster.coordinators
        return any(
            coordinators[index] == node_id and self._loads(index) for index in self._loaded_at
        )

    def _loads(self, index: int) -> bool:
        return self._clock.now() < self._loaded_at.get(index, 0.0)
