"""Results of records, which tests of handlers compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from aiokafkawire.records import Record
from aiokafkawire.worker.letters import Origin, read_retry_state

if TYPE_CHECKING:
    from aiokafkawire.worker.partition_work import WorkItem

__all__ = ("RecordResult", "RecordResults", "WorkerResults")


class RecordResult(NamedTuple):
    """Result of a record after an attempt.

    Attributes:
        record: The record that was read; for a delayed retry, that of the retry topic.
        origin: Where the record was written first, also after delayed retries.
        attempts: Attempts so far, including those before delayed retries.
        error: Exception of the last attempt; None if it succeeded.
        reason: Why there is no further attempt; empty if the record was processed or is retried.
    """

    record: Record
    origin: Origin
    attempts: int
    error: BaseException | None
    reason: str


class RecordResults(list[RecordResult]):
    """Results in the order in which they occurred."""

    __slots__ = ()

    def keys(self) -> list[bytes | None]:
        """Return the keys of the records."""
        return [result.record.key for result in self]

    def values(self) -> list[bytes | None]:
        """Return the values of the records."""
        return [result.record.value for result in self]


@dataclass(slots=True)
class WorkerResults:
    """Results of the records of a worker, by kind.

    Attributes:
        processed: Records whose handler returned.
        retried: Failed attempts that were repeated in place.
        delayed: Records that were written to a retry topic.
        dead: Records that were written to the dead letter topic.
        dropped: Records that a handler dropped.
    """

    processed: RecordResults = field(default_factory=RecordResults)
    retried: RecordResults = field(default_factory=RecordResults)
    delayed: RecordResults = field(default_factory=RecordResults)
    dead: RecordResults = field(default_factory=RecordResults)
    dropped: RecordResults = field(default_factory=RecordResults)


def processed_result(item: WorkItem) -> RecordResult:
    """Return the result of a record whose handler has returned."""
    return RecordResult(item.record, origin_of(item), item.total_attempts + 1, None, "")


def failed_result(item: WorkItem, reason: str = "") -> RecordResult:
    """Return the result of a record whose attempt has failed."""
    return RecordResult(item.record, origin_of(item), item.total_attempts, item.error, reason)


def origin_of(item: WorkItem) -> Origin:
    """Return where the record of an item was written before its delayed retries."""
    record = item.record
    if item.tier:
        return read_retry_state(record).origin
    return Origin(record.topic, record.partition, record.offset, record.timestamp_ms)
