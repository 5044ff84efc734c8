"""Deliveries, and the report of failures that no task awaits."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.errors import DeliveryUnknown, KafkaError
from aiokafkawire.producer.batch_future import BatchAppended, BatchFailed, BatchFuture, BatchSplit
from aiokafkawire.producer.delivery import Deliveries, Delivery
from aiokafkawire.producer.unreported_failures import MAX_NAMED_PARTITIONS, UnreportedFailures
from aiokafkawire.producer.yield_budget import CALLS_PER_CHECKPOINT, YieldBudget
from aiokafkawire.types import RecordMetadata, TopicPartition

ERROR = KafkaError("no luck")


def batch_future(count: int = 3, failures: UnreportedFailures | None = None) -> BatchFuture:
    made = BatchFuture("t", 1, failures or UnreportedFailures(), YieldBudget())
    made.count = count
    return made


def failed(error: Exception = ERROR, **single: Exception) -> BatchFailed:
    return BatchFailed(error, {int(index[1:]): own for index, own in single.items()})


async def wait_for_waiters(future: BatchFuture, count: int) -> None:
    while len(future.waiting_counts) < count:
        await anyio.lowlevel.checkpoint()


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        await anyio.lowlevel.checkpoint()


async def test_each_record_has_its_own_offset_and_time():
    batch = batch_future()
    deliveries = [Delivery(batch, index, 100 + index) for index in range(3)]
    assert not deliveries[0].done
    batch.complete(BatchAppended(40))
    assert [await delivery for delivery in deliveries] == [
        RecordMetadata("t", 1, 40, 100),
        RecordMetadata("t", 1, 41, 101),
        RecordMetadata("t", 1, 42, 102),
    ]


async def test_log_append_time_replaces_the_timestamp_of_the_record():
    batch = batch_future()
    batch.complete(BatchAppended(-1, 999))
    assert await Delivery(batch, 2, 5) == RecordMetadata("t", 1, -1, 999)


async def test_a_waiter_is_woken():
    batch = batch_future()
    got: list[RecordMetadata] = []

    async def wait() -> None:
        got.append(await Delivery(batch, 1, 0))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
        await wait_for_waiters(batch, 1)
        batch.complete(BatchAppended(10))
    assert [metadata.offset for metadata in got] == [11, 11]


def test_result_before_the_outcome_raises():
    with pytest.raises(RuntimeError, match="await it first"):
        Delivery(batch_future(), 0, 0).result()


async def test_each_waiter_raises_its_own_error_with_the_cause():
    batch = batch_future()
    error = DeliveryUnknown("who knows", topic="t")
    error.__cause__ = cause = KafkaError("because")
    batch.complete(failed(error))
    raised = []
    for index in (0, 0, 1):
        with pytest.raises(DeliveryUnknown) as caught:
            await Delivery(batch, index, 0)
        raised.append(caught.value)
    assert len({id(one) for one in raised}) == 3
    assert {one.topic for one in raised} == {"t"}
    assert {one.__cause__ for one in raised} == {cause}


def test_single_records_may_have_their_own_errors():
    batch = batch_future()
    batch.complete(failed(i1=KafkaError("its own")))
    with pytest.raises(KafkaError, match="no luck"):
        Delivery(batch, 0, 0).result()
    with pytest.raises(KafkaError, match="its own"):
        Delivery(batch, 1, 0).result()


def test_only_the_first_outcome_counts():
    batch = batch_future()
    batch.complete(BatchAppended(1))
    batch.complete(failed())
    assert Delivery(batch, 0, 0).result().offset == 1
    assert batch.unreported_failures.count == 0


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("leaving", [0, 1])
async def test_a_failure_is_counted_after_the_last_waiter_was_cancelled(split: bool, leaving: int):
    failures = UnreportedFailures()
    batch, part = batch_future(1, failures), batch_future(1, failures)
    delivery = Delivery(batch, 0, 0)
    scopes = [anyio.CancelScope(), anyio.CancelScope()]
    raised: list[KafkaError] = []

    async def wait(scope: anyio.CancelScope) -> None:
        with scope:
            try:
                await delivery
            except KafkaError as error:
                raised.append(error)

    async with anyio.create_task_group() as group:
        for scope in scopes:
            group.start_soon(wait, scope)
        await wait_until(lambda: batch.waiting_counts.get(0) == 2)
        scopes[leaving].cancel()
        await wait_until(lambda: scopes[leaving].cancelled_caught)
        if split:
            batch.complete(BatchSplit((0,), (part,)))
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
        scopes[1 - leaving].cancel()
        await wait_until(lambda: scopes[1 - leaving].cancelled_caught)
        (part if split else batch).complete(failed())
    assert raised == []
    assert failures.count == 1


async def test_a_failure_that_result_raises_is_not_counted():
    batch = batch_future(1)
    delivery = Delivery(batch, 0, 0)

    async def wait() -> None:
        await delivery

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await wait_for_waiters(batch, 1)
        group.cancel_scope.cancel()
        batch.complete(failed())
        with pytest.raises(KafkaError, match="no luck"):
            delivery.result()
    assert batch.unreported_failures.count == 0


# --- splits ---


async def test_waiters_follow_the_parts_of_a_split_batch():
    batch, parts = batch_future(5), (batch_future(2), batch_future(3))
    got: dict[int, int] = {}

    async def wait(index: int) -> None:
        got[index] = (await Delivery(batch, index, 0)).offset

    async with anyio.create_task_group() as group:
        for index in range(5):
            group.start_soon(wait, index)
        await wait_for_waiters(batch, 5)
        batch.complete(BatchSplit((0, 2), parts))
        late = Delivery(batch, 4, 0)
        assert not late.done
        parts[1].complete(BatchAppended(90))
        parts[0].complete(BatchAppended(50))
    assert got == {0: 50, 1: 51, 2: 90, 3: 91, 4: 92}
    assert late.done


async def test_waiters_of_a_split_batch_raise_the_failure_of_its_part():
    failures = UnreportedFailures()
    batch, part = batch_future(3, failures), batch_future(3, failures)

    async def wait() -> None:
        with pytest.raises(KafkaError):
            await Delivery(batch, 1, 0)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await wait_for_waiters(batch, 1)
        batch.complete(BatchSplit((0,), (part,)))
        part.complete(failed())
    assert failures.count == 2


# --- unreported failures ---


def test_unreported_failures_are_counted_once():
    failures = UnreportedFailures()
    batch_future(3, failures).complete(failed(KafkaError("first")))
    batch_future(2, failures).complete(failed(KafkaError("second")))
    failure = failures.take()
    assert failure is not None
    assert failure.count == 5
    assert str(failure.first) == "first"
    assert failure.__cause__ is failure.first
    assert "5 records were not delivered" in str(failure)
    assert failures.take() is None


async def test_awaiting_a_failed_delivery_removes_it_from_the_count():
    failures = UnreportedFailures()
    batch = batch_future(2, failures)
    batch.complete(failed())
    delivery = Delivery(batch, 0, 0)
    for _ in range(2):
        with pytest.raises(KafkaError):
            await delivery
    assert failures.count == 1
    with pytest.raises(KafkaError):
        Delivery(batch, 1, 0).result()
    assert failures.take() is None


async def test_a_failure_after_a_cancelled_await_is_counted():
    failures = UnreportedFailures()
    batch = batch_future(1, failures)
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(wait_for_waiters, batch, 1)

            async def cancel() -> None:
                await wait_for_waiters(batch, 1)
                scope.cancel()

            group.start_soon(cancel)
            await Delivery(batch, 0, 0)
    assert scope.cancelled_caught
    batch.complete(failed())
    assert failures.count == 1


async def test_a_failure_during_a_cancellation_is_counted_unless_raised():
    failures = UnreportedFailures()
    batch = batch_future(1, failures)
    raised = False
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:

            async def fail_and_cancel() -> None:
                await wait_for_waiters(batch, 1)
                batch.complete(failed())
                scope.cancel()

            group.start_soon(fail_and_cancel)
            with pytest.raises(KafkaError):
                await Delivery(batch, 0, 0)
            raised = True
    assert failures.count == (0 if raised else 1)


def test_failures_are_listed_by_partition():
    failures = UnreportedFailures()
    for number in range(MAX_NAMED_PARTITIONS + 2):
        made = BatchFuture("t", number, failures, YieldBudget())
        made.count = number + 1
        made.complete(failed())
    failure = failures.take()
    assert failure is not None
    assert failure.counts[TopicPartition("t", 4)] == 5
    assert len(failure.counts) == MAX_NAMED_PARTITIONS + 2
    assert ": 1 of t-0, 2 of t-1, " in str(failure)
    assert "and of 2 more partitions; the first error" in str(failure)


def test_a_reported_failure_is_not_subtracted_from_a_later_count():
    failures = UnreportedFailures()
    batch = batch_future(3, failures)
    batch.complete(failed())
    assert failures.take() is not None
    failures.mark_reported(batch)
    assert failures.count == 0
    failures.add(batch, 1, ERROR)
    assert failures.count == 1
    failures.mark_reported(batch)
    failures.mark_reported(batch)
    assert failures.take() is None


def test_many_failures_that_are_awaited_leave_no_count():
    failures = UnreportedFailures()
    batches = [batch_future(2, failures) for _ in range(5_000)]
    for batch in batches:
        batch.complete(failed())
    for batch in batches:
        for index in (0, 1):
            with pytest.raises(KafkaError):
                Delivery(batch, index, 0).result()
    assert failures.take() is None


# --- yielding to other tasks ---


async def test_awaiting_finished_deliveries_yields_from_time_to_time():
    batch = batch_future(10_000)
    batch.complete(BatchAppended(0))
    turns = 0
    done = False

    async def count_turns() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(count_turns)
        calls = 4 * CALLS_PER_CHECKPOINT
        for index in range(calls):
            await Delivery(batch, index, 0)
        others_ran = turns
        done = True
    assert 3 <= others_ran <= 20


async def test_a_batch_boundary_yields():
    yield_budget = YieldBudget()
    yield_budget.batch_ended()
    assert yield_budget.calls_left == 0
    await yield_budget.checkpoint()
    assert yield_budget.calls_left == CALLS_PER_CHECKPOINT


def test_repr_of_a_delivery_has_its_state():
    batch = batch_future()
    delivery = Delivery(batch, 0, 0)
    assert repr(delivery) == "<Delivery to t-1: pending>"
    batch.complete(failed())
    assert repr(delivery) == "<Delivery to t-1: failed>"


# --- deliveries of send_many ---


def test_deliveries_are_created_on_access():
    one, other = batch_future(), batch_future()
    deliveries = Deliveries()
    deliveries.add(Delivery(one, 7, 100), 3)
    deliveries.add(Delivery(other, 0, 200), 2)
    one.complete(BatchAppended(10))
    other.complete(BatchAppended(90))
    offsets = [17, 18, 19, 90, 91]
    assert len(deliveries) == 5
    assert [delivery.result().offset for delivery in deliveries] == offsets
    assert [deliveries[index].result().offset for index in range(5)] == offsets
    assert [deliveries[index].result().offset for index in range(-5, 0)] == offsets
    assert [delivery.result().offset for delivery in deliveries[1:4]] == offsets[1:4]
    assert [delivery.result().timestamp_ms for delivery in deliveries] == [100, 100, 100, 200, 200]
    assert repr(deliveries) == "<5 deliveries in 2 runs, 2 of them done>"


@pytest.mark.parametrize("index", [2, -3])
def test_deliveries_beyond_the_last_raise_index_error(index: int):
    deliveries = Deliveries()
    deliveries.add(Delivery(batch_future(), 0, 0), 2)
    with pytest.raises(IndexError, match="out of range for 2 deliveries"):
        deliveries[index]
