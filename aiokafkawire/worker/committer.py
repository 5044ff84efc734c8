"""Commits the offsets of finished records."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import BrokerError, CommitFailed, KafkaError
from aiokafkawire.logs import count_partitions, log_fields
from aiokafkawire.runtime import Clock
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.wire.error_codes import ErrorCode
from aiokafkawire.worker.finished_records import decode_metadata
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

    @property
    def is_committing(self) -> bool:
        """True while a commit waits for its outcome."""
        return self._lock.locked()

    async def wait_until_idle(self) -> None:
        """Wait for the outcome of the commit that runs."""
        async with self._lock:
            pass

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
            offsets = await self._send(offsets)
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

    async def _send(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit offsets, without metadata if it is too large; return what is committed."""
        try:
            await self._consumer.commit(offsets)
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_METADATA_TOO_LARGE:
                raise
            logger.warning(
                "Group %s: the broker's offset.metadata.max.bytes is too small to commit finished"
                " records above the committed offset; they are processed again after a rebalance",
                self._consumer.config.group_id,
                extra=log_fields(self._fields, error=error),
            )
            self._scheduler.commits_finished = False
            offsets = {
                tp: dataclasses.replace(offset, metadata="") for tp, offset in offsets.items()
            }
            await self._consumer.commit(offsets)
        return offsets

    async def restore(self, partitions: Collection[TopicPartition]) -> None:
        """Do not process records again that the last commit of new partitions names as finished.

        Failures are logged: the records are processed again.
        """
        if not partitions or not self._scheduler.commits_finished:
            return
        # Partitions may be lost meanwhile.
        trackers = {tp: self._scheduler.partition(tp).offsets for tp in partitions}
        try:
            committed = await self._consumer.committed(*partitions)
        except KafkaError as error:
            logger.warning(
                "Group %s: the commits of %s cannot be read; finished records may be processed"
                " again: %s",
                self._consumer.config.group_id,
                count_partitions(partitions),
                error,
                extra=log_fields(self._fields, error=error),
            )
            return
        for tp, offset in committed.items():
            if offset is not None:
                finished = decode_metadata(offset.offset, offset.metadata)
                if finished is not None:
                    trackers[tp].restore(finished)
