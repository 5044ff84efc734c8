"""Results of records, which tests of handlers compare."""

from __future__ import annotations

from collections.abc import Iterator
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


def record_results(
    item: WorkItem, *, number: int = 1, is_processed: bool = False, reason: str = ""
) -> Iterator[RecordResult]:
    """Yield the results of the first unfinished records of an item.

    Args:
        item: A running item.
        number: Number of records.
        is_processed: Whether the handler returned; its attempt is not counted yet.
        reason: Why there is no further attempt.
    """
    attempts = item.failures.total_attempts + is_processed
    error = None if is_processed else item.failures.error
    for record in item.records[item.index : item.index + number]:
        if item.failures.tier:
            origin = read_retry_state(record).origin
        else:
            origin = Origin(record.topic, record.partition, record.offset, record.timestamp_ms)
        yield RecordResult(record, origin, attempts, error, reason)
