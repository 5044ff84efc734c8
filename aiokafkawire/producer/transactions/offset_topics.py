"""Topics whose offsets transactions commit: TxnOffsetCommit v6 names them by id (KIP-1319)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aiokafkawire.cluster import Cluster, CoordinatorType, ToCoordinator
from aiokafkawire.producer.transactions.requests import FIRST_WITH_TOPIC_IDS
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.primitives import ZERO_UUID

__all__ = ("OffsetTopics",)


class OffsetTopics:
    """Keeps the topics of committed offsets in the producer's metadata while they are in use.

    A topic without an id is not an error: the request then has names.

    Args:
        cluster: The producer's cluster.
        transactional_id: The producer's `transactional_id`.
        max_idle_s: Time after which an unused topic is dropped.
        now: Time in seconds.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, max_idle_s: float, now: Callable[[], float]
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._max_idle_s = max_idle_s
        self._now = now
        self._used_at: dict[str, float] = {}

    async def fetch_ids(self, topics: Collection[str], group_id: str, deadline: float) -> None:
        """Wait until the metadata has the topics, or the reason why it has not."""
        if not self._has_ids_in_requests(group_id):
            return
        self._use(topics)
        while any(self._is_unknown(topic) for topic in topics):
            version = self._cluster.metadata.version
            if not await self._cluster.wait_update(version, deadline):
                return

    def _use(self, topics: Collection[str]) -> None:
        now = self._now()
        new = [topic for topic in topics if topic not in self._used_at]
        self._used_at |= dict.fromkeys(topics, now)
        idle = [name for name, at in self._used_at.items() if at < now - self._max_idle_s]
        for name in idle:
            del self._used_at[name]
        self._cluster.remove_topics(idle)
        self._cluster.add_topics(new)

    def _is_unknown(self, topic: str) -> bool:
        metadata = self._cluster.metadata
        return metadata.topic_id(topic) == ZERO_UUID and topic not in metadata.errors

    def _has_ids_in_requests(self, group_id: str) -> bool:
        """Return True if the group's coordinator supports topic ids.

        Before its first request, the transaction's coordinator stands for it.
        """
        for route in (
            ToCoordinator(group_id, CoordinatorType.GROUP),
            ToCoordinator(self._transactional_id, CoordinatorType.TRANSACTION),
        ):
            versions = self._cluster.coordinator_versions(route)
            if versions is not None:
                supported = versions.ranges.get(ApiKey.TXN_OFFSET_COMMIT)
                return supported is not None and supported.max_version >= FIRST_WITH_TOPIC_IDS
        return False
