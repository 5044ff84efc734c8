"""Outcome of records when their producer is closed."""

from __future__ import annotations

import anyio
import pytest

from aiokafkawire.errors import ClientClosed, DeliveriesFailed, RecordTooLarge
from aiokafkawire.producer import Producer
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs
from tests.behaviour.support import WITHIN_S, numbered, stored

FOREVER_MS = 60_000
SMALL = {"max.message.bytes": "1000"}


async def test_leaving_sends_what_is_buffered(bootstrap_servers: str, topic: str):
    with anyio.fail_after(WITHIN_S):
        async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=FOREVER_MS) as producer:
            deliveries = [await producer.send(topic, value) for value in numbered(100)]
    assert [(await delivery).offset for delivery in deliveries] == list(range(100))
    assert [record.value for record in await stored(bootstrap_servers, topic)] == numbered(100)


@needs("topic settings")
async def test_closing_raises_unawaited_failures(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(configs=SMALL)

    async def send_and_forget() -> None:
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            await producer.send(topic, b"x" * 2_000)
            await producer.send(topic, b"y" * 2_000)

    with pytest.raises(DeliveriesFailed) as caught:
        await send_and_forget()
    assert caught.value.count == 2
    assert caught.value.counts == {(topic, 0): 2}
    assert f"2 of {topic}-0" in str(caught.value)
    assert isinstance(caught.value.first, RecordTooLarge)


@needs("topic settings")
async def test_flush_raises_unawaited_failures_once(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(configs=SMALL)
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.send(topic, b"x" * 2_000)
        with pytest.raises(DeliveriesFailed) as caught:
            await producer.flush()
        assert caught.value.count == 1
        await producer.flush()
        assert (await producer.send_and_wait(topic, b"fits")).offset == 0


@needs("topic settings")
async def test_an_awaited_failure_is_not_raised_again(bootstrap_servers: str, new_topic: NewTopic):
    topic = await new_topic(configs=SMALL)
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        delivery = await producer.send(topic, b"x" * 2_000)
        with pytest.raises(RecordTooLarge):
            await delivery
        await producer.flush()
        assert await stored(bootstrap_servers, topic) == []


@needs("topic settings")
async def test_the_bodys_exception_gets_a_note_about_failed_deliveries(
    bootstrap_servers: str, new_topic: NewTopic
):
    topic = await new_topic(configs=SMALL)
    mine = ValueError("mine")

    async def send_and_raise() -> None:
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            await producer.send(topic, b"x" * 2_000)
            raise mine

    with pytest.raises(ValueError, match="mine") as caught:
        await send_and_raise()
    assert caught.value is mine
    assert any("not delivered" in note for note in mine.__notes__)


async def test_records_are_sent_even_if_the_body_raised(bootstrap_servers: str, topic: str):
    async def send_and_raise() -> None:
        async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=FOREVER_MS) as producer:
            await producer.send(topic, b"kept")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await send_and_raise()
    assert [record.value for record in await stored(bootstrap_servers, topic)] == [b"kept"]


async def test_a_producer_cannot_be_used_outside_its_block(bootstrap_servers: str, topic: str):
    producer = Producer(bootstrap_servers=bootstrap_servers)
    with pytest.raises(ClientClosed):
        await producer.send(topic, b"early")
    async with producer:
        await producer.send_and_wait(topic, b"in time")
    with pytest.raises(ClientClosed):
        await producer.send(topic, b"late")
    with pytest.raises(ClientClosed):
        producer.send_nowait(topic, b"late")
    with pytest.raises(ClientClosed):
        await producer.flush()
    with pytest.raises(ClientClosed):
        async with producer:
            pass
    assert [record.value for record in await stored(bootstrap_servers, topic)] == [b"in time"]
