"""Log lines about failed attempts, dropped records and dead letters."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.producer import Producer
from aiokafkawire.worker import BatchPolicy, DeadLetter, Drop, FailedAt, RetryPolicy, Worker
from tests.worker.helpers import until

WITHIN_S = 20.0


@pytest.fixture
async def broker() -> Any:
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", b"1")
        yield broker


async def lines_of(
    broker: Broker,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    batch: BatchPolicy | None = None,
) -> list[tuple[int, str]]:
    """Return level and text of the lines about a record whose handler raises an error."""
    worker = Worker(bootstrap_servers=broker.bootstrap_servers, group_id="billing")

    @worker.on("orders", retries=RetryPolicy(attempts=2, backoff_ms=0), batch=batch)
    async def bill(record: Any) -> None:
        raise error

    with caplog.at_level(logging.INFO, "aiokafkawire.worker"), anyio.fail_after(WITHIN_S):
        await worker.run_until_idle()
    return [
        (line.levelno, line.getMessage())
        for line in caplog.records
        if line.name == "aiokafkawire.worker" and "offset 0" in line.getMessage()
    ]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Drop("a test order"), "orders-0 offset 0: dropped by bill: a test order"),
        (Drop(), "orders-0 offset 0: dropped by bill"),
    ],
)
async def test_a_dropped_record_is_no_failure(
    broker: Broker, caplog: pytest.LogCaptureFixture, error: Drop, text: str
):
    assert await lines_of(broker, caplog, error) == [(logging.INFO, text)]


async def test_a_batch_names_the_dropped_record(broker: Broker, caplog: pytest.LogCaptureFixture):
    error = FailedAt(0)
    error.__cause__ = Drop("a test order")
    assert await lines_of(broker, caplog, error, BatchPolicy(max_wait_ms=1)) == [
        (logging.INFO, "orders-0 offset 0: dropped by bill: a test order")
    ]


@pytest.mark.parametrize("error", [DeadLetter("no such customer"), DeadLetter()])
async def test_the_reason_of_a_dead_letter_is_not_repeated(
    broker: Broker, caplog: pytest.LogCaptureFixture, error: DeadLetter
):
    assert await lines_of(broker, caplog, error) == [
        (logging.WARNING, f"orders-0 offset 0: attempt 1 of bill failed: {error!r}"),
        (
            logging.ERROR,
            f"Group billing: orders-0 offset 0: written to billing.dead at attempt 1: {error!r}",
        ),
    ]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
async def test_many_undecodable_records_do_not_fill_the_log(
    broker: Broker, caplog: pytest.LogCaptureFixture, guarantee: Any
):
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(4):
            await producer.send_and_wait("orders", b"{")
    worker = Worker(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="billing",
        processing_guarantee=guarantee,
    )

    @worker.on("orders", value=dict)
    async def bill(record: Any) -> None:
        pytest.fail("it cannot be decoded")

    with caplog.at_level(logging.DEBUG, "aiokafkawire.worker"), anyio.fail_after(WITHIN_S):
        results = await worker.run_until_idle()
    assert len(results.dead) == 5
    levels = [
        (line.levelname, line.getMessage().startswith("Group billing: "))
        for line in caplog.records
        if line.name == "aiokafkawire.worker" and "cannot be deserialized" in line.getMessage()
    ]
    others = [("DEBUG", False), ("DEBUG", True)] * 4
    assert sorted(levels) == sorted([("WARNING", False), ("ERROR", True), *others])


async def test_a_record_without_attempts_left_has_the_reason_and_the_error(
    broker: Broker, caplog: pytest.LogCaptureFixture
):
    assert await lines_of(broker, caplog, ValueError("no customer")) == [
        (
            logging.WARNING,
            "orders-0 offset 0: attempt 1 of bill failed; next attempt in 0.000 s:"
            " ValueError('no customer')",
        ),
        (
            logging.WARNING,
            "orders-0 offset 0: attempt 2 of bill failed; all attempts failed:"
            " ValueError('no customer')",
        ),
        (
            logging.ERROR,
            "Group billing: orders-0 offset 0: written to billing.dead at attempt 2 (all attempts"
            " failed): ValueError('no customer')",
        ),
    ]


@pytest.mark.parametrize("batch", [None, BatchPolicy(max_records=1, max_wait_ms=0)])
async def test_a_failure_during_a_stop_announces_no_attempt(
    broker: Broker, caplog: pytest.LogCaptureFixture, batch: BatchPolicy | None
):
    worker = Worker(bootstrap_servers=broker.bootstrap_servers, group_id="billing")

    @worker.on("orders", retries=RetryPolicy(attempts=2), batch=batch)
    async def bill(records: Any) -> None:
        record = records if batch is None else records[0]
        worker.request_stop()
        await until(lambda: not record._item.partition.is_active)
        raise ValueError("too early")

    with anyio.fail_after(WITHIN_S):
        await worker.run()
    assert (
        "orders-0 offset 0: attempt 1 of bill failed; the worker gives up the partition, and the"
        " record is delivered again: ValueError('too early')"
    ) in caplog.messages
