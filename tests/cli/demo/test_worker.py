from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import Broker
from aiokafkawire.cli.demo import worker
from aiokafkawire.cli.demo.results import Results, Tally, create_store
from aiokafkawire.cli.demo.worker import WordCounter
from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition

pytestmark = pytest.mark.slow

TOPIC = "lines"
TP = TopicPartition(TOPIC, 0)


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    path = tmp_path / "results.sqlite"
    create_store(path)
    results = Results(path)
    yield results
    results.close()


class ReportedEvents:
    """Records the events of a worker, instead of the parent's pipe."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._progress = anyio.Event()

    def send_event(self, event: str, **details: Any) -> None:
        self.events.append({"event": event, **details})
        self._progress.set()
        self._progress = anyio.Event()

    async def until(self, event: str, count: int = 1) -> dict[str, Any]:
        with anyio.fail_after(20):
            while True:
                found = [one for one in self.events if one["event"] == event]
                if len(found) >= count:
                    return found[-1]
                await self._progress.wait()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> ReportedEvents:
    reported = ReportedEvents()
    monkeypatch.setattr(worker, "send_event", reported.send_event)
    return reported


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(1) as broker:
        await broker.create_topic(TOPIC, 1)
        yield broker


async def produce(broker: Broker, numbers: range) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in numbers:
            await producer.send(TOPIC, value=b"word w%d" % number, key=b"%d" % number)


@asynccontextmanager
async def counting(broker: Broker, results: Results) -> AsyncIterator[Consumer]:
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=TOPIC,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    ) as consumer:
        counter = WordCounter(consumer, results)
        consumer.subscribe([TOPIC], listener=counter)
        async with anyio.create_task_group() as group:
            group.start_soon(counter.run)
            yield consumer
            group.cancel_scope.cancel()


def lines_of(results: Results) -> list[int]:
    return sorted(number for piece in results.line_numbers() for number in piece)


def tally(first: int, after: int) -> Tally:
    words = Counter({b"w%d" % number: 1 for number in range(first, after)})
    words[b"word"] = after - first
    return Tally(0, first, after, array("I", range(first, after)), words)


async def test_a_worker_counts_stores_and_commits(
    broker: Broker, results: Results, reported: ReportedEvents
) -> None:
    await produce(broker, range(5))
    async with counting(broker, results) as consumer:
        assert (await reported.until("assigned"))["partitions"] == [0]
        assert (await reported.until("counted"))["positions"] == {0: 5}
        with anyio.fail_after(20):
            while (committed := (await consumer.committed(TP))[TP]) is None:
                await anyio.lowlevel.checkpoint()
        assert committed.offset == 5
    assert lines_of(results) == [0, 1, 2, 3, 4]
    assert results.words()[b"word"] == 5
    assert results.position(0) == 5


async def test_a_worker_starts_at_the_position_of_the_results(
    broker: Broker, results: Results, reported: ReportedEvents
) -> None:
    await produce(broker, range(5))
    results.add([tally(0, 3)])
    async with counting(broker, results):
        assert (await reported.until("assigned"))["positions"] == {0: 3}
        assert (await reported.until("counted"))["records"] == 2
    assert lines_of(results) == [0, 1, 2, 3, 4]
    assert results.words()[b"word"] == 5


async def test_a_worker_skips_records_that_another_one_has_counted(
    broker: Broker, results: Results, reported: ReportedEvents
) -> None:
    async with counting(broker, results):
        await reported.until("assigned")
        # Another worker, which believes that it owns the partition, is faster.
        results.add([tally(0, 3)])
        await produce(broker, range(5))
        assert (await reported.until("late"))["partitions"] == [0]
        await reported.until("counted", 2)
    assert lines_of(results) == [0, 1, 2, 3, 4]
    assert results.words() == Counter(
        {b"word": 5, b"w0": 1, b"w1": 1, b"w2": 1, b"w3": 1, b"w4": 1}
    )
