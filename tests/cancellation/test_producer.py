"""Each coroutine of the producer, cancelled at each of its suspensions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.errors import ClientClosed, DeliveriesFailed
from aiokafkawire.producer import Delivery, Producer
from aiokafkawire.types import RecordMetadata
from tests.cancellation.cancellation_case import (
    CancellationCase,
    ClientInstanceId,
    cancel_at_each_suspension,
    parametrize_cases,
    public_coroutines,
    stored_values,
)
from tests.cancellation.suspensions import Outcome
from tests.cancellation.test_transactions import CASE_CLASSES as TRANSACTIONS

pytestmark = pytest.mark.slow

FOREVER_MS = 60_000


class Sending(CancellationCase):
    """A producer that runs, and what the topic must hold in the end."""

    linger_ms = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with super().open(), self.producer(linger_ms=self.linger_ms) as self.client:
            await self.client.partitions_for(self.topic)
            self.certain: list[bytes] = []
            self.possible: list[bytes] = []
            yield

    async def finish(self) -> None:
        last = self.next_value()
        self.certain.append(last)
        await self.client.send(self.topic, last)
        await self.client.flush()
        values = await stored_values(self)
        assert len(values) == len(set(values)), "a record is there twice"
        assert values == sorted(values), "the order is lost"
        assert set(self.certain) <= set(values), "a record is lost"
        assert set(values) <= set(self.certain) | set(self.possible)


class Send(Sending):
    covers = "Producer.send"
    count = 300
    """Most calls do not wait at all."""

    async def call(self) -> None:
        for _ in range(self.count):
            value = self.next_value()
            await self.client.send(self.topic, value)
            self.certain.append(value)


class SendToATopicSeenForTheFirstTime(Sending):
    covers = "Producer.send"

    async def prepare(self) -> None:
        self.fresh = f"{self.topic}-{self.number}"
        await self.broker.create_topic(self.fresh, partitions=1)

    async def call(self) -> Delivery:
        self.number += 1
        return await self.client.send(self.fresh, b"v")

    async def check(self, outcome: Outcome) -> None:
        await self.client.flush()
        assert self.broker.end_offset(self.fresh, 0) == (outcome.result is not None)
        assert (await self.client.send_and_wait(self.fresh, b"w")).offset >= 0


class SendWhenTheBufferIsFull(Sending):
    covers = "Producer.send"
    size = 700

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        options = {"buffer_memory_bytes": 1_000, "linger_ms": FOREVER_MS}
        async with CancellationCase.open(self), self.producer(**options) as self.client:
            self.certain, self.possible = [], []
            await self.client.partitions_for(self.topic)
            yield

    def padded(self) -> bytes:
        return self.next_value() + b"." * self.size

    async def prepare(self) -> None:
        await self.client.flush()
        self.certain.append(self.padded())
        self.client.send_nowait(self.topic, self.certain[-1])

    async def call(self) -> Delivery:
        self.value = self.padded()
        return await self.client.send(self.topic, self.value)

    async def check(self, outcome: Outcome) -> None:
        if outcome.result is not None:
            self.certain.append(self.value)


class SendAndWait(Sending):
    covers = "Producer.send_and_wait"

    async def call(self) -> RecordMetadata:
        self.value = self.next_value()
        return await self.client.send_and_wait(self.topic, self.value)

    async def check(self, outcome: Outcome) -> None:
        (self.possible if outcome.result is None else self.certain).append(self.value)


class AwaitADelivery(Sending):
    covers = "Delivery.__await__"

    async def prepare(self) -> None:
        self.certain.append(self.next_value())
        self.delivery = await self.client.send(self.topic, self.certain[-1])

    async def call(self) -> RecordMetadata:
        return await self.delivery

    async def check(self, outcome: Outcome) -> None:
        # It can be awaited again.
        assert (await self.delivery).topic == self.topic


class SendMany(Sending):
    covers = "Producer.send_many"
    count = 600

    async def call(self) -> list[Delivery]:
        self.values = [self.next_value() for _ in range(self.count)]
        return await self.client.send_many(self.topic, self.values)

    async def check(self, outcome: Outcome) -> None:
        kept = self.count
        if outcome.cancelled:
            (note,) = outcome.error.__notes__  # type: ignore[union-attr]
            kept = int(note.split()[1])
        self.certain += self.values[:kept]


class Flush(Sending):
    covers = "Producer.flush"
    linger_ms = FOREVER_MS

    async def prepare(self) -> None:
        self.certain.append(self.next_value())
        self.delivery = await self.client.send(self.topic, self.certain[-1])

    async def call(self) -> None:
        await self.client.flush()

    async def check(self, outcome: Outcome) -> None:
        if not outcome.cancelled:
            assert self.delivery.done


class PartitionsFor(Sending):
    covers = "Producer.partitions_for"

    async def prepare(self) -> None:
        self.number += 1
        self.fresh = f"{self.topic}-{self.number}"
        await self.broker.create_topic(self.fresh, partitions=2)

    async def call(self) -> tuple[int, ...]:
        return await self.client.partitions_for(self.fresh)

    async def check(self, outcome: Outcome) -> None:
        assert await self.client.partitions_for(self.fresh) == (0, 1)


class Ping(Sending):
    covers = "Producer.ping"

    async def call(self) -> Any:
        return await self.client.ping(topic=self.topic, group="billing")


class Start(CancellationCase):
    covers = "Producer.start"

    async def prepare(self) -> None:
        self.client = self.producer()

    async def call(self) -> None:
        await self.client.start()

    async def check(self, outcome: Outcome) -> None:
        if outcome.cancelled:
            with pytest.raises(ClientClosed, match="not started yet"):
                await self.client.flush()
            await self.client.start()
        assert (await self.client.send_and_wait(self.topic, b"v")).topic == self.topic
        await self.client.stop()


class Stop(CancellationCase):
    covers = "Producer.stop"

    async def prepare(self) -> None:
        self.client = self.producer(linger_ms=FOREVER_MS)
        await self.client.start()
        self.delivery = await self.client.send(self.topic, self.next_value())

    async def call(self) -> None:
        await self.client.stop()

    async def check(self, outcome: Outcome) -> None:
        try:
            await self.client.stop()
        except DeliveriesFailed:
            assert outcome.cancelled
        assert self.delivery.done, "a record without an outcome"
        if not outcome.cancelled:
            assert (await self.delivery).topic == self.topic
        with pytest.raises(ClientClosed):
            await self.client.send(self.topic, b"late")

    async def finish(self) -> None:
        values = await stored_values(self)
        assert values == sorted(set(values))


class Aclose(Stop):
    covers = "Producer.aclose"

    async def call(self) -> None:
        await self.client.aclose()


class AsyncWith(CancellationCase):
    covers = "Producer.__aenter__"

    async def call(self) -> None:
        self.number += 1
        self.client = self.producer(client_id=f"client-{self.number}")
        async with self.client:
            await self.client.send_and_wait(self.topic, b"v")

    async def check(self, outcome: Outcome) -> None:
        # Never entered, or left again.
        assert repr(self.client).endswith(("(not started yet)>", "(closed)>"))
        await self.client.stop()


class ClientInstanceIdOfAProducer(ClientInstanceId):
    covers = "Producer.client_instance_id"

    def new_client(self) -> Producer:
        return Producer(**self.collector.client_options())


CASE_CLASSES: list[type[CancellationCase]] = [
    Send,
    SendToATopicSeenForTheFirstTime,
    SendWhenTheBufferIsFull,
    SendAndWait,
    AwaitADelivery,
    SendMany,
    Flush,
    PartitionsFor,
    Ping,
    Start,
    Stop,
    Aclose,
    AsyncWith,
    ClientInstanceIdOfAProducer,
]


@parametrize_cases(CASE_CLASSES)
async def test_cancelled_at_each_suspension(world_class: type[CancellationCase], broker: Broker):
    assert await cancel_at_each_suspension(world_class(broker)) > 1


def test_every_coroutine_of_the_producer_has_a_row() -> None:
    everything: Any = public_coroutines(Producer, Delivery) | {"Delivery.__await__"}
    assert {case.covers for case in [*CASE_CLASSES, *TRANSACTIONS]} == everything
