"""What the exactly-once sink decides.

Each task writes in a transaction of its own and leaves it open; the driver ends all of them when
all tasks are done. Who dies in between leaves some ended and some not, and the batch is run again:
what tells the rerun is a *marker* of each task, an offset that is committed inside of its
transaction, and the *plan* of the batch, which the driver commits before it ends the first one.
The first to be ended is always that of the first task with rows: where its marker does not stand at
a batch, no other one does.
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
    from aiokafkawire.producer import PreparedTransaction

__all__ = (
    "CHECKSUM_MODULUS",
    "BatchPlan",
    "CommittedTask",
    "EmptyTask",
    "Fingerprint",
    "Marker",
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
    """Rows that are to be written once, however often they are given.

    The names of groups and transactional ids begin with `sink`; `query` is the stream's
    id ("" for a batch query), `number` Spark's number of the micro-batch, or the user's. `topic` is
    that whose partitions the markers are offsets of.
    """

    sink: str
    query: str
    number: int
    topic: str

    def transactional_id(self, task: int) -> str:
        """Of each attempt of a task, so that a later one fences the earlier."""
        return f"{self.sink}-{task}"

    @property
    def plan_group(self) -> str:
        """The group that has the plan, at partition 0."""
        return f"{self.sink}-plan"

    def __str__(self) -> str:
        return f"batch {self.number} of the sink {self.sink!r}"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells rows from other rows, whatever their order."""

    rows: int = 0
    checksum: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        checksum = (self.checksum + other.checksum) % CHECKSUM_MODULUS
        return Fingerprint(self.rows + other.rows, checksum)

    def __str__(self) -> str:
        return f"{self.rows} rows with the checksum {self.checksum:x}"


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch of which a task's rows are committed, and what they were."""

    query: str
    number: int
    rows: int
    checksum: int

    @classmethod
    def for_batch(cls, batch: SinkBatch, fingerprint: Fingerprint) -> Marker:
        return cls(batch.query, batch.number, fingerprint.rows, fingerprint.checksum)

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.rows, self.checksum)

    def to_offset(self) -> OffsetAndMetadata:
        """The marker as it is committed."""
        return _to_offset(self)

    @classmethod
    def from_offset(cls, offset: OffsetAndMetadata | None) -> Marker | None:
        """Read what `to_offset` gave. Raises `KafkaError` for anything else."""
        return None if offset is None else _from_offset(cls, offset)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What the tasks of a batch were when the driver began to end their transactions.

    `first` is the task that is ended first, `width` the number of partitions of the markers' topic
    when the sink began: it says where markers are, and does not change any more.
    """

    query: str
    number: int
    tasks: int
    first: int
    rows: int
    digest: str
    width: int

    def to_offset(self) -> OffsetAndMetadata:
        """The plan as it is committed."""
        return _to_offset(self)

    @classmethod
    def from_offset(cls, offset: OffsetAndMetadata | None) -> BatchPlan | None:
        """Read what `to_offset` gave. Raises `KafkaError` for anything else."""
        return None if offset is None else _from_offset(cls, offset)


# --- what tasks tell the driver ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EmptyTask:
    """The task had no rows: it has neither a transaction nor a marker."""

    task: int


@dataclass(frozen=True, slots=True)
class PreparedTask:
    """The task's rows and its marker are with the brokers; the driver ends the transaction."""

    task: int
    batch: SinkBatch
    width: int
    fingerprint: Fingerprint
    prepared: PreparedTransaction


@dataclass(frozen=True, slots=True)
class CommittedTask:
    """An earlier run of the batch has committed the task with the same rows: it wrote nothing."""

    task: int
    batch: SinkBatch
    width: int
    fingerprint: Fingerprint


TaskResult = EmptyTask | PreparedTask | CommittedTask


# --- decisions --------------------------------------------------------------------------------


def task_slot(batch: SinkBatch, width: int, task: int) -> tuple[str, int]:
    """The group and the partition that have a task's marker.

    Partitions must exist for Kafka to take their offsets: tasks beyond them go to further groups.
    All are numbered, so that those of the sinks `a` and `a-1` are not the same.
    """
    row, partition = divmod(task, width)
    return f"{batch.sink}-{row}", partition


def find_committed_marker(
    batch: SinkBatch, plan: BatchPlan | None, marker: Marker | None
) -> Marker | None:
    """The marker of the task if its part of the batch is committed; None if it is to be written.

    Raises `KafkaError` where the sink is of another query, or has gone past this batch.
    """
    for last in (plan, marker):
        if last is None:
            continue
        if last.query != batch.query:
            raise KafkaError(
                f"the sink {batch.sink!r} was written by {_query_name(last.query)}, and not by"
                f" {_query_name(batch.query)}, whose batches may be others: give txnAppId another"
                " name"
            )
        if last.number > batch.number:
            raise KafkaError(
                f"{batch} comes too late: the sink has gone on to {last.number}. Either the"
                " checkpoint or txnVersion was set back, or this run is not the only one"
            )
    return marker if marker is not None and marker.number == batch.number else None


def verify_fingerprint(batch: SinkBatch, task: int, marker: Marker, found: Fingerprint) -> None:
    """Raise `KafkaError` unless a task that is committed has the same rows again."""
    if marker.fingerprint != found:
        raise KafkaError(
            f"task {task} of {batch} is committed with {marker.fingerprint}, and this run has"
            f" {found} for it. {_ROWS_CHANGED}"
        )


def build_plan(results: Sequence[TaskResult]) -> tuple[SinkBatch, BatchPlan] | None:
    """What is to be ended; None if no task had rows. Raises `KafkaError` if tasks disagree."""
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
    """Whether the plan must be committed before anything is ended.

    `has_commits`: the first task of `committed_plan`, a plan for the same batch, is committed.
    Raises `KafkaError` if that plan is another one.
    """
    find_committed_marker(batch, committed_plan, None)
    if committed_plan is None:
        return True
    if committed_plan.width != new_plan.width:
        # Who comes next would look for markers where the plan says.
        raise _width_mismatch(batch, "its plan and its tasks", committed_plan.width, new_plan.width)
    if committed_plan.number < new_plan.number:
        return True
    if committed_plan.digest == new_plan.digest:
        return False
    if has_commits:
        raise KafkaError(
            f"{batch} is committed in part, as {committed_plan.tasks} tasks with"
            f" {committed_plan.rows} rows; this run has {new_plan.tasks} tasks with"
            f" {new_plan.rows} rows. {_ROWS_CHANGED}"
        )
    return True


def partial_commit_error(
    batch: SinkBatch,
    committed: Collection[int],
    not_committed: Collection[int],
    unknown: Collection[int],
    reason: KafkaError,
) -> KafkaError:
    """The error for a batch whose tasks were not all committed; its cause is the first reason."""
    parts = [f"committed are the tasks {_list_tasks(committed)}"] if committed else []
    if not_committed:
        parts.append(f"not committed are the tasks {_list_tasks(not_committed)}")
    if unknown:
        parts.append(f"of the tasks {_list_tasks(unknown)} it is not known")
    if not committed and not unknown:
        parts = ["nothing of it is committed"]
    error = KafkaError(
        f"{batch} is not written in whole: {'; '.join(parts)}. Run the query again, and it writes"
        f" what is missing. The first reason: {reason}"
    )
    error.__cause__ = reason
    return error


def _width_mismatch(batch: SinkBatch, who: str, one: int, other: int) -> KafkaError:
    return KafkaError(
        f"{batch}: {who} do not agree where markers are ({one} and {other} partitions of"
        f" {batch.topic}): run it again"
    )


_ROWS_CHANGED = (
    "Its plan does not give the same rows to the same tasks each time, which exactlyOnce needs."
    " Nothing more is written; with another name for txnAppId the batch would be written anew, and"
    " what is committed of it be there twice"
)

MAX_LISTED_TASKS = 20


def _list_tasks(tasks: Iterable[int]) -> str:
    numbers = sorted(tasks)
    listed = ", ".join(map(str, numbers[:MAX_LISTED_TASKS]))
    more = len(numbers) - MAX_LISTED_TASKS
    return f"{listed} and {more} more" if more > 0 else listed


def _query_name(query: str) -> str:
    return f"the stream {query}" if query else "a batch query"


def _to_offset(value: Marker | BatchPlan) -> OffsetAndMetadata:
    parts = asdict(value)
    return OffsetAndMetadata(parts.pop("number"), json.dumps(parts, separators=(",", ":")))


def _from_offset(record_type: type[Any], offset: OffsetAndMetadata) -> Any:
    try:
        return record_type(number=offset.offset, **json.loads(offset.metadata))
    except (TypeError, ValueError):
        raise KafkaError(
            f"a group of the sink has an offset that is none of its own (metadata"
            f" {offset.metadata!r:.80}): give txnAppId a name that no other group has"
        ) from None
