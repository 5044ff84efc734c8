from __future__ import annotations

import anyio
import pytest

from aiokafkawire.broker import Answer, Broker, Close, Delay, Drop
from aiokafkawire.errors import (
    ClientClosed,
    KafkaError,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
    WrongTransactionState,
)
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.producer.transactions.conftest import CLASSIC, NewProducer, visible
from tests.producer.transactions.test_ending import end, fill


async def test_p1_fenced_in_body(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.PRODUCER_FENCED), times=1)
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                delivery = await producer.send("t", b"v")
                with pytest.raises(KafkaError):
                    await delivery


async def test_p1b_stopped_in_body(broker: Broker, new_producer: NewProducer):
    producer = new_producer()
    await producer.start()
    with pytest.raises(KafkaError) as raised:
        async with producer.transaction():
            await producer.send_and_wait("t", b"v")
            await producer.stop()
    print(repr(raised.value), str(raised.value), getattr(raised.value, "__notes__", None))


async def test_p2_commit_while_another_aborts(broker: Broker, new_producer: NewProducer):
    told = []
    async with new_producer(linger_ms=10) as producer:
        held = broker.on(ApiKey.PRODUCE, Delay(50), times=1)
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD), times=1)
        await producer.begin_transaction()
        delivery = await producer.send("t", b"v")

        async def abort() -> None:
            try:
                await delivery
            except KafkaError:
                await producer.abort_transaction()

        async def commit() -> None:
            try:
                await producer.commit_transaction()
                told.append("committed")
            except KafkaError as error:
                told.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(commit)
    print(told)
    assert told[0] != "committed"


async def test_p3(broker: Broker, new_producer: NewProducer):
    prepared = await fill(new_producer())
    await end(broker, prepared, commit=True)
    with pytest.raises(KafkaError):
        await end(broker, prepared, commit=False)


async def test_p3b(broker: Broker, new_producer: NewProducer):
    prepared = await fill(new_producer())
    await end(broker, prepared, commit=False)
    with pytest.raises(TransactionFailed):
        await end(broker, prepared, commit=True)


async def test_p4_blocked_send(broker: Broker, new_producer: NewProducer):
    told = []
    async with new_producer(buffer_memory_bytes=5000, linger_ms=10_000) as producer:

        async def blocked() -> None:
            try:
                await producer.send("t", b"b" * 3000)
                told.append("taken")
            except KafkaError as error:
                told.append(error)

        broker.on(ApiKey.PRODUCE, Delay(0.2), times=1)
        async with anyio.create_task_group() as tasks:
            await producer.begin_transaction()
            await producer.send("t", b"a" * 3000)
            tasks.start_soon(blocked)
            await anyio.wait_all_tasks_blocked()
            await producer.abort_transaction()
            await producer.begin_transaction()
            await anyio.wait_all_tasks_blocked()
            await producer.commit_transaction()
    print(told)
    assert await visible(broker) == []


async def test_p6_told_once(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.PRODUCER_FENCED), times=1)
        await producer.begin_transaction()
        await producer.send("t", b"v")
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()


async def test_p5_begin_after_failed_cancelled_commit(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        broker.on(ApiKey.PRODUCE, Delay(0.1), times=1)
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD), times=1)
        broker.on(ApiKey.END_TXN, Answer(ErrorCode.INVALID_TXN_STATE), times=1)
        with anyio.move_on_after(0.05):
            async with producer.transaction():
                await producer.send("t", b"v")
        failures = 0
        for _ in range(3):
            try:
                async with producer.transaction():
                    await producer.send("t", b"w")
                break
            except TransactionFailed:
                failures += 1
        assert failures == 1
