"""Retention: deletes old segments at intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.configs import LogConfig
from aiokafkawire.broker.topics import Partition
from aiokafkawire.runtime import AutoResetEvent, Clock

__all__ = ("LogRetention",)


class LogRetention:
    """Deletes segments past `retention.ms` and `retention.bytes`.

    Without topics whose configs differ from the options there is nothing to do: a log limits its
    size at each append.

    Args:
        cluster: State with the topics.
        clock: Clock of the broker.
        interval_s: Time between two checks, in seconds.
        replicas: Returns the logs of a partition.
    """

    def __init__(
        self,
        cluster: ClusterState,
        clock: Clock,
        interval_s: float,
        replicas: Callable[[Partition], Iterable[Partition]],
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._interval_s = interval_s
        self._replicas = replicas
        self._default = LogConfig.from_options(cluster.options)
        self._configs_changed = AutoResetEvent()
        cluster.dynamic_configs.on_change.add(self._configs_changed.set)

    async def run(self) -> None:
        """Check at intervals until the broker closes."""
        while True:
            if not self._is_needed():
                await self._configs_changed.wait()
                continue
            await self._clock.sleep_until(self._clock.now() + self._interval_s)
            self.delete_expired()

    def delete_expired(self) -> None:
        """Delete what is past retention now."""
        now_ms, deleted = self._clock.wall_ms(), False
        for partition in list(self._cluster.partitions()):
            for replica in self._replicas(partition):
                if replica.log.delete_expired(now_ms, replica.high_watermark):
                    deleted = True
                    replica.on_change.notify()
        if deleted:
            self._cluster.save_if_possible()

    def _is_needed(self) -> bool:
        return any(
            self._cluster.log_config(name, node_id) != self._default
            for name in self._cluster.topics
            for node_id in self._cluster.node_ids
        )
