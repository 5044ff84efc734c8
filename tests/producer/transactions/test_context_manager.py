"""The exit of `async with producer.transaction()`."""

from __future__ import annotations

import anyio
import pytest

from aiokafkawire import end_detached_transaction
from aiokafkawire.broker import Answer, Broker, Drop, SeenRequest
from aiokafkawire.errors import (
    BrokerError,
    ClientClosed,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    RequestTimedOut,
    TransactionFailed,
)
from aiokafkawire.producer import Producer
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.elapsed import ends_within
from tests.producer.short_timeouts import max_block
from tests.producer.transactions.conftest import NewProducer, visible


class Oops(Exception):
    """An exception of the application."""


async def fail(producer: Producer, error: Exception) -> None:
    async with producer.transaction():
        await producer.send_and_wait("t", b"never")
        raise error


async def test_a_clean_exit_commits(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        async with producer.transaction():
            await producer.send("t", b"v")
        assert await visible(broker) == [b"v"]


async def test_an_exception_aborts_and_is_raised_unchanged(
    broker: Broker, new_producer: NewProducer
):
    error = Oops("own")
    async with new_producer() as producer:
        with pytest.raises(Oops) as raised:
            await fail(producer, error)
        assert raised.value is error
        assert not hasattr(error, "__notes__")
        async with producer.transaction():
            await producer.send("t", b"v")
    assert await visible(broker) == [b"v"]


async def test_a_cancellation_aborts(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        with anyio.CancelScope() as scope:
            async with producer.transaction():
                await producer.send_and_wait("t", b"never")
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert broker.requests.of(ApiKey.END_TXN)
        async with producer.transaction():
            await producer.send("t", b"v")
    assert await visible(broker) == [b"v"]


@pytest.mark.slow
async def test_an_abort_delays_a_cancellation_only_briefly(
    broker: Broker, new_producer: NewProducer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "aiokafkawire.producer.transactions.context_manager.CANCELLED_ABORT_S", 0.05
    )
    async with new_producer(request_timeout_ms=200) as producer:
        silent = broker.on(ApiKey.END_TXN, Drop())
        with ends_within(5), anyio.CancelScope() as scope:
            async with producer.transaction():
                await producer.send_and_wait("t", b"never")
                scope.cancel()
                await anyio.sleep_forever()
        silent.remove()
        # The abort continues, and the next transaction waits for it.
        async with producer.transaction():
            await producer.send("t", b"v")
    assert await visible(broker) == [b"v"]


@pytest.mark.slow
async def test_a_failed_abort_is_a_note_on_the_exception(broker: Broker, new_producer: NewProducer):
    async with new_producer(request_timeout_ms=300) as producer:
        await producer.partitions_for("t")
        silent = broker.on(ApiKey.END_TXN, Drop())
        with max_block(producer, 200), pytest.raises(Oops) as raised:
            await fail(producer, Oops())
        silent.remove()
    (note,) = raised.value.__notes__
    assert note.startswith("the transaction was not aborted: timed out waiting: the coordinator")


async def test_a_commit_that_fails_aborts(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:

        async def work() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"never", partition=0)
                broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD), times=1)
                await producer.send("t", b"refused", partition=0)

        with pytest.raises(TransactionFailed, match="INVALID_RECORD") as failed:
            await work()
        assert not hasattr(failed.value, "__notes__")
        async with producer.transaction():
            await producer.send("t", b"v")
    assert await visible(broker) == [b"v"]


async def test_a_record_that_failed_is_what_the_body_raises(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD), times=1)
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            async with producer.transaction():
                await producer.send_and_wait("t", b"refused")
    assert await visible(broker) == []


@pytest.mark.slow
async def test_a_commit_that_times_out_is_not_aborted(broker: Broker, new_producer: NewProducer):
    async with new_producer(request_timeout_ms=300) as producer:
        await producer.partitions_for("t")
        silent = broker.on(ApiKey.END_TXN, Drop(carried_out=True))
        with max_block(producer, 200), pytest.raises(RequestTimedOut, match="is not known"):
            async with producer.transaction():
                await producer.send("t", b"v")
        silent.remove()
        await producer.commit_transaction()
    assert await visible(broker) == [b"v"]


async def test_a_transaction_ended_in_the_body_is_left_as_it_is(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        async with producer.transaction():
            await producer.send("t", b"v")
            await producer.commit_transaction()
        async with producer.transaction():
            await producer.send_and_wait("t", b"never")
            await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"given away")
            prepared = await producer.detach_transaction()
    await end_detached_transaction(
        prepared, commit=True, bootstrap_servers=broker.bootstrap_servers
    )
    assert sorted(value or b"" for value in await visible(broker)) == [b"given away", b"v"]


async def test_one_producer_has_one_transaction_at_a_time(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer, producer.transaction():
        with pytest.raises(InvalidTxnState, match="a transaction is already open"):
            async with producer.transaction():
                pass
        await producer.send("t", b"v")
    assert await visible(broker) == [b"v"]


async def test_the_exit_raises_a_fencing_that_the_body_did_not_notice(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:

        async def body() -> None:
            async with producer.transaction():
                delivery = await producer.send("t", b"never")
                with pytest.raises(KafkaError):
                    await delivery

        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.PRODUCER_FENCED), times=1)
        with pytest.raises(ProducerFenced, match="newer producer"):
            await body()
        # The exit raised the error, so closing does not raise it again.
    assert await visible(broker) == []


async def test_the_exit_raises_if_the_producer_was_closed(
    broker: Broker, new_producer: NewProducer
):
    async def body(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send_and_wait("t", b"never")
            await producer.stop()

    producer = new_producer()
    await producer.start()
    with pytest.raises(ClientClosed):
        await body(producer)
    assert await visible(broker) == []


async def test_a_commit_that_failed_after_its_cancellation_is_reported_once(
    broker: Broker, new_producer: NewProducer
):
    caller_left = anyio.Event()

    async def refuse_late(_: SeenRequest) -> Answer:
        await caller_left.wait()
        return Answer(ErrorCode.INVALID_RECORD)

    async with new_producer(request_timeout_ms=10_000) as producer:
        with anyio.fail_after(20), anyio.CancelScope() as scope:
            broker.on(ApiKey.PRODUCE, refuse_late, times=1)
            async with producer.transaction():
                await producer.send("t", b"never")
                await broker.wait_for_request(ApiKey.PRODUCE)
                scope.deadline = anyio.current_time() + 0.02
        caller_left.set()
        with pytest.raises(TransactionFailed):
            async with producer.transaction():
                await producer.send("t", b"never")
        async with producer.transaction():
            await producer.send("t", b"v")
    assert await visible(broker) == [b"v"]
