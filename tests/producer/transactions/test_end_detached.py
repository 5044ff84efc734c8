"""A transaction that one process writes and another one ends."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire import DetachedTransaction, Producer, end_detached_transaction
from aiokafkawire.broker import Answer, Broker, Close, Drop
from aiokafkawire.errors import (
    BrokerError,
    InvalidTxnState,
    ProducerFenced,
    RequestTimedOut,
    TransactionFailed,
)
from aiokafkawire.wire import ApiKey, ErrorCode
from tests.producer.short_timeouts import max_block
from tests.producer.transactions.conftest import RELEASE_TV_0, NewProducer, visible

pytestmark = pytest.mark.slow

HASTY = {"request_timeout_ms": 10_000, "retry_backoff_ms": 5, "retry_backoff_max_ms": 10}


async def fill(producer: Producer) -> DetachedTransaction:
    async with producer:
        await producer.begin_transaction()
        for number in range(3):
            await producer.send("t", b"%d" % number, partition=0)
        return await producer.detach_transaction()


async def end(broker: Broker, detached: DetachedTransaction, *, commit: bool) -> None:
    servers = broker.bootstrap_servers
    await end_detached_transaction(detached, commit=commit, bootstrap_servers=servers, **HASTY)  # type: ignore[misc]


@pytest.mark.parametrize("commit", [True, False])
async def test_closing_the_producer_leaves_a_detached_transaction_open(
    broker: Broker, new_producer: NewProducer, release: str, commit: bool
):
    detached = await fill(new_producer(linger_ms=10_000))
    assert detached.transactional_id == "id"
    assert detached.transaction_version == (0 if release == RELEASE_TV_0 else 2)
    assert not detached.empty
    assert await visible(broker) == []
    await end(broker, DetachedTransaction.from_json(detached.to_json()), commit=commit)
    assert await visible(broker) == ([b"0", b"1", b"2"] if commit else [])
    # Repeating the same end has no effect; the opposite is rejected.
    await end(broker, detached, commit=commit)
    with pytest.raises(TransactionFailed if not commit else BrokerError) as raised:
        await end(broker, detached, commit=not commit)
    assert ("an earlier call has committed it" in str(raised.value)) is commit
    assert await visible(broker) == ([b"0", b"1", b"2"] if commit else [])


@pytest.mark.parametrize(
    "fault",
    [Answer(ErrorCode.NOT_COORDINATOR), Close(), Close(carried_out=True)],
    ids=["moved", "closed", "closed after it"],
)
async def test_the_end_is_retried_until_it_is_answered(
    broker: Broker, new_producer: NewProducer, fault: Answer | Close
):
    detached = await fill(new_producer())
    broker.on(ApiKey.END_TXN, fault, times=2)
    await end(broker, detached, commit=True)
    assert await visible(broker) == [b"0", b"1", b"2"]


async def test_an_empty_detached_transaction_needs_no_request(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        await producer.begin_transaction()
        detached = await producer.detach_transaction()
        with pytest.raises(InvalidTxnState, match="was detached"):
            await producer.begin_transaction()
    assert detached.empty
    broker.requests.clear()
    await end(broker, detached, commit=True)
    assert not list(broker.requests)


async def test_a_transaction_whose_detach_timed_out_is_aborted_on_close(
    broker: Broker, new_producer: NewProducer
):
    async def give_away(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send("t", b"never", partition=0)
            with anyio.fail_after(0.05):
                await producer.detach_transaction()

    async with new_producer(request_timeout_ms=300) as producer:
        await producer.partitions_for("t")
        silent = broker.on(ApiKey.PRODUCE, Drop())
        with max_block(producer, 50), pytest.raises(TimeoutError):
            await give_away(producer)
        silent.remove()
    assert await visible(broker) == []
    # No transaction is left open.
    async with new_producer() as producer, producer.transaction():
        await producer.send("t", b"v", partition=0)
    assert await visible(broker) == [b"v"]


async def test_detach_raises_when_another_task_aborts(broker: Broker, new_producer: NewProducer):
    async with new_producer() as producer:
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD), times=1)
        await producer.begin_transaction()
        delivery = await producer.send("t", b"refused", partition=0)

        async def abort() -> None:
            with pytest.raises(BrokerError):
                await delivery
            await producer.abort_transaction()

        async with anyio.create_task_group() as group:
            group.start_soon(abort)
            await anyio.lowlevel.checkpoint()
            with pytest.raises(TransactionFailed):
                await producer.detach_transaction()


async def test_a_transaction_with_a_failed_record_cannot_be_detached(
    broker: Broker, new_producer: NewProducer
):
    async with new_producer() as producer:
        broker.on(ApiKey.PRODUCE, Answer(ErrorCode.INVALID_RECORD), times=1)
        await producer.begin_transaction()
        await producer.send("t", b"refused")
        with pytest.raises(TransactionFailed):
            await producer.detach_transaction()


async def test_a_newer_producer_aborts_a_detached_transaction(
    broker: Broker, new_producer: NewProducer
):
    detached = await fill(new_producer())
    async with new_producer():
        pass
    with pytest.raises(ProducerFenced) as fenced:
        await end(broker, detached, commit=True)
    assert fenced.value.transactional_id == "id"
    assert await visible(broker) == []


async def test_ending_times_out_without_a_response(broker: Broker, new_producer: NewProducer):
    detached = await fill(new_producer())
    broker.on(ApiKey.END_TXN, Drop())
    with pytest.raises(RequestTimedOut, match="has ended is not known"):
        await end_detached_transaction(
            detached,
            commit=True,
            bootstrap_servers=broker.bootstrap_servers,
            request_timeout_ms=100,
            default_api_timeout_ms=2_500,
        )


async def test_a_missing_authorization_is_raised(broker: Broker, new_producer: NewProducer):
    detached = await fill(new_producer())
    broker.on(ApiKey.END_TXN, Answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), times=1)
    with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await end(broker, detached, commit=True)
    await end(broker, detached, commit=True)
    assert await visible(broker) == [b"0", b"1", b"2"]
