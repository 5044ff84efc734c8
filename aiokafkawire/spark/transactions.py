"""The exactly-once sink: writing in tasks, and committing on the driver."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import anyio

from aiokafkawire import blocking
from aiokafkawire.config import ClientConfig, list_options
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError, ProducerFenced
from aiokafkawire.producer import Producer, end_detached_transaction
from aiokafkawire.types import GroupMetadata, OffsetAndMetadata, TopicPartition

from .clients import borrow_client
from .exactly_once import (
    BatchPlan,
    CommittedBatchMarker,
    CommittedTask,
    EmptyTask,
    Fingerprint,
    PreparedTask,
    SinkBatch,
    TaskResult,
    build_plan,
    find_committed_marker,
    must_commit_plan,
    partial_commit_error,
    task_slot,
    verify_fingerprint,
)
from .writing import compute_fingerprint, flush_rows, producer_options, send_rows

if TYPE_CHECKING:
    import pyarrow

__all__ = ("abort_all", "commit_all", "write_in_transaction")

logger = logging.getLogger("aiokafkawire.spark")

MAX_CONCURRENT_END_TXN = 16
"""Transactions that the driver ends concurrently; each uses its own connection."""

MARKER_LOOKUP_S = 5.0
"""Timeout for looking up the markers of transactions whose commit failed."""

ABORT_TIMEOUT_S = 30.0
"""Timeout for aborting transactions. The next attempt of a task, or the transaction timeout, aborts
the remaining ones."""


CLIENT_OPTIONS = frozenset(option.name for option in list_options(ClientConfig))


# --- in a task --------------------------------------------------------------------------------


def write_in_transaction(
    client: Mapping[str, Any],
    topic: str | None,
    batch: SinkBatch,
    task: int,
    rows: Iterator[pyarrow.RecordBatch],
) -> TaskResult:
    """Write the rows of a task and leave the transaction open, unless they are already committed.

    Blocks.

    Args:
        client: Arguments of `Producer`.
        topic: The topic of all rows; None uses the column `topic`.
        batch: The batch of the sink.
        task: The number of the task.
        rows: The rows of the task.

    Raises:
        KafkaError: A record failed (with topic, partition and reason), other rows are already
            committed, or the sink belongs to another query or has written a later batch.
    """
    filled = (part for part in rows if part.num_rows)
    first = next(filled, None)
    if first is None:
        return EmptyTask(task)
    parts = chain((first,), filled)
    # Check before the producer starts: an outdated run must not fence the current one.
    plan = _fetch_plan(client, batch)
    find_committed_marker(batch, plan, None)
    transactional_id = batch.transactional_id(task)
    producer = Producer(**producer_options(client), transactional_id=transactional_id)
    try:
        # InitProducerId fences earlier attempts and waits for their transactions to end. After that
        # the markers do not change.
        blocking.call(producer.start)
        width, marker = _fetch_sink_state(producer, client, batch, task, plan)
        if marker is not None:
            fingerprint = sum(map(compute_fingerprint, parts), Fingerprint())
            verify_fingerprint(batch, task, marker, fingerprint)
            return CommittedTask(task, batch, width, fingerprint)
        blocking.call(producer.begin_transaction)
        fingerprint = Fingerprint()
        for part in parts:
            fingerprint += compute_fingerprint(part)
            blocking.call(send_rows, producer, topic, part)
        blocking.call(flush_rows, producer)
        blocking.call(_send_marker, producer, batch, width, task, fingerprint)
        return PreparedTask(
            task, batch, width, fingerprint, blocking.call(producer.detach_transaction)
        )
    finally:
        # Aborts a transaction that is still open and not detached. Any error was raised before.
        with suppress(KafkaError):
            blocking.call(producer.stop)


def _fetch_sink_state(
    producer: Producer,
    client: Mapping[str, Any],
    batch: SinkBatch,
    task: int,
    plan: BatchPlan | None,
) -> tuple[int, CommittedBatchMarker | None]:
    """Return the width of the sink, and the task's marker if its rows are committed.

    `plan` was fetched before earlier attempts were fenced. Its width is final. If there was none,
    fetch again, because another run may have committed one meanwhile.
    """
    if plan is None:
        plan = _fetch_plan(client, batch)
    partitions = blocking.call(producer.partitions_for, batch.topic)
    width = len(partitions) if plan is None else plan.width
    return width, find_committed_marker(batch, plan, _fetch_marker(client, batch, width, task))


async def _send_marker(
    producer: Producer, batch: SinkBatch, width: int, task: int, fingerprint: Fingerprint
) -> None:
    group, partition = task_slot(batch, width, task)
    marker = {
        TopicPartition(batch.topic, partition): CommittedBatchMarker.for_batch(
            batch, fingerprint
        ).to_offset()
    }
    await producer.send_offsets_to_transaction(marker, GroupMetadata(group))


# --- on the driver ----------------------------------------------------------------------------


def commit_all(client: Mapping[str, Any], results: Sequence[TaskResult]) -> None:
    """Commit the plan and the transactions of all tasks.

    Blocks.

    Args:
        client: Arguments of `Producer`.
        results: The result of each task.

    Raises:
        KafkaError: Some transactions are not committed. The error names the tasks; run the batch
            again.
    """
    planned = build_plan(results)
    if planned is None:
        return
    batch, plan = planned
    _commit_plan(client, batch, plan, results)
    done = {result.task for result in results if isinstance(result, CommittedTask)}
    prepared_tasks = sorted(
        (result for result in results if isinstance(result, PreparedTask)),
        key=lambda result: result.task,
    )
    # Commit the plan's first task before all others: see `exactly_once`.
    for chunk in (prepared_tasks,) if done else (prepared_tasks[:1], prepared_tasks[1:]):
        failed = blocking.call(_end_transactions, client, chunk, True)
        # The response of EndTxn may have been lost; markers show which tasks are committed.
        found_committed, unknown = _find_committed_tasks(client, chunk, failed)
        done |= found_committed | {result.task for result in chunk if result.task not in failed}
        if failed.keys() - found_committed:
            missing = [
                result.task for result in prepared_tasks if result.task not in done | unknown
            ]
            raise partial_commit_error(batch, done, missing, unknown, next(iter(failed.values())))


def abort_all(client: Mapping[str, Any], results: Iterable[TaskResult | None]) -> None:
    """Abort the transactions that are not committed, within `ABORT_TIMEOUT_S`.

    Blocks. Committed transactions stay committed.
    """
    prepared_tasks = [result for result in results if isinstance(result, PreparedTask)]
    try:
        failed = blocking.call(_end_transactions, client, prepared_tasks, False)
    except TimeoutError:
        logger.warning(
            "Not all transactions were aborted within %g s; the rest will time out", ABORT_TIMEOUT_S
        )
    else:
        for task, error in failed.items():
            logger.warning("Aborting the transaction of task %s failed: %s", task, error)


def _commit_plan(
    client: Mapping[str, Any], batch: SinkBatch, plan: BatchPlan, results: Iterable[TaskResult]
) -> None:
    """Commit the plan unless it is already committed.

    Raises:
        KafkaError: Tasks of another plan for this batch are already committed.
    """
    committed_plan = _fetch_plan(client, batch)
    has_commits = False
    if (
        committed_plan is not None
        and committed_plan.number == plan.number
        and committed_plan.digest != plan.digest
    ):
        first_kinds = {type(result) for result in results if result.task == committed_plan.first}
        # Do not look up the marker of a task that is still open: the look-up would wait for it.
        has_commits = CommittedTask in first_kinds
        if not has_commits and PreparedTask not in first_kinds:
            marker = _fetch_marker(client, batch, committed_plan.width, committed_plan.first)
            has_commits = marker is not None and marker.number == batch.number
    if must_commit_plan(batch, committed_plan, plan, has_commits=has_commits):
        with borrow_client(Consumer, _group_options(client, batch.plan_group)) as consumer:
            blocking.call(
                _commit_offset, consumer, TopicPartition(batch.topic, 0), plan.to_offset()
            )


async def _commit_offset(consumer: Consumer, tp: TopicPartition, offset: OffsetAndMetadata) -> None:
    consumer.assign()
    await consumer.commit({tp: offset})


async def _end_transactions(
    client: Mapping[str, Any], prepared_tasks: Iterable[PreparedTask], commit: bool
) -> dict[int, KafkaError]:
    """Commit or abort transactions concurrently, and return the errors by task."""
    options: Any = _client_options(client)
    limiter = anyio.CapacityLimiter(MAX_CONCURRENT_END_TXN)
    failed: dict[int, KafkaError] = {}

    async def end(result: PreparedTask) -> None:
        async with limiter:
            try:
                await end_detached_transaction(result.prepared, commit=commit, **options)
            except KafkaError as error:
                failed[result.task] = error

    with anyio.fail_after(None if commit else ABORT_TIMEOUT_S):
        async with anyio.create_task_group() as tasks:
            for result in prepared_tasks:
                tasks.start_soon(end, result)
    return failed


def _find_committed_tasks(
    client: Mapping[str, Any],
    prepared_tasks: Iterable[PreparedTask],
    failed: Mapping[int, KafkaError],
) -> tuple[set[int], set[int]]:
    """Look up the markers of failed tasks.

    Returns:
        The failed tasks that are committed nevertheless, and those whose outcome is unknown.
    """
    deadline = time.monotonic() + MARKER_LOOKUP_S
    client = {**client, "default_api_timeout_ms": round(MARKER_LOOKUP_S * 1_000)}
    committed: set[int] = set()
    unknown: set[int] = set()
    for result in prepared_tasks:
        if result.task not in failed:
            continue
        try:
            timeout_s = deadline - time.monotonic()
            marker = _fetch_marker(client, result.batch, result.width, result.task, timeout_s)
        except (KafkaError, TimeoutError):
            # The run that fenced this one found no marker; otherwise it would not have written.
            if not isinstance(failed[result.task], ProducerFenced):
                unknown.add(result.task)
        else:
            if marker == CommittedBatchMarker.for_batch(result.batch, result.fingerprint):
                committed.add(result.task)
    return committed, unknown


# --- both -------------------------------------------------------------------------------------


def _fetch_plan(client: Mapping[str, Any], batch: SinkBatch) -> BatchPlan | None:
    return BatchPlan.from_offset(_fetch_committed_offset(client, batch, (batch.plan_group, 0)))


def _fetch_marker(
    client: Mapping[str, Any],
    batch: SinkBatch,
    width: int,
    task: int,
    timeout_s: float | None = None,
) -> CommittedBatchMarker | None:
    slot = task_slot(batch, width, task)
    return CommittedBatchMarker.from_offset(_fetch_committed_offset(client, batch, slot, timeout_s))


def _fetch_committed_offset(
    client: Mapping[str, Any],
    batch: SinkBatch,
    slot: tuple[str, int],
    timeout_s: float | None = None,
) -> OffsetAndMetadata | None:
    """Fetch a committed offset of the sink, and wait for open transactions that may change it.

    Raises:
        TimeoutError: No stable offset within `timeout_s`. No request is sent if it is 0 or less.
    """
    if timeout_s is not None and timeout_s <= 0:
        raise TimeoutError
    group, partition = slot
    tp = TopicPartition(batch.topic, partition)

    async def fetch() -> OffsetAndMetadata | None:
        with anyio.fail_after(timeout_s):
            return (await consumer.committed(tp, stable=True))[tp]

    with borrow_client(Consumer, _group_options(client, group)) as consumer:
        return blocking.call(fetch)


def _group_options(client: Mapping[str, Any], group: str) -> dict[str, Any]:
    return {**_client_options(client), "group_id": group, "enable_auto_commit": False}


def _client_options(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a producer that every client has."""
    return {name: value for name, value in client.items() if name in CLIENT_OPTIONS}
