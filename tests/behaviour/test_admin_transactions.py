"""The admin client's operations on producers and transactions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from aiokafkawire import Admin, Producer, TopicPartition
from aiokafkawire.admin import AbortTransactionSpec, TransactionState
from aiokafkawire.errors import BrokerError, KafkaError, PartialFailure, UnsupportedVersion
from tests.behaviour.features import needs, without
from tests.behaviour.support import fill, numbered, reading, take

TRANSACTIONAL_ID_NOT_FOUND = 105

pytestmark = [pytest.mark.slow, needs("transactions")]


@pytest.fixture
async def admin(bootstrap_servers: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=bootstrap_servers) as client:
        yield client


@pytest.fixture
def transactional_id(group_id: str) -> str:
    return group_id.replace("group", "transactions")


@pytest.fixture
async def producer(
    bootstrap_servers: str, topic: str, transactional_id: str
) -> AsyncIterator[Producer]:
    """A producer with an open transaction of one record."""
    client = Producer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id)
    await client.start()
    await client.begin_transaction()
    await client.send_and_wait(topic, b"open", partition=0)
    yield client
    with contextlib.suppress(KafkaError):  # some tests fence it
        await client.stop()


@needs("listing transactions")
@pytest.mark.usefixtures("producer")
async def test_an_open_transaction(admin: Admin, topic: str, transactional_id: str):
    tp = TopicPartition(topic, 0)
    described = (await admin.describe_transactions([transactional_id]))[transactional_id]
    assert described.state is TransactionState.ONGOING
    assert described.topic_partitions == {tp}
    assert described.transaction_start_time_ms is not None
    (state,) = (await admin.describe_producers([tp]))[tp]
    assert state.producer_id == described.producer_id
    assert state.current_transaction_start_offset == 0
    listed = {each.transactional_id: each for each in await admin.list_transactions()}
    assert listed[transactional_id].producer_id == described.producer_id
    for states, is_listed in [(["Ongoing"], True), ([TransactionState.EMPTY], False)]:
        found = await admin.list_transactions(states=states)
        assert (transactional_id in {each.transactional_id for each in found}) is is_listed
    # Its coordinator knows it, however old it is.
    assert await admin.find_hanging_transactions([topic], max_transaction_timeout_ms=0) == []


@needs("listing transactions")
async def test_a_transactional_id_that_does_not_exist(admin: Admin, transactional_id: str):
    found = await admin.describe_transactions([transactional_id], return_errors=True)
    error = found[transactional_id]
    assert isinstance(error, BrokerError)
    assert error.code == TRANSACTIONAL_ID_NOT_FOUND
    with pytest.raises(PartialFailure):
        await admin.describe_transactions([transactional_id])


@without("listing transactions", as_of="2.7")
async def test_the_release_that_lists_transactions_is_named(admin: Admin, transactional_id: str):
    with pytest.raises(UnsupportedVersion, match=r"3\.0"):
        await admin.list_transactions()
    with pytest.raises(UnsupportedVersion, match=r"3\.0"):
        await admin.describe_transactions([transactional_id])


async def test_a_transaction_is_terminated(
    admin: Admin, bootstrap_servers: str, topic: str, producer: Producer, transactional_id: str
):
    await admin.force_terminate_transaction(transactional_id)
    with pytest.raises(KafkaError):
        await producer.commit_transaction()
    await fill(bootstrap_servers, topic, numbered(1))
    async with (
        Producer(
            bootstrap_servers=bootstrap_servers, transactional_id=transactional_id
        ) as successor,
        successor.transaction(),
    ):
        await successor.send(topic, b"next", partition=0)
    async with reading(bootstrap_servers, topic, isolation_level="read_committed") as consumer:
        values = [record.value for record in await take(consumer, 2)]
    assert values == [*numbered(1), b"next"]


async def test_a_fenced_producer_cannot_commit(
    admin: Admin, producer: Producer, transactional_id: str
):
    fenced = await admin.fence_producers([transactional_id, f"{transactional_id}-new"])
    assert fenced[transactional_id].epoch > 0
    assert fenced[f"{transactional_id}-new"].epoch >= 0
    with pytest.raises(KafkaError):
        await producer.commit_transaction()


@needs("listing transactions")
@pytest.mark.usefixtures("producer")
async def test_a_transaction_is_aborted_in_one_partition(admin: Admin, topic: str):
    tp = TopicPartition(topic, 0)
    (state,) = (await admin.describe_producers([tp]))[tp]
    spec = AbortTransactionSpec(tp, state.producer_id, state.producer_epoch, 0)
    await admin.abort_transaction(spec)
    (after,) = (await admin.describe_producers([tp]))[tp]
    assert after.current_transaction_start_offset is None
