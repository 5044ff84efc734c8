"""Log lines of handlers have the fields of their record."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.hooks import RecordLogFields
from aiokafkawire.producer import Producer
from aiokafkawire.worker import BatchPolicy, Retry, Worker, WorkerRecord

logger = logging.getLogger("shop")

Line = tuple[str, object, object, object]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(3):
                await producer.send_and_wait("orders", b"%d" % number)
        yield broker


@pytest.fixture
def fields(caplog: pytest.LogCaptureFixture) -> RecordLogFields:
    fields = RecordLogFields()
    caplog.set_level(logging.INFO, "shop")
    caplog.handler.addFilter(fields)
    return fields


def worker_with(broker: Broker, fields: RecordLogFields) -> Worker:
    return Worker(bootstrap_servers=broker.bootstrap_servers, group_id="billing", hooks=[fields])


def lines(caplog: pytest.LogCaptureFixture) -> list[Line]:
    return [
        (
            line.message,
            *(vars(line).get(f"kafka_{name}") for name in ("group", "offset", "attempt")),
        )
        for line in caplog.records
        if line.name == "shop"
    ]


async def test_each_handler_logs_with_its_record(
    broker: Broker, fields: RecordLogFields, caplog: pytest.LogCaptureFixture
) -> None:
    worker = worker_with(broker, fields)

    @worker.on("orders")
    async def bill(record: WorkerRecord[bytes, bytes]) -> None:
        logger.info("billed")
        if record.offset == 1 and record.attempt == 1:
            raise Retry(0.0)

    await worker.run_until_idle()
    logger.info("stopped")
    assert lines(caplog) == [
        ("billed", "billing", 0, 1),
        ("billed", "billing", 1, 1),
        ("billed", "billing", 1, 2),
        ("billed", "billing", 2, 1),
        ("stopped", None, None, None),
    ]


async def test_functions_in_threads_inherit_the_fields(
    broker: Broker, fields: RecordLogFields, caplog: pytest.LogCaptureFixture
) -> None:
    worker = worker_with(broker, fields)

    @worker.on("orders")
    def bill(record: WorkerRecord[bytes, bytes]) -> None:
        logger.info("billed", extra={"kafka_offset": "own"} if record.offset == 1 else None)

    await worker.run_until_idle()
    assert [offset for _, _, offset, _ in lines(caplog)] == [0, "own", 2]


async def test_a_batch_has_the_fields_of_its_first_record(
    broker: Broker, fields: RecordLogFields, caplog: pytest.LogCaptureFixture
) -> None:
    worker = worker_with(broker, fields)

    @worker.on("orders", batch=BatchPolicy(max_records=10, max_wait_ms=100))
    async def bill(records: list[WorkerRecord[bytes, bytes]]) -> None:
        logger.info("billed")

    await worker.run_until_idle()
    assert lines(caplog)[0][2] == 0
