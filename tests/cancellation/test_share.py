"""Each coroutine of the share consumer, cancelled at each of its suspensions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType
from aiokafkawire.broker import Broker
from aiokafkawire.errors import ClientClosed
from aiokafkawire.share import ShareConsumer, ShareRecord
from aiokafkawire.share.iterators import ShareBatchIterator, ShareRecordIterator
from tests.cancellation.cancellation_case import (
    QUICK,
    CancellationCase,
    ClientInstanceId,
    cancel_at_each_suspension,
    parametrize_cases,
    public_coroutines,
)
from tests.cancellation.suspensions import Outcome

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
async def broker(anyio_backend: object) -> AsyncIterator[Broker]:
    """One broker for all cases."""
    async with Broker(group_share_assignment_interval_ms=0) as broker:
        yield broker


class Shared(CancellationCase):
    """A share group that reads a topic from its start, and a producer."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with super().open(), self.producer(linger_ms=0) as self.writer:
            async with Admin(**self.broker.client_options()) as admin:
                group = ConfigResource(ConfigResourceType.GROUP, self.group)
                await admin.incremental_alter_configs(
                    {group: {"share.auto.offset.reset": "earliest"}}
                )
            yield

    @property
    def group(self) -> str:
        return f"group of {self.topic}"

    async def write(self) -> None:
        await self.writer.send_and_wait(self.topic, self.next_value())

    def member(self, **options: Any) -> ShareConsumer:
        client_options = QUICK | self.broker.client_options() | options
        return ShareConsumer(self.topic, group_id=self.group, **client_options)


class Queue(Shared):
    """One explicit member of the group: no record is skipped, or comes twice."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self.seen: list[int] = []
        member = self.member(share_acknowledgement_mode="explicit")
        async with super().open(), member as self.client:
            await self.write()
            self.saw([await self.client.getone()])
            yield

    def saw(self, records: list[ShareRecord]) -> None:
        for record in records:
            assert record.delivery_count == 1
            record.accept()
            self.seen.append(record.offset)

    async def prepare(self) -> None:
        await self.write()

    async def check(self, outcome: Outcome) -> None:
        if outcome.result is not None:
            self.saw(outcome.result)

    async def finish(self) -> None:
        while len(self.seen) < self.number:
            for records in (await self.client.getmany(timeout_ms=100)).values():
                self.saw(records)
        assert self.seen == list(range(self.number))
        assert set((await self.client.commit()).values()) <= {None}


class Getone(Queue):
    covers = "ShareConsumer.getone"

    async def call(self) -> list[ShareRecord]:
        return [await self.client.getone()]


class AnextOfTheConsumer(Queue):
    covers = "ShareConsumer.__anext__"

    async def call(self) -> list[ShareRecord]:
        return [await anext(self.client)]


class Getmany(Queue):
    covers = "ShareConsumer.getmany"

    async def call(self) -> list[ShareRecord]:
        found = await self.client.getmany(timeout_ms=1_000, max_records=3)
        return [record for records in found.values() for record in records]


class AsyncFor(Queue):
    covers = "ShareRecordIterator.__anext__"

    async def call(self) -> list[ShareRecord]:
        return [await anext(aiter(self.client))]


class Batches(Queue):
    covers = "ShareBatchIterator.__anext__"

    async def call(self) -> list[ShareRecord]:
        return await anext(self.client.batches())


class Commit(Queue):
    """Acknowledgements before a cancelled call are confirmed by the next one."""

    covers = "ShareConsumer.commit"

    async def prepare(self) -> None:
        await self.write()
        self.saw([await self.client.getone()])

    async def call(self) -> None:
        await self.client.commit()

    async def check(self, outcome: Outcome) -> None:
        assert set((await self.client.commit()).values()) <= {None}


class AwaitedAcknowledgement(Queue):
    covers = "ShareConsumer.getone"

    async def prepare(self) -> None:
        await self.write()
        self.record = await self.client.getone()
        self.seen.append(self.record.offset)
        self.acknowledgement = self.record.accept()

    async def call(self) -> None:
        await self.acknowledgement

    async def check(self, outcome: Outcome) -> None:
        await self.acknowledgement


# --- life ----------------------------------------------------------------------------------------


class Start(Shared):
    covers = "ShareConsumer.start"

    async def prepare(self) -> None:
        self.client = self.member()

    async def call(self) -> None:
        await self.client.start()

    async def check(self, outcome: Outcome) -> None:
        if outcome.cancelled:
            with pytest.raises(ClientClosed, match="not started yet"):
                await self.client.getone()
            await self.client.start()
        await self.write()
        assert (await self.client.getone()).value == b"%05d" % self.number
        await self.client.stop()


class Stop(Shared):
    """Stopping accepts the record of this task, or releases it if it was cut."""

    covers = "ShareConsumer.stop"

    async def prepare(self) -> None:
        await self.write()
        self.client = self.member()
        await self.client.start()
        await self.client.getone()

    async def call(self) -> None:
        await self.client.stop()

    async def check(self, outcome: Outcome) -> None:
        await self.client.stop()
        with pytest.raises(ClientClosed):
            await self.client.getone()


class Aclose(Stop):
    covers = "ShareConsumer.aclose"

    async def call(self) -> None:
        await self.client.aclose()


class AsyncWith(Shared):
    covers = "ShareConsumer.__aenter__"

    async def call(self) -> None:
        self.client = self.member()
        async with self.client:
            pass

    async def check(self, outcome: Outcome) -> None:
        await self.client.stop()


class ClientInstanceIdOfAShareConsumer(ClientInstanceId):
    covers = "ShareConsumer.client_instance_id"

    def new_client(self) -> ShareConsumer:
        return ShareConsumer(self.topic, group_id="work", **self.collector.client_options())


CASE_CLASSES: list[type[CancellationCase]] = [
    Getone,
    AnextOfTheConsumer,
    Getmany,
    AsyncFor,
    Batches,
    Commit,
    AwaitedAcknowledgement,
    Start,
    Stop,
    Aclose,
    AsyncWith,
    ClientInstanceIdOfAShareConsumer,
]


def test_each_coroutine_has_a_case() -> None:
    coroutines = public_coroutines(ShareConsumer, ShareRecordIterator, ShareBatchIterator)
    assert coroutines == {case.covers for case in CASE_CLASSES}


@parametrize_cases(CASE_CLASSES)
async def test_cancelled(broker: Broker, world_class: type[CancellationCase]) -> None:
    assert await cancel_at_each_suspension(world_class(broker)) > 0
