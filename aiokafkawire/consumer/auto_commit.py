"""Commits the offsets after processed records at intervals."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from aiokafkawire.cluster.cluster import Cluster
from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import CommitFailed, KafkaError
from aiokafkawire.group.offsets import GroupOffsets
from aiokafkawire.logs import FailureStreak, log_fields
from aiokafkawire.runtime import Clock, Supervisor, in_slices
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire import ErrorCode

from .assignment import ConsumerAssignment, offsets_to_commit
from .partition import AssignedPartition

__all__ = ("AutoCommit",)

logger = logging.getLogger("aiokafkawire.consumer")


class AutoCommit:
    """Commits processed records every `auto_commit_interval_ms`."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        supervisor: Supervisor,
        config: ConsumerConfig,
        *,
        assignment: ConsumerAssignment,
        offsets: GroupOffsets,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._supervisor = supervisor
        self._config = config
        self._assignment = assignment
        self._offsets = offsets
        self._failures = FailureStreak()

    async def run(self) -> None:
        """Commit at intervals, until cancelled."""
        interval_s = self._config.auto_commit_interval_ms / 1000
        due = self._clock.now()
        while True:
            due = max(due + interval_s, self._clock.now())
            await self._clock.sleep_until(due)
            commit_ids: list[int] = []
            count = 0
            async for partitions in in_slices(self._assignment.values()):
                offsets = self.uncommitted(
                    partition
                    for partition in partitions
                    # The coordinator refuses commits of a deleted topic.
                    if not partition.pending_revocation
                    and self._assignment.get(partition.tp) is partition
                    and self._cluster.metadata.errors.get(partition.tp.topic)
                    != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                if offsets:
                    commit_ids.append(self._offsets.submit(offsets))
                    count += len(offsets)
            if commit_ids:
                await self.wait_and_log(commit_ids, count)

    def uncommitted(
        self, partitions: Iterable[AssignedPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets of these partitions that are neither committed nor submitted."""
        owned = [*partitions]
        return offsets_to_commit(
            owned, self._offsets.pending_offsets(partition.tp for partition in owned)
        )

    async def wait_and_log(self, commit_ids: Sequence[int], count: int) -> None:
        """Wait for commits of `count` partitions. A failure is logged, not raised."""
        deadline = self._clock.now() + self._config.default_api_timeout_ms / 1000
        try:
            await self._offsets.wait_acknowledged(commit_ids, deadline)
        except KafkaError as error:
            self._assignment.counters.commit_failures += 1
            is_lost = isinstance(error, CommitFailed)
            logger.log(
                self._failures.failed(logging.WARNING, self._clock.now()),
                "Group %s: auto-commit failed: %s; %s",
                self._config.group_id,
                error,
                "the new owner reads the uncommitted records again" if is_lost else "retrying",
                extra=log_fields(self._supervisor.fields, error=error, partitions=count),
            )
            return
        outage_s = self._failures.ended(self._clock.now())
        if outage_s is not None:
            logger.info(
                "Group %s: auto-commit succeeds again after %.3f s",
                self._config.group_id,
                outage_s,
                extra=log_fields(self._supervisor.fields, outage_ms=round(outage_s * 1_000)),
            )
