"""Decisions of the exactly-once sink, without I/O.

Each task writes in its own transaction and leaves it open. When all tasks are done, the driver
commits all transactions. If the driver fails in between, some are committed and others are not, and
Spark runs the batch again.

Two kinds of committed offsets show the repeat what is already written. Each task commits a *marker*
in its transaction. The driver commits the *plan* of the batch before it commits the first
transaction. The transaction of the first task with rows is always committed first: if its marker is
not at a batch, no other marker is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from aiokafkawire.errors import KafkaError
from aiokafkawire.types import OffsetAndMetadata

if TYPE_CHECKING:
    from aiokafkawire.producer import DetachedTransaction

__all__ = (
    "CHECKSUM_MODULUS",
    "BatchPlan",
    "CommittedBatchMarker",
    "CommittedTask",
    "EmptyTask",
    "Fingerprint",
    "PreparedTask",
    "SinkBatch",
    "TaskResult",
    "build_plan",
    "find_committed_marker",
    "must_commit_plan",
    "partial_commit_error",
    "task_slot",
    "verify_fingerprint",
)

CHECKSUM_MODULUS = 2**64


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """One batch of a sink, whose rows are written once even if Spark repeats it.

    Attributes:
        sink: The prefix of the sink's consumer groups and transactional ids.
        query: The stream's id, or "" for a batch query.
        number: Spark's number of the micro-batch, or the user's `txnVersion`.
        topic: The topic whose offsets the markers are.
    """

    sink: str
    query: str
    number: int
    topic: str

    def transactional_id(self, task: int) -> str:
        """Return the transactional id of a task; each attempt fences the previous one."""
        return f"{self.sink}-{task}"

    @property
    def plan_group(self) -> str:
        """The consumer group whose committed offset of partition 0 is the plan."""
        return f"{self.sink}-plan"

    def __str__(self) -> str:
        return f"batch {self.number} of the sink {self.sink!r}"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A count and a checksum of rows that do not depend on their order."""

    rows: int = 0
    checksum: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        checksum = (self.checksum + other.checksum) % CHECKSUM_MODULUS
        return Fingerprint(self.rows + other.rows, checksum)

    def __str__(self) -> str:
        return f"{self.rows} rows with checksum {self.checksum:x}"


@dataclass(frozen=True, slots=True)
class CommittedBatchMarker:
    """The last batch whose rows a task committed, and the fingerprint of these rows.

    A task commits it as an offset with metadata, in the same transaction as the rows.
    """

    query: str
    number: int
    rows: int
    checksum: int

    @classmethod
    def for_batch(cls, batch: SinkBatch, fingerprint: Fingerprint) -> CommittedBatchMarker:
        return cls(batch.query, batch.number, fingerprint.rows, fingerprint.checksum)

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.rows, self.checksum)

    def to_offset(self) -> OffsetAndMetadata:
        """Encode the marker: the offset is the number of the batch, the rest is its metadata."""
        return _to_offset(self)

    @classmethod
    def from_offset(cls, offset: OffsetAndMetadata | None) -> CommittedBatchMarker | None:
        """Decode a committed offset that `to_offset` encoded; None if nothing is committed.

        Raises:
            KafkaError: Another application has committed the offset.
        """
        return None if offset is None else _from_offset(cls, offset)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The tasks of a batch when the driver starts to commit their transactions.

    Attributes:
        query: The stream's id, or "" for a batch query.
        number: The number of the batch.
        tasks: The number of tasks.
        first: The task whose transaction is committed first.
        rows: The number of rows in all tasks.
        digest: A digest of the fingerprints of all tasks.
        width: The number of partitions of the marker topic when the sink was first used. It decides
            the place of each marker, and never changes.
    """

    query: str
    number: int
    tasks: int
    first: int
    rows: int
    digest: str
    width: int

    def to_offset(self) -> OffsetAndMetadata:
        """Encode the plan: the offset is the number of the batch, the rest is its metadata."""
        return _to_offset(self)

    @classmethod
    def from_offset(cls, offset: OffsetAndMetadata | None) -> BatchPlan | None:
        """Decode a committed offset that `to_offset` encoded; None if nothing is committed.

        Raises:
            KafkaError: Another application has committed the offset.
        """
        return None if offset is None else _from_offset(cls, offset)


# --- results of tasks -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EmptyTask:
    """A task without rows, which has no transaction and no marker."""

    task: int


@dataclass(frozen=True, slots=True)
class PreparedTask:
    """A task that has written its rows and marker; the driver ends its transaction."""

    task: int
    batch: SinkBatch
    width: int
    fingerprint: Fingerprint
    prepared: DetachedTransaction


@dataclass(frozen=True, slots=True)
class CommittedTask:
    """A task that wrote nothing, because an earlier run has committed the same rows."""

    task: int
    batch: SinkBatch
    width: int
    fingerprint: Fingerprint


TaskResult = EmptyTask | PreparedTask | CommittedTask


# --- decisions --------------------------------------------------------------------------------


def task_slot(batch: SinkBatch, width: int, task: int) -> tuple[str, int]:
    """Return the group and the partition of a task's marker.

    Kafka accepts offsets only for existing partitions, so tasks beyond `width` use further groups.
    All groups are numbered, so that those of the sinks `a` and `a-1` differ.
    """
    row, partition = divmod(task, width)
    return f"{batch.sink}-{row}", partition


def find_committed_marker(
    batch: SinkBatch, plan: BatchPlan | None, marker: CommittedBatchMarker | None
) -> CommittedBatchMarker | None:
    """Return the task's marker if its rows are committed, or None if it must write them.

    Args:
        batch: The batch to write.
        plan: The committed plan of the sink.
        marker: The committed marker of the task.

    Raises:
        KafkaError: Another query has written to the sink, or a later batch has been written.
    """
    for last in (plan, marker):
        if last is None:
            continue
        if last.query != batch.query:
            raise KafkaError(
                f"the sink {batch.sink!r} belongs to {_query_name(last.query)}, not to"
                f" {_query_name(batch.query)}: set txnAppId to a name that no other query uses"
            )
        if last.number > batch.number:
            raise KafkaError(
                f"{batch} is older than batch {last.number}, which the sink has already written."
                " Either the checkpoint or txnVersion was reset, or another run of the query is"
                " active"
            )
    return marker if marker is not None and marker.number == batch.number else None


def verify_fingerprint(
    batch: SinkBatch, task: int, marker: CommittedBatchMarker, actual: Fingerprint
) -> None:
    """Check that a committed task has the same rows in this run.

    Raises:
        KafkaError: The rows differ.
    """
    if marker.fingerprint != actual:
        raise KafkaError(
            f"task {task} of {batch} is committed with {marker.fingerprint}, but this run has"
            f" {actual}. {_ROWS_CHANGED}"
        )


def build_plan(results: Sequence[TaskResult]) -> tuple[SinkBatch, BatchPlan] | None:
    """Build the plan of a batch from the results of its tasks.

    Returns:
        The batch and its plan, or None if no task has rows.

    Raises:
        KafkaError: Tasks disagree about the batch or the places of the markers.
    """
    results_with_rows = [result for result in results if not isinstance(result, EmptyTask)]
    if not results_with_rows:
        return None
    first = min(results_with_rows, key=lambda result: result.task)
    batch = first.batch
    for result in results_with_rows:
        if (result.batch, result.width) != (batch, first.width):
            who = f"tasks {first.task} and {result.task}"
            raise _width_mismatch(batch, who, first.width, result.width)
    digest = hashlib.sha256()
    for result in sorted(results_with_rows, key=lambda result: result.task):
        digest.update(f"{result.task}:{result.fingerprint}\n".encode())
    plan = BatchPlan(
        query=batch.query,
        number=batch.number,
        tasks=len(results),
        first=first.task,
        rows=sum(result.fingerprint.rows for result in results_with_rows),
        digest=digest.hexdigest()[:32],
        width=first.width,
    )
    return batch, plan


def must_commit_plan(
    batch: SinkBatch, committed_plan: BatchPlan | None, new_plan: BatchPlan, *, has_commits: bool
) -> bool:
    """Return whether to commit the new plan before the first transaction.

    Args:
        batch: The batch to commit.
        committed_plan: The committed plan of the sink, if there is one.
        new_plan: The plan of this run.
        has_commits: The first task of `committed_plan`, a plan of the same batch, is committed.

    Raises:
        KafkaError: The plans differ, and tasks of the committed plan are already committed; or
            they disagree about the places of the markers.
    """
    find_committed_marker(batch, committed_plan, None)
    if committed_plan is None:
        return True
    if committed_plan.width != new_plan.width:
        # The next run would look for markers in the places of the plan.
        raise _width_mismatch(batch, "its plan and its tasks", committed_plan.width, new_plan.width)
    if committed_plan.number < new_plan.number:
        return True
    if committed_plan.digest == new_plan.digest:
        return False
    if has_commits:
        raise KafkaError(
            f"{batch} is partly committed, with {committed_plan.rows} rows in"
            f" {committed_plan.tasks} tasks; this run has {new_plan.rows} rows in"
            f" {new_plan.tasks} tasks. {_ROWS_CHANGED}"
        )
    return True


def partial_commit_error(
    batch: SinkBatch,
    committed: Collection[int],
    not_committed: Collection[int],
    unknown: Collection[int],
    reason: KafkaError,
) -> KafkaError:
    """Return the error for a batch that is not fully committed.

    Args:
        batch: The batch.
        committed: Tasks whose transactions are committed.
        not_committed: Tasks whose transactions are not committed.
        unknown: Tasks whose outcome is unknown.
        reason: The first error, which becomes the cause.
    """
    parts = [f"committed tasks: {_list_tasks(committed)}"] if committed else []
    if not_committed:
        parts.append(f"uncommitted tasks: {_list_tasks(not_committed)}")
    if unknown:
        parts.append(f"tasks with unknown outcome: {_list_tasks(unknown)}")
    if not committed and not unknown:
        parts = ["no task is committed"]
    error = KafkaError(
        f"{batch} is not fully written ({'; '.join(parts)}). Run the query again to write the"
        f" missing tasks. First error: {reason}"
    )
    error.__cause__ = reason
    return error


def _width_mismatch(batch: SinkBatch, who: str, one: int, other: int) -> KafkaError:
    return KafkaError(
        f"{batch}: {who} disagree about the places of markers ({one} and {other} partitions of"
        f" {batch.topic}); run the batch again"
    )


_ROWS_CHANGED = (
    "exactlyOnce requires that a repeated batch gives the same rows to the same tasks. Nothing more"
    " is written. With another txnAppId the whole batch would be written again, and its committed"
    " rows would be duplicated"
)

MAX_LISTED_TASKS = 20


def _list_tasks(tasks: Iterable[int]) -> str:
    numbers = sorted(tasks)
    listed = ", ".join(map(str, numbers[:MAX_LISTED_TASKS]))
    more = len(numbers) - MAX_LISTED_TASKS
    return f"{listed} and {more} more" if more > 0 else listed


def _query_name(query: str) -> str:
    return f"the stream {query}" if query else "a batch query"


def _to_offset(value: CommittedBatchMarker | BatchPlan) -> OffsetAndMetadata:
    parts = asdict(value)
    return OffsetAndMetadata(parts.pop("number"), json.dumps(parts, separators=(",", ":")))


def _from_offset(record_type: type[Any], offset: OffsetAndMetadata) -> Any:
    try:
        return record_type(number=offset.offset, **json.loads(offset.metadata))
    except (TypeError, ValueError):
        raise KafkaError(
            f"a consumer group of the sink has an offset of another application (metadata"
            f" {offset.metadata!r:.80}): set txnAppId to a prefix that no other group has"
        ) from None
