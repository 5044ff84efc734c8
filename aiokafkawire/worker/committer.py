"""Commits the offsets of finished records."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import CommitFailed, KafkaError
from aiokafkawire.logs import count_partitions, log_fields
from aiokafkawire.runtime import Clock
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.scheduler import Scheduler

__all__ = ("Committer",)

logger = logging.getLogger("aiokafkawire.worker")


class Committer:
    """Commits for the consumer of a worker, one commit at a time.

    Attributes:
        failures: Failed commits.
        failing_since: When commits began to fail; None after a success, or if nothing is left.
    """

    def __init__(
        self, consumer: Consumer, scheduler: Scheduler, clock: Clock, fields: Mapping[str, object]
    ) -> None:
        self.failures = 0
        self.failing_since: float | None = None
        self._consumer = consumer
        self._scheduler = scheduler
        self._clock = clock
        self._fields = fields
        self._lock = anyio.Lock()

    async def commit_periodically(self, interval_s: float) -> None:
        """Commit after each interval."""
        while True:
            await self._clock.sleep_until(self._clock.now() + interval_s)
            await self.commit()

    async def commit(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Commit the offsets that changed; log failures, which the next commit repeats.

        Args:
            partitions: Defaults to all assigned partitions.
        """
        if not self._scheduler.offsets_to_commit(partitions):
            if partitions is None:
                self.failing_since = None
            return  # without waiting for a commit of other partitions
        async with self._lock:
            await self._commit(partitions)

    async def _commit(self, partitions: Collection[TopicPartition] | None) -> None:
        offsets = self._scheduler.offsets_to_commit(partitions)
        if not offsets:
            return
        try:
            await self._consumer.commit(offsets)
        except KafkaError as error:
            self._on_failure(error, offsets)
        else:
            self._scheduler.mark_committed(offsets)
            self.failing_since = None

    def _on_failure(self, error: KafkaError, offsets: Collection[TopicPartition]) -> None:
        self.failures += 1
        if self.failing_since is None:
            self.failing_since = self._clock.now()
        is_lost = isinstance(error, CommitFailed) or isinstance(error.__cause__, CommitFailed)
        logger.log(
            logging.INFO if is_lost else logging.WARNING,
            "Group %s: commit of %s failed: %s",
            self._consumer.config.group_id,
            count_partitions(offsets),
            error,
            extra=log_fields(self._fields, error=error),
        )
