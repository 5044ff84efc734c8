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
    "CHECKSUMS",
    "Batch",
    "Committed",
    "Empty",
    "Fingerprint",
    "Marker",
    "Open",
    "Plan",
    "Result",
    "check_same",
    "committed_before",
    "in_part",
    "place_of",
    "plan_of",
    "settle_plan",
)

CHECKSUMS = 2**64


@dataclass(frozen=True, slots=True)
class Batch:
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
        checksum = (self.checksum + other.checksum) % CHECKSUMS
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
    def of(cls, batch: Batch, fingerprint: Fingerprint) -> Marker:
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
class Plan:
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
    def from_offset(cls, offset: OffsetAndMetadata | None) -> Plan | None:
        """Read what `to_offset` gave. Raises `KafkaError` for anything else."""
        return None if offset is None else _from_offset(cls, offset)


# --- what tasks tell the driver ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Empty:
    """The task had no rows: it has neither a transaction nor a marker."""

    task: int


@dataclass(frozen=True, slots=True)
class Open:
    """The task's rows and its marker are with the brokers; the driver ends the transaction."""

    task: int
    batch: Batch
    width: int
    fingerprint: Fingerprint
    prepared: PreparedTransaction


@dataclass(frozen=True, slots=True)
class Committed:
    """An earlier run of the batch has committed the task with the same rows: it wrote nothing."""

    task: int
    batch: Batch
    width: int
    fingerprint: Fingerprint


Result = Empty | Open | Committed


# --- decisions --------------------------------------------------------------------------------


def place_of(batch: Batch, width: int, task: int) -> tuple[str, int]:
    """The group and the partition that have a task's marker.

    Partitions must exist for Kafka to take their offsets: tasks beyond them go to further groups.
    All are numbered, so that those of the sinks `a` and `a-1` are not the same.
    """
    row, partition = divmod(task, width)
    return f"{batch.sink}-{row}", partition


def committed_before(batch: Batch, plan: Plan | None, marker: Marker | None) -> Marker | None:
    """The marker of the task if its part of the batch is committed; None if it is to be written.

    Raises `KafkaError` where the sink is of another query, or has gone past this batch.
    """
    for known in (plan, marker):
        if known is None:
            continue
        if known.query != batch.query:
            raise KafkaError(
                f"the sink {batch.sink!r} was written by {_query(known.query)}, and not by"
                f" {_query(batch.query)}, whose batches may be others: give txnAppId another name"
            )
        if known.number > batch.number:
            raise KafkaError(
                f"{batch} comes too late: the sink has gone on to {known.number}. Either the"
                " checkpoint or txnVersion was set back, or this run is not the only one"
            )
    return marker if marker is not None and marker.number == batch.number else None


def check_same(batch: Batch, task: int, marker: Marker, found: Fingerprint) -> None:
    """Raise `KafkaError` unless a task that is committed has the same rows again."""
    if marker.fingerprint != found:
        raise KafkaError(
            f"task {task} of {batch} is committed with {marker.fingerprint}, and this run has"
            f" {found} for it. {_NOT_THE_SAME}"
        )


def plan_of(results: Sequence[Result]) -> tuple[Batch, Plan] | None:
    """What is to be ended; None if no task had rows. Raises `KafkaError` if tasks disagree."""
    told = [result for result in results if not isinstance(result, Empty)]
    if not told:
        return None
    first = min(told, key=lambda result: result.task)
    batch = first.batch
    for result in told:
        if (result.batch, result.width) != (batch, first.width):
            who = f"tasks {first.task} and {result.task}"
            raise _elsewhere(batch, who, first.width, result.width)
    digest = hashlib.sha256()
    for result in sorted(told, key=lambda result: result.task):
        digest.update(f"{result.task}:{result.fingerprint}\n".encode())
    plan = Plan(
        query=batch.query,
        number=batch.number,
        tasks=len(results),
        first=first.task,
        rows=sum(result.fingerprint.rows for result in told),
        digest=digest.hexdigest()[:32],
        width=first.width,
    )
    return batch, plan


def settle_plan(batch: Batch, known: Plan | None, mine: Plan, *, begun: bool) -> bool:
    """Whether the plan must be committed before anything is ended.

    `begun`: the first task of `known`, a plan for the same batch, is committed. Raises `KafkaError`
    if that plan is another one.
    """
    committed_before(batch, known, None)
    if known is None:
        return True
    if known.width != mine.width:
        # Who comes next would look for markers where the plan says.
        raise _elsewhere(batch, "its plan and its tasks", known.width, mine.width)
    if known.number < mine.number:
        return True
    if known.digest == mine.digest:
        return False
    if begun:
        raise KafkaError(
            f"{batch} is committed in part, as {known.tasks} tasks with {known.rows} rows; this run"
            f" has {mine.tasks} tasks with {mine.rows} rows. {_NOT_THE_SAME}"
        )
    return True


def in_part(
    batch: Batch,
    committed: Collection[int],
    not_committed: Collection[int],
    unknown: Collection[int],
    reason: KafkaError,
) -> KafkaError:
    """The error for a batch whose tasks were not all committed; its cause is the first reason."""
    parts = [f"committed are the tasks {_listed(committed)}"] if committed else []
    if not_committed:
        parts.append(f"not committed are the tasks {_listed(not_committed)}")
    if unknown:
        parts.append(f"of the tasks {_listed(unknown)} it is not known")
    if not committed and not unknown:
        parts = ["nothing of it is committed"]
    error = KafkaError(
        f"{batch} is not written in whole: {'; '.join(parts)}. Run the query again, and it writes"
        f" what is missing. The first reason: {reason}"
    )
    error.__cause__ = reason
    return error


def _elsewhere(batch: Batch, who: str, one: int, other: int) -> KafkaError:
    return KafkaError(
        f"{batch}: {who} do not agree where markers are ({one} and {other} partitions of"
        f" {batch.topic}): run it again"
    )


_NOT_THE_SAME = (
    "Its plan does not give the same rows to the same tasks each time, which exactlyOnce needs."
    " Nothing more is written; with another name for txnAppId the batch would be written anew, and"
    " what is committed of it be there twice"
)

MOST_LISTED = 20


def _listed(tasks: Iterable[int]) -> str:
    numbers = sorted(tasks)
    listed = ", ".join(map(str, numbers[:MOST_LISTED]))
    more = len(numbers) - MOST_LISTED
    return f"{listed} and {more} more" if more > 0 else listed


def _query(query: str) -> str:
    return f"the stream {query}" if query else "a batch query"


def _to_offset(what: Marker | Plan) -> OffsetAndMetadata:
    parts = asdict(what)
    return OffsetAndMetadata(parts.pop("number"), json.dumps(parts, separators=(",", ":")))


def _from_offset(kind: type[Any], offset: OffsetAndMetadata) -> Any:
    try:
        return kind(number=offset.offset, **json.loads(offset.metadata))
    except (TypeError, ValueError):
        raise KafkaError(
            f"a group of the sink has an offset that is none of its own (metadata"
            f" {offset.metadata!r:.80}): give txnAppId a name that no other group has"
        ) from None
