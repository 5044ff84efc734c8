"""Each coroutine of transactions, cancelled at each of its suspensions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from aiokafkawire import DetachedTransaction, Producer, end_detached_transaction
from aiokafkawire.broker import Broker, Delay
from aiokafkawire.types import GroupMetadata
from aiokafkawire.wire import ApiKey
from tests.cancellation.cancellation_case import (
    CancellationCase,
    cancel_at_each_suspension,
    parametrize_cases,
)
from tests.cancellation.suspensions import Outcome

pytestmark = pytest.mark.slow

END_S = 0.05


class Transacting(CancellationCase):
    """A producer with transactions, and what readers of committed records must see in the end."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self.certain: list[bytes] = []
        self.possible: list[bytes] = []
        async with super().open(), self.transactional(self.topic) as self.client:
            yield

    def transactional(self, name: str) -> Producer:
        return self.producer(transactional_id=name, linger_ms=0, retry_backoff_ms=5)

    async def fill(self) -> bytes:
        """A transaction with a record."""
        await self.client.begin_transaction()
        value = self.next_value()
        await self.client.send(self.topic, value)
        return value

    async def finish(self) -> None:
        self.certain.append(await self.fill())
        await self.client.commit_transaction()
        values = await self.committed()
        assert len(values) == len(set(values)), "a record is there twice"
        assert values == sorted(values), "the order is lost"
        assert set(self.certain) <= set(values), "a record is lost"
        assert set(values) <= set(self.certain) | set(self.possible), "an aborted record is seen"

    async def committed(self) -> list[bytes]:
        values: list[bytes] = []
        async with self.consumer(isolation_level="read_committed") as consumer:
            consumer.assign(self.tp)
            end = (await consumer.end_offsets(self.tp))[self.tp]
            while await consumer.position(self.tp) < end:
                for records in (await consumer.getmany(timeout_ms=10)).values():
                    values += [value for value in records.values() if value is not None]
        return values


class BeginWhileTheOneBeforeEnds(Transacting):
    covers = "Producer.begin_transaction"

    async def prepare(self) -> None:
        await self.fill()
        await self.client.flush()
        # The coordinator has something to end, and is still at it when the call comes.
        self.broker.on(ApiKey.END_TXN, Delay(END_S), times=1)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await self.client.abort_transaction()

    async def call(self) -> None:
        await self.client.begin_transaction()

    async def check(self, outcome: Outcome) -> None:
        if outcome.cancelled:
            await self.client.begin_transaction()
        await self.client.abort_transaction()


class Commit(Transacting):
    covers = "Producer.commit_transaction"

    async def prepare(self) -> None:
        self.certain.append(await self.fill())

    async def call(self) -> None:
        await self.client.commit_transaction()

    async def check(self, outcome: Outcome) -> None:
        if outcome.cancelled:
            await self.client.commit_transaction()


class Abort(Transacting):
    covers = "Producer.abort_transaction"

    async def prepare(self) -> None:
        await self.fill()
        await self.client.flush()  # the coordinator has something to end

    async def call(self) -> None:
        await self.client.abort_transaction()

    async def check(self, outcome: Outcome) -> None:
        if outcome.cancelled:
            await self.client.abort_transaction()


class SendOffsets(Transacting):
    covers = "Producer.send_offsets_to_transaction"

    async def prepare(self) -> None:
        await self.client.begin_transaction()

    async def call(self) -> None:
        self.number += 1
        await self.client.send_offsets_to_transaction(
            {self.tp: self.number}, GroupMetadata(self.topic)
        )

    async def check(self, outcome: Outcome) -> None:
        await self.client.commit_transaction()
        async with self.consumer(group_id=self.topic) as consumer:
            consumer.assign(self.tp)
            found = (await consumer.committed(self.tp))[self.tp]
        if not outcome.cancelled:
            assert found is not None
            assert found.offset == self.number


class Detach(Transacting):
    covers = "Producer.detach_transaction"

    async def prepare(self) -> None:
        await self.client.stop()
        self.client = self.transactional(f"{self.topic}-{self.number}")
        await self.client.start()
        self.value = await self.fill()

    async def call(self) -> DetachedTransaction:
        return await self.client.detach_transaction()

    async def check(self, outcome: Outcome) -> None:
        detached = await self.client.detach_transaction()
        assert outcome.result in {None, detached}
        servers = self.broker.bootstrap_servers
        await end_detached_transaction(detached, commit=True, bootstrap_servers=servers)
        self.certain.append(self.value)

    async def finish(self) -> None:
        await self.prepare()
        await self.client.abort_transaction()
        await super().finish()
        await self.client.stop()


class TransactionInAWith(Transacting):
    covers = "Producer.begin_transaction"

    async def call(self) -> None:
        self.value = self.next_value()
        async with self.client.transaction():
            await self.client.send(self.topic, self.value)

    async def check(self, outcome: Outcome) -> None:
        (self.possible if outcome.cancelled else self.certain).append(self.value)


CASE_CLASSES: list[type[CancellationCase]] = [
    BeginWhileTheOneBeforeEnds,
    Commit,
    Abort,
    SendOffsets,
    Detach,
    TransactionInAWith,
]


@parametrize_cases(CASE_CLASSES)
async def test_cancelled_at_each_suspension(world_class: type[CancellationCase], broker: Broker):
    assert await cancel_at_each_suspension(world_class(broker)) > 1
