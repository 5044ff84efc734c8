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
    """

    def __init__(
        self, consumer: Consumer, scheduler: Scheduler, clock: Clock, fields: Mapping[str, object]
    ) -> None:
        self.failures = 0
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
        async with self._lock:
            offsets = self._scheduler.offsets_to_commit(partitions)
            if not offsets:
                return
            try:
                await self._consumer.commit(offsets)
            except KafkaError as error:
                self.failures += 1
                logger.log(
                    logging.INFO if isinstance(error, CommitFailed) else logging.WARNING,
                    "Group %s: commit of %s failed: %s",
                    self._consumer.config.group_id,
                    count_partitions(offsets),
                    error,
                    extra=log_fields(self._fields, error=error),
                )
            else:
                self._scheduler.mark_committed(offsets)
