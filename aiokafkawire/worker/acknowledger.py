"""Acknowledgement of the records of a share group by a worker."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import anyio

from aiokafkawire.errors import AcknowledgementFailed, KafkaError
from aiokafkawire.logs import count_partitions, log_fields
from aiokafkawire.records import Record
from aiokafkawire.runtime import Clock
from aiokafkawire.share import ShareConsumer
from aiokafkawire.share.record import ShareRecord
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.worker.offset_tracker import OffsetTracker

__all__ = ("Acknowledger", "HeldRecordTracker")

logger = logging.getLogger("aiokafkawire.worker")


class Acknowledger:
    """Accepts finished records, and sends acknowledgements at intervals.

    Records that are not finished are released when the share consumer stops.

    Attributes:
        rejects: Whether records without attempts left are rejected.
        failures: Acknowledgements that failed; their records are delivered again.
        failing_since: None: brokers that do not respond let locks expire.
    """

    def __init__(
        self,
        consumer: ShareConsumer,
        clock: Clock,
        fields: Mapping[str, object],
        *,
        rejects: bool,
    ) -> None:
        self.rejects = rejects
        self.failures = 0
        self.failing_since: float | None = None
        self._consumer = consumer
        self._clock = clock
        self._fields = fields
        self._rejected: set[tuple[TopicPartition, int]] = set()
        self._lock = anyio.Lock()

    def is_held(self, record: Record) -> bool:
        """Return whether a record is locked for this worker."""
        assert isinstance(record, ShareRecord)
        return record.lock_expires_at is not None

    def reject(self, record: Record) -> None:
        """Let a record be rejected instead of accepted when it is finished."""
        self._rejected.add((record.topic_partition, record.offset))

    def finish(self, record: Record) -> None:
        """Acknowledge a finished record."""
        assert isinstance(record, ShareRecord)
        place = record.topic_partition, record.offset
        try:
            # mutation: rejected-record-accepted
            if place in self._rejected:
                self._rejected.discard(place)
                record.reject()
            else:
                # mutation: processed-record-not-accepted
                record.accept()
        except AcknowledgementFailed as error:
            self._on_failure(error, [record.topic_partition])

    async def commit_periodically(self, interval_s: float) -> None:
        """Send acknowledgements after each interval."""
        while True:
            await self._clock.sleep_until(self._clock.now() + interval_s)
            await self.commit()

    async def commit(self, partitions: object = None) -> None:
        """Send the acknowledgements of all partitions, and log those that failed."""
        async with self._lock:
            try:
                results = await self._consumer.commit()
            except KafkaError as error:
                self._on_failure(error)
                return
            for tp, failure in results.items():
                if failure is not None:
                    self._on_failure(failure, [tp])

    def _on_failure(
        self, error: KafkaError, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """Count and log a failure of some partitions, or of all acknowledgements."""
        self.failures += 1
        logger.info(
            "Group %s: acknowledgements%s failed; their records are delivered again: %s",
            self._consumer.config.group_id,
            "" if partitions is None else f" of {count_partitions(partitions)}",
            error,
            extra=log_fields(self._fields, error=error),
        )


class HeldRecordTracker(OffsetTracker):
    """Counts the unfinished records of a partition, and has finished ones acknowledged.

    A share group has no committed offset. Its records come in any order.
    """

    __slots__ = ("_acknowledger", "_held")

    def __init__(self, acknowledger: Acknowledger) -> None:
        super().__init__()
        self._acknowledger = acknowledger
        self._held = 0

    def __len__(self) -> int:
        """Return the number of unfinished records."""
        return self._held

    def is_before(self, offset: int) -> bool:
        """Return True: a broker delivers records again."""
        return True

    def add(self, records: Sequence[Record]) -> Sequence[Record]:
        """Add delivered records."""
        self._held += len(records)
        return records

    def finish(self, records: Sequence[Record]) -> None:
        """Acknowledge finished records."""
        self._held -= len(records)
        for record in records:
            self._acknowledger.finish(record)

    @property
    def committable(self) -> OffsetAndMetadata | None:
        """None: acknowledgements take the place of offsets."""
        return None
