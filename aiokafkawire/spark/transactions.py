"""The exactly-once sink at work: in a task, and on the driver."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import anyio

from aiokafkawire import blocking
from aiokafkawire.config import ClientConfig, options_of
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError, ProducerFenced
from aiokafkawire.producer import Producer, end_transaction
from aiokafkawire.types import GroupMetadata, OffsetAndMetadata, TopicPartition

from .clients import borrowed
from .exactly_once import (
    Batch,
    Committed,
    Empty,
    Fingerprint,
    Marker,
    Open,
    Plan,
    Result,
    check_same,
    committed_before,
    in_part,
    place_of,
    plan_of,
    settle_plan,
)
from .writing import fingerprint_of, producer_options, send_rows, settle

if TYPE_CHECKING:
    import pyarrow

__all__ = ("abort_all", "end_all", "write_in_transaction")

logger = logging.getLogger("aiokafkawire.spark")

MAX_ENDING = 16
"""Transactions that the driver ends at a time; each takes a connection of its own."""

LOOK_S = 5.0
"""How long the driver looks for the markers of transactions that did not end as they should."""

ABORT_S = 30.0
"""How long the driver tries to abort what will not be committed. What it leaves is aborted by the
next attempt, or by the transaction's timeout."""


COMMON = frozenset(option.name for option in options_of(ClientConfig))


# --- in a task --------------------------------------------------------------------------------


def write_in_transaction(
    client: Mapping[str, Any],
    topic: str | None,
    batch: Batch,
    task: int,
    rows: Iterator[pyarrow.RecordBatch],
) -> Result:
    """Write the rows of a task and leave their transaction open, unless they are committed already.

    Blocks. Raises `KafkaError` with topic, partition and reason if a record failed, and if what is
    committed are other rows.
    """
    filled = (part for part in rows if part.num_rows)
    first = next(filled, None)
    if first is None:
        return Empty(task)
    parts = chain((first,), filled)
    # Who has no business here shall not fence those that have.
    plan = _plan(client, batch)
    committed_before(batch, plan, None)
    transactional_id = batch.transactional_id(task)
    producer = Producer(**producer_options(client), transactional_id=transactional_id)
    try:
        # Fences earlier attempts and waits for what they had under way: their markers stand still.
        blocking.call(producer.start)
        width, marker = _standing(producer, client, batch, task, plan)
        if marker is not None:
            found = sum(map(fingerprint_of, parts), Fingerprint())
            check_same(batch, task, marker, found)
            return Committed(task, batch, width, found)
        blocking.call(producer.begin_transaction)
        found = Fingerprint()
        for part in parts:
            found += fingerprint_of(part)
            blocking.call(send_rows, producer, topic, part)
        blocking.call(settle, producer)
        blocking.call(_mark, producer, batch, width, task, found)
        return Open(task, batch, width, found, blocking.call(producer.detach))
    finally:
        # Aborts what is open, and not given away. What is to be told was raised before.
        with suppress(KafkaError):
            blocking.call(producer.stop)


def _standing(
    producer: Producer, client: Mapping[str, Any], batch: Batch, task: int, plan: Plan | None
) -> tuple[int, Marker | None]:
    """The width of the sink, and the task's marker if it stands at this batch.

    `plan` is from before the task was alone with its marker: its width stays, and that there was
    none may have changed.
    """
    if plan is None:
        plan = _plan(client, batch)
    partitions = blocking.call(producer.partitions_for, batch.topic)
    width = len(partitions) if plan is None else plan.width
    return width, committed_before(batch, plan, _marker(client, batch, width, task))


async def _mark(
    producer: Producer, batch: Batch, width: int, task: int, found: Fingerprint
) -> None:
    group, partition = place_of(batch, width, task)
    marker = {TopicPartition(batch.topic, partition): Marker.of(batch, found).to_offset()}
    await producer.send_offsets_to_transaction(marker, GroupMetadata(group))


# --- on the driver ----------------------------------------------------------------------------


def end_all(client: Mapping[str, Any], results: Sequence[Result]) -> None:
    """Commit the transactions of all tasks.

    Blocks. Raises `KafkaError` where that cannot be: it says what is committed and what is not.
    Then the batch is to be run again.
    """
    told = plan_of(results)
    if told is None:
        return
    batch, plan = told
    _record(client, batch, plan, results)
    done = {result.task for result in results if isinstance(result, Committed)}
    waiting = sorted(
        (result for result in results if isinstance(result, Open)), key=lambda result: result.task
    )
    # Before the plan's first task is committed, no other one may be.
    for some in (waiting,) if done else (waiting[:1], waiting[1:]):
        failed = blocking.call(_end, client, some, True)
        # The answer may have been lost: markers tell what is committed.
        there, unknown = _look(client, some, failed)
        done |= there | {result.task for result in some if result.task not in failed}
        if failed.keys() - there:
            missing = [result.task for result in waiting if result.task not in done | unknown]
            raise in_part(batch, done, missing, unknown, next(iter(failed.values())))


def abort_all(client: Mapping[str, Any], results: Iterable[Result | None]) -> None:
    """Abort the transactions that were not committed, as far as that can be done soon.

    Blocks. One that is committed stays so.
    """
    waiting = [result for result in results if isinstance(result, Open)]
    try:
        failed = blocking.call(_end, client, waiting, False)
    except TimeoutError:
        logger.warning("not all transactions were aborted in %g s: they will time out", ABORT_S)
    else:
        for task, error in failed.items():
            logger.warning("the transaction of task %s was not aborted: %s", task, error)


def _record(client: Mapping[str, Any], batch: Batch, plan: Plan, results: Iterable[Result]) -> None:
    """Commit the plan, unless that was done before. Raises `KafkaError` if another one stands."""
    known = _plan(client, batch)
    begun = False
    if known is not None and known.number == plan.number and known.digest != plan.digest:
        told = {type(result) for result in results if result.task == known.first}
        # Of a task that is open its marker is about to change, and would be waited for.
        begun = Committed in told
        if not begun and Open not in told:
            marker = _marker(client, batch, known.width, known.first)
            begun = marker is not None and marker.number == batch.number
    if settle_plan(batch, known, plan, begun=begun):
        with borrowed(Consumer, _marker_options(client, batch.plan_group)) as consumer:
            blocking.call(_commit, consumer, TopicPartition(batch.topic, 0), plan.to_offset())


async def _commit(consumer: Consumer, tp: TopicPartition, offset: OffsetAndMetadata) -> None:
    consumer.assign()
    await consumer.commit({tp: offset})


async def _end(
    client: Mapping[str, Any], waiting: Iterable[Open], commit: bool
) -> dict[int, KafkaError]:
    """End transactions, and return why some were not, by task."""
    options: Any = _common(client)
    limiter = anyio.CapacityLimiter(MAX_ENDING)
    failed: dict[int, KafkaError] = {}

    async def end(result: Open) -> None:
        async with limiter:
            try:
                await end_transaction(result.prepared, commit=commit, **options)
            except KafkaError as error:
                failed[result.task] = error

    with anyio.fail_after(None if commit else ABORT_S):
        async with anyio.create_task_group() as tasks:
            for result in waiting:
                tasks.start_soon(end, result)
    return failed


def _look(
    client: Mapping[str, Any], waiting: Iterable[Open], failed: Mapping[int, KafkaError]
) -> tuple[set[int], set[int]]:
    """Of the tasks whose end failed, those that are committed all the same, and those of which
    nobody knows."""
    deadline = time.monotonic() + LOOK_S
    client = {**client, "default_api_timeout_ms": round(LOOK_S * 1_000)}
    committed: set[int] = set()
    unknown: set[int] = set()
    for result in waiting:
        if result.task not in failed:
            continue
        try:
            left = deadline - time.monotonic()
            marker = _marker(client, result.batch, result.width, result.task, left)
        except (KafkaError, TimeoutError):
            # Who took over has looked, and would have written nothing had it been committed.
            if not isinstance(failed[result.task], ProducerFenced):
                unknown.add(result.task)
        else:
            if marker == Marker.of(result.batch, result.fingerprint):
                committed.add(result.task)
    return committed, unknown


# --- both -------------------------------------------------------------------------------------


def _plan(client: Mapping[str, Any], batch: Batch) -> Plan | None:
    return Plan.from_offset(_committed(client, batch, (batch.plan_group, 0)))


def _marker(
    client: Mapping[str, Any], batch: Batch, width: int, task: int, within_s: float | None = None
) -> Marker | None:
    place = place_of(batch, width, task)
    return Marker.from_offset(_committed(client, batch, place, within_s))


def _committed(
    client: Mapping[str, Any], batch: Batch, place: tuple[str, int], within_s: float | None = None
) -> OffsetAndMetadata | None:
    """The offset that a group of the sink has; one that is about to change is waited for.

    Raises `TimeoutError` after `within_s`, and asks nobody if there is no time.
    """
    if within_s is not None and within_s <= 0:
        raise TimeoutError
    group, partition = place
    tp = TopicPartition(batch.topic, partition)

    async def ask() -> OffsetAndMetadata | None:
        with anyio.fail_after(within_s):
            return (await consumer.committed(tp, stable=True))[tp]

    with borrowed(Consumer, _marker_options(client, group)) as consumer:
        return blocking.call(ask)


def _marker_options(client: Mapping[str, Any], group: str) -> dict[str, Any]:
    return {**_common(client), "group_id": group, "enable_auto_commit": False}


def _common(client: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a producer that all clients have."""
    return {name: value for name, value in client.items() if name in COMMON}
