"""The circuit breaker: its states, and a worker that pauses."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.producer import Producer
from aiokafkawire.runtime.state_machine import InvalidTransition
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker import Drop, RetryPolicy, Worker
from aiokafkawire.worker.circuit_breaker import BreakerEvent, BreakerState, CircuitBreaker
from aiokafkawire.worker.partition_work import Budget, PartitionWork, WorkItem
from aiokafkawire.worker.scheduler import Scheduler
from tests.worker.helpers import handler, record

WITHIN_S = 20.0
ERROR = ConnectionError("no database")


def an_item(offset: int = 0) -> WorkItem:
    work = PartitionWork(TopicPartition("t", 0), Budget(100))
    return WorkItem([record(offset)], work, handler())


def opened(limit: int = 2) -> CircuitBreaker:
    """Return a breaker that opened at 0 s, for 10 s."""
    breaker, item = CircuitBreaker(limit, 10.0), an_item()
    for number in range(limit):
        assert breaker.can_start
        assert breaker.on_failure(item, ERROR, 0.0) == (number == limit - 1)
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_failures_in_a_row_open_it():
    breaker, item = CircuitBreaker(2, 10.0), an_item()
    breaker.on_failure(item, ERROR, 0.0)
    breaker.on_success(item)
    breaker.on_failure(item, ERROR, 0.0)
    assert breaker.state is BreakerState.CLOSED
    breaker.on_failure(item, ERROR, 3.0)
    assert breaker.state is BreakerState.OPEN
    assert (breaker.due, breaker.failures, breaker.error) == (13.0, 2, ERROR)


def test_one_probe_starts_after_the_pause():
    breaker, probe = opened(), an_item()
    assert not breaker.can_start
    breaker.on_time(9.9)
    assert not breaker.can_start
    breaker.on_time(10.0)
    assert breaker.can_start
    breaker.on_started(probe)
    assert not breaker.can_start
    assert breaker.on_success(probe)
    assert breaker.state is BreakerState.CLOSED
    assert (breaker.failures, breaker.error) == (0, None)


def test_the_pause_doubles_with_each_probe_that_fails():
    breaker, probe, pauses = opened(), an_item(), []
    for _ in range(6):
        now = breaker.due
        breaker.on_time(now)
        breaker.on_started(probe)
        assert breaker.on_failure(probe, ERROR, now)
        breaker.on_ended(probe)
        assert breaker.state is BreakerState.OPEN
        pauses.append(breaker.due - now)
    assert pauses == [20, 40, 80, 160, 160, 160]
    breaker.on_time(breaker.due)
    breaker.on_started(probe)
    assert breaker.on_success(probe)
    for number in range(2):
        assert breaker.on_failure(probe, ERROR, 0.0) == bool(number)
    assert breaker.due == 10.0


def test_a_probe_without_an_attempt_lets_another_start():
    breaker, probe = opened(), an_item()
    breaker.on_time(10.0)
    breaker.on_started(probe)
    breaker.on_ended(an_item())
    assert not breaker.can_start
    breaker.on_ended(probe)
    assert breaker.can_start


def test_attempts_from_before_the_pause_do_not_change_it():
    breaker, before, probe = opened(), an_item(), an_item()
    assert not breaker.on_success(before)
    assert not breaker.on_failure(before, ERROR, 5.0)
    breaker.on_time(10.0)
    breaker.on_started(probe)
    assert not breaker.on_success(before)
    assert not breaker.on_failure(before, ERROR, 10.0)
    assert (breaker.state, breaker.failures) == (BreakerState.PROBING, 2)


def test_a_transition_that_is_missing_is_an_error():
    with pytest.raises(InvalidTransition):
        CircuitBreaker(1, 1.0)._transition(BreakerEvent.PAUSE_ENDED)


def test_the_scheduler_hands_out_nothing_while_it_is_open():
    breaker = opened()
    scheduler = Scheduler(max_records=10, max_bytes=1_000, breaker=breaker)
    work = scheduler.partition(TopicPartition("t", 0))
    records = [record(0), record(1)]
    work.offsets.add(records)
    for each in records:
        scheduler.add(WorkItem([each], work, handler()))
    assert scheduler.take(5.0) is None
    assert scheduler.next_due == 10.0
    scheduler.release_due(10.0)
    assert scheduler.next_due is None
    probe = scheduler.take(10.0)
    assert probe is not None
    assert scheduler.take(10.0) is None
    assert breaker.on_success(probe)
    assert scheduler.take(10.0) is not None


@pytest.fixture
async def broker() -> Any:
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(10):
                await producer.send_and_wait("orders", b"%d" % number, key=b"%d" % number)
        yield broker


@pytest.mark.parametrize("order_by", ["partition", "key"])
async def test_a_worker_waits_while_its_handlers_fail(broker: Broker, order_by: Any):
    worker = Worker(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="billing",
        concurrency=2,
        pause_after_failures=2,
        pause_ms=50,
    )
    is_down, attempts = True, 0
    seen: list[Any] = []

    @worker.on("orders", order_by=order_by, retries=RetryPolicy(attempts=9, backoff_ms=0))
    async def process(record: Any) -> None:
        nonlocal is_down, attempts
        attempts += 1
        if attempts == 5:
            seen.append((worker.health(), worker.metrics()["handlers_paused"]))
            is_down = False
        if is_down:
            raise ERROR

    with anyio.fail_after(WITHIN_S):
        results = await worker.run_until_idle()
    assert len(results.processed) == 10
    assert attempts <= 10 + 5
    ((health, paused),) = seen
    assert (health.is_alive, health.is_ready, paused) == (True, False, 1)
    assert "handlers are paused after" in health.reasons[0]
    assert "no database" in health.reasons[0]


async def test_a_record_that_always_fails_does_not_stop_the_worker(broker: Broker):
    worker = Worker(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="billing",
        pause_after_failures=1,
        pause_ms=20,
    )

    @worker.on("orders", retries=RetryPolicy(attempts=3, backoff_ms=0))
    async def process(record: Any) -> None:
        if record.offset == 4:
            raise ValueError

    with anyio.fail_after(WITHIN_S):
        results = await worker.run_until_idle()
    assert results.dead.values() == [b"4"]
    assert len(results.processed) == 9


async def test_records_that_are_dropped_or_cannot_be_decoded_do_not_pause(broker: Broker):
    worker = Worker(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="billing",
        pause_after_failures=1,
        pause_ms=3_600_000,
    )

    def decode(value: bytes) -> int:
        if value == b"3":
            raise ValueError(value)
        return int(value)

    @worker.on("orders", value=decode)
    async def process(record: Any) -> None:
        if record.value % 2:
            raise Drop

    with anyio.fail_after(WITHIN_S):
        results = await worker.run_until_idle()
    assert len(results.processed) == 5
    assert len(results.dropped) == 4
    assert results.dead.values() == [b"3"]
