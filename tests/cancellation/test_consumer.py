"""Each coroutine of the consumer, cancelled at each of its suspensions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.consumer import BatchIterator, Consumer, RecordIterator
from aiokafkawire.errors import ClientClosed, CommitFailed
from aiokafkawire.records import Record, Records
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from tests.cancellation.cancellation_case import (
    CancellationCase,
    ClientInstanceId,
    cancel_at_each_suspension,
    parametrize_cases,
    public_coroutines,
)
from tests.cancellation.suspensions import Outcome

pytestmark = pytest.mark.slow

STORED = 20

GROUP: dict[str, Any] = {
    "enable_auto_commit": False,
    "session_timeout_ms": 5_000,
    "heartbeat_interval_ms": 50,
}


class Filled(CancellationCase):
    """A topic with records in it, and a producer for more."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with super().open(), self.producer(linger_ms=0) as self.writer:
            for _ in range(STORED):
                await self.write()
            await self.writer.flush()
            yield

    async def write(self) -> None:
        await self.writer.send(self.topic, self.next_value(), timestamp_ms=self.number)


class Alone(Filled):
    """A consumer without a group."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with super().open(), self.consumer() as self.client:
            self.client.assign(self.tp)
            yield

    async def finish(self) -> None:
        self.client.seek(self.tp, 3)
        record = await self.client.getone()
        assert (record.offset, record.value) == (3, b"00004")


class Member(Filled):
    """The one member of a group, which owns the topic's partition."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        member = self.consumer(self.topic, group_id=f"group of {self.topic}", **GROUP)
        async with super().open(), member as self.client:
            while not self.client.assignment():
                await self.client.getmany(timeout_ms=10, max_records=1)
            await self.client.seek_to_beginning()
            yield

    async def finish(self) -> None:
        self.client.seek(self.tp, 3)
        assert (await self.client.getone()).offset == 3
        await self.client.commit()
        assert (await self.client.committed())[self.tp] == OffsetAndMetadata(4, leader_epoch=0)


# --- reading -------------------------------------------------------------------------------------


class Reading(Alone):
    """Whatever is given is the next: nothing is skipped, and nothing comes twice.

    Half of the records are there beforehand, the others are written while the call waits.
    """

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self.seen = 0
        async with super().open():
            self.begin()
            yield

    def begin(self) -> None:
        """Before the first call."""

    async def prepare(self) -> None:
        # There may be one more than is read, or one less.
        if self.number < STORED + self.seen % 3:
            await self.write()

    async def supply(self) -> None:
        if self.seen >= self.number:
            await self.write()

    def saw(self, records: list[Record]) -> None:
        for record in records:
            assert record.offset == self.seen, "a record was skipped, or came twice"
            self.seen += 1

    async def check(self, outcome: Outcome) -> None:
        if outcome.result is not None:
            self.saw(outcome.result)
        await self.supply()

    async def finish(self) -> None:
        while self.seen < self.number:
            for records in (await self.client.getmany(timeout_ms=100)).values():
                self.saw(list(records))
        await super().finish()


class Getone(Reading):
    covers = "Consumer.getone"

    async def call(self) -> list[Record]:
        return [await self.client.getone()]


class GetoneInTime(Reading):
    covers = "Consumer.getone"

    async def call(self) -> list[Record]:
        record = await self.client.getone(timeout_ms=1_000)
        assert record is not None
        return [record]


class AnextOfTheConsumer(Reading):
    covers = "Consumer.__anext__"

    async def call(self) -> list[Record]:
        return [await anext(self.client)]


class Getmany(Reading):
    covers = "Consumer.getmany"

    async def call(self) -> list[Record]:
        found = await self.client.getmany(timeout_ms=1_000, max_records=3)
        return [record for records in found.values() for record in records]


class AsyncFor(Reading):
    covers = "RecordIterator.__anext__"

    def begin(self) -> None:
        self.iterator = aiter(self.client)

    async def call(self) -> list[Record]:
        return [await anext(self.iterator)]


class Batches(Reading):
    covers = "BatchIterator.__anext__"

    def begin(self) -> None:
        self.iterator = self.client.batches()

    async def call(self) -> list[Record]:
        return list(await anext(self.iterator))


class GetoneInARebalance(CancellationCase):
    """A member comes before one call and goes before the next: no record is left out."""

    covers = "Consumer.getone"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        await self.broker.create_topic(self.topic, partitions=2)
        self.group = {"group_id": f"group of {self.topic}"} | GROUP | {"enable_auto_commit": True}
        self.other: Consumer | None = None
        self.given: set[tuple[int, int]] = set()
        async with (
            self.producer(linger_ms=0) as self.writer,
            self.consumer(self.topic, **self.group) as self.client,
        ):
            yield

    async def prepare(self) -> None:
        self.number += 1
        for partition in range(2):
            await self.writer.send_and_wait(self.topic, b"v", partition=partition)
        if self.other is None:
            self.other = self.consumer(self.topic, **self.group)
            await self.other.start()
        else:
            await self.other.stop()
            self.other = None

    async def call(self) -> Record:
        return await self.client.getone()

    async def check(self, outcome: Outcome) -> None:
        if outcome.result is not None:
            self.given.add((outcome.result.partition, outcome.result.offset))

    async def finish(self) -> None:
        if self.other is not None:
            await self.other.stop()
        everything = {(p, offset) for p in range(2) for offset in range(self.number)}
        while self.given != everything:
            record = await self.client.getone()
            self.given.add((record.partition, record.offset))


class CommitInARebalance(GetoneInARebalance):
    """Check that delivered records are committed, or the commit is rejected as not owned any
    more."""

    covers = "Consumer.commit"

    async def prepare(self) -> None:
        await super().prepare()
        record = await self.client.getone()
        self.given.add((record.partition, record.offset))

    async def call(self) -> None:  # type: ignore[override]
        try:
            await self.client.commit()
        except CommitFailed:
            return

    async def check(self, outcome: Outcome) -> None:
        both = [TopicPartition(self.topic, partition) for partition in range(2)]
        for tp, found in (await self.client.committed(*both)).items():
            given = [offset for partition, offset in self.given if partition == tp.partition]
            assert found is None or found.offset <= max(given, default=-1) + 1


# --- offsets -------------------------------------------------------------------------------------


class Commit(Member):
    covers = "Consumer.commit"

    async def prepare(self) -> None:
        await self.write()
        self.record = await self.client.getone()

    async def call(self) -> None:
        await self.client.commit()

    async def check(self, outcome: Outcome) -> None:
        found = (await self.client.committed())[self.tp]
        done = 0 if found is None else found.offset
        assert done <= self.record.offset + 1
        if outcome.error is None:
            assert done == self.record.offset + 1
        assert self.client.assignment() == {self.tp}


class CommitOffsets(Member):
    covers = "Consumer.commit"

    async def prepare(self) -> None:
        self.number += 1

    async def call(self) -> None:
        await self.client.commit({self.tp: self.number})

    async def check(self, outcome: Outcome) -> None:
        await self.client.commit({self.tp: self.number + 1})
        found = (await self.client.committed())[self.tp]
        # A commit that was cancelled does not come after the one that followed.
        assert found is not None
        assert found.offset == self.number + 1
        self.number += 1


class CommitABatch(Commit):
    async def prepare(self) -> None:
        await self.write()
        found: dict[TopicPartition, Records] = {}
        while not found:
            found = await self.client.getmany(timeout_ms=1_000, max_records=1)
        self.batch = found[self.tp]
        self.record = self.batch[0]

    async def call(self) -> None:
        await self.client.commit(self.batch)


class Committed(Member):
    covers = "Consumer.committed"

    async def call(self) -> Any:
        return await self.client.committed(self.tp)

    async def check(self, outcome: Outcome) -> None:
        if outcome.result is not None:
            assert outcome.result == {self.tp: None}


class Position(Alone):
    covers = "Consumer.position"

    async def prepare(self) -> None:
        self.client.unsubscribe()
        self.client.assign(self.tp)

    async def call(self) -> int:
        return await self.client.position(self.tp)

    async def check(self, outcome: Outcome) -> None:
        assert await self.client.position(self.tp) == 0


class SeekToBeginning(Alone):
    covers = "Consumer.seek_to_beginning"

    async def prepare(self) -> None:
        self.client.seek(self.tp, 7)

    async def call(self) -> None:
        await self.client.seek_to_beginning(self.tp)

    async def check(self, outcome: Outcome) -> None:
        # The call has begun to seek before it first waits.
        assert await self.client.position(self.tp) == 0
        assert (await self.client.getone()).offset == 0


class SeekToEnd(Alone):
    covers = "Consumer.seek_to_end"

    async def prepare(self) -> None:
        self.client.seek(self.tp, 7)

    async def call(self) -> None:
        await self.client.seek_to_end()

    async def check(self, outcome: Outcome) -> None:
        assert await self.client.position(self.tp) == STORED


class SeekToCommitted(Member):
    covers = "Consumer.seek_to_committed"

    async def prepare(self) -> None:
        await self.client.commit({self.tp: 11})
        self.client.seek(self.tp, 7)

    async def call(self) -> None:
        await self.client.seek_to_committed()

    async def check(self, outcome: Outcome) -> None:
        assert await self.client.position(self.tp) == 11
        assert (await self.client.getone()).offset == 11


# --- what the cluster has ------------------------------------------------------------------------


class Asking(Alone):
    """A question that changes nothing: the answer is right, or was not waited for."""

    answer: ClassVar[Any] = None

    async def check(self, outcome: Outcome) -> None:
        if not outcome.cancelled:
            assert outcome.result == self.answer
        assert await self.call() == self.answer


class BeginningOffsets(Asking):
    covers = "Consumer.beginning_offsets"

    async def call(self) -> Any:
        return list((await self.client.beginning_offsets()).values())

    answer: ClassVar[Any] = [0]


class EndOffsets(Asking):
    covers = "Consumer.end_offsets"

    async def call(self) -> Any:
        return list((await self.client.end_offsets(self.tp)).values())

    answer: ClassVar[Any] = [STORED]


class OffsetsForTimes(Asking):
    covers = "Consumer.offsets_for_times"

    async def call(self) -> Any:
        found = (await self.client.offsets_for_times({self.tp: 5}))[self.tp]
        assert found is not None
        return found.offset

    answer: ClassVar[Any] = 4


class Ping(Asking):
    covers = "Consumer.ping"

    async def call(self) -> Any:
        return len((await self.client.ping(topic=self.topic, group="billing")).brokers)

    answer: ClassVar[Any] = 1


class PartitionsFor(Asking):
    covers = "Consumer.partitions_for"

    async def prepare(self) -> None:
        self.fresh = f"{self.topic}-{self.number}"
        self.number += 1
        await self.broker.create_topic(self.fresh, partitions=2)

    async def call(self) -> Any:
        return await self.client.partitions_for(self.fresh)

    answer: ClassVar[Any] = (0, 1)


class Topics(Asking):
    covers = "Consumer.topics"

    async def call(self) -> Any:
        return self.topic in await self.client.topics()

    answer: ClassVar[Any] = True


# --- life ----------------------------------------------------------------------------------------


class Start(Filled):
    covers = "Consumer.start"

    async def prepare(self) -> None:
        self.client = self.consumer(self.topic)

    async def call(self) -> None:
        await self.client.start()

    async def check(self, outcome: Outcome) -> None:
        if outcome.cancelled:
            with pytest.raises(ClientClosed, match="not started yet"):
                await self.client.getone()
            await self.client.start()
        assert (await self.client.getone()).offset == 0
        await self.client.stop()


class Stop(Filled):
    covers = "Consumer.stop"

    async def prepare(self) -> None:
        self.group = f"group {self.next_value().decode()} of {self.topic}"
        self.client = self.consumer(self.topic, group_id=self.group, **GROUP)
        await self.client.start()
        assert (await self.client.getone()).offset == 0

    async def call(self) -> None:
        await self.client.stop()

    async def check(self, outcome: Outcome) -> None:
        await self.client.stop()
        assert repr(self.client).endswith("(closed)>")
        with pytest.raises(ClientClosed):
            await self.client.getone()


class Aclose(Stop):
    covers = "Consumer.aclose"

    async def call(self) -> None:
        await self.client.aclose()


class StopAloneWithACommit(Filled):
    """Auto-commit has its say: what was processed is committed, unless the call was cut."""

    covers = "Consumer.stop"

    async def prepare(self) -> None:
        self.group = f"group {self.next_value().decode()} of {self.topic}"
        options = GROUP | {"enable_auto_commit": True}
        self.client = self.consumer(group_id=self.group, **options)
        self.client.assign(self.tp)
        await self.client.start()
        assert (await self.client.getone()).offset == 0

    async def call(self) -> None:
        await self.client.stop()

    async def check(self, outcome: Outcome) -> None:
        await self.client.stop()
        async with self.consumer(group_id=self.group) as other:
            found = (await other.committed(self.tp))[self.tp]
        # Only what the task that stops was given counts as processed.
        assert found is None or found.offset in {0, 1}


class AsyncWith(Filled):
    covers = "Consumer.__aenter__"

    async def call(self) -> None:
        self.client = self.consumer(self.topic)
        async with self.client:
            await self.client.getone()

    async def check(self, outcome: Outcome) -> None:
        assert repr(self.client).endswith(("(not started yet)>", "(closed)>"))
        await self.client.stop()


class ClientInstanceIdOfAConsumer(ClientInstanceId):
    covers = "Consumer.client_instance_id"

    def new_client(self) -> Consumer:
        return Consumer(**self.collector.client_options())


CASE_CLASSES: list[type[CancellationCase]] = [
    Getone,
    GetoneInTime,
    AnextOfTheConsumer,
    Getmany,
    AsyncFor,
    Batches,
    GetoneInARebalance,
    CommitInARebalance,
    Commit,
    CommitOffsets,
    CommitABatch,
    Committed,
    Position,
    SeekToBeginning,
    SeekToEnd,
    SeekToCommitted,
    BeginningOffsets,
    EndOffsets,
    OffsetsForTimes,
    Ping,
    PartitionsFor,
    Topics,
    Start,
    Stop,
    Aclose,
    StopAloneWithACommit,
    AsyncWith,
    ClientInstanceIdOfAConsumer,
]


@parametrize_cases(CASE_CLASSES)
async def test_cancelled_at_each_suspension(world_class: type[CancellationCase], broker: Broker):
    assert await cancel_at_each_suspension(world_class(broker)) > 1


def test_every_coroutine_of_the_consumer_has_a_row() -> None:
    everything = public_coroutines(Consumer, RecordIterator, BatchIterator)
    assert {case.covers for case in CASE_CLASSES} == everything
