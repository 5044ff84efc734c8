"""Two drivers of one stream at once, which die where a seed says, on a broker that loses answers.

Each does what Spark does: it runs the tasks of a batch, each again if it fails, ends the batch,
runs it again if that failed, and goes on to the next. Neither knows of the other.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pyarrow
import pytest

from aiokafkawire import blocking
from aiokafkawire.broker import Close, Delay
from aiokafkawire.errors import KafkaError
from aiokafkawire.spark import transactions
from aiokafkawire.spark.exactly_once import (
    CommittedTask,
    PreparedTask,
    SinkBatch,
    TaskResult,
    build_plan,
)
from aiokafkawire.spark.transactions import abort_all, commit_all, write_in_transaction
from aiokafkawire.wire import ApiKey
from tests.broker.threaded_broker import ThreadedBroker, threaded_broker
from tests.spark.kafka import create
from tests.spark.test_transactions import visible

BATCHES = 2
TASKS = 3
ROWS = 2
TRIES = 60
"""A batch that needs more runs than this goes nowhere."""

TOPIC = "t"
FAULTY = frozenset(
    {
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.PRODUCE,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)


class TooLate(Exception):
    """The other driver has gone on to a later batch."""


class Driver:
    """One driver of the stream; `run` returns when all batches are written."""

    def __init__(self, kafka: ThreadedBroker, rng: random.Random) -> None:
        self._client: dict[str, Any] = {
            "bootstrap_servers": kafka.servers,
            "default_api_timeout_ms": 1_500,
        }
        self._rng = rng

    def run(self) -> None:
        for number in range(BATCHES):
            try:
                self._batch(SinkBatch("sink", "stream", number, TOPIC))
            except TooLate:
                continue

    def _batch(self, batch: SinkBatch) -> None:
        for _ in range(TRIES):
            try:
                results = self.tasks(batch)
                if self._dies(results):
                    continue
                try:
                    self.end(results)
                except KafkaError:
                    # As Spark does, if the driver lives.
                    if self._rng.random() < 0.5:
                        abort_all(self._client, results)
                    raise
            except KafkaError as error:
                if "is older than batch" in str(error):
                    raise TooLate from error
                if "the same rows to the same tasks" in str(error):
                    raise AssertionError("the same rows were taken for others") from error
            else:
                return
        raise AssertionError(f"{batch} is not done after {TRIES} runs")

    def tasks(self, batch: SinkBatch) -> list[TaskResult]:
        seeds = [self._rng.random() for _ in range(TASKS)]
        with ThreadPoolExecutor(TASKS) as threads:
            return list(
                threads.map(lambda task: self._task(batch, task, seeds[task]), range(TASKS))
            )

    def _task(self, batch: SinkBatch, task: int, seed: float) -> TaskResult:
        # Now and then one is not ended in time.
        timeout_ms = 200 if seed < 0.1 else 10_000
        client = {**self._client, "max_block_ms": 1_500, "transaction_timeout_ms": timeout_ms}
        try:
            return write_in_transaction(client, TOPIC, batch, task, rows(batch.number, task))
        except KafkaError as error:
            if "is older than batch" in str(error):
                raise
            return write_in_transaction(client, TOPIC, batch, task, rows(batch.number, task))

    def end(self, results: list[TaskResult]) -> None:
        commit_all(self._client, results)

    def _dies(self, results: list[TaskResult]) -> bool:
        """Before the first end, or between two, or not at all."""
        chance = self._rng.random()
        if chance >= 0.4:
            return False
        built = build_plan(results)
        if chance < 0.3 and built is not None:
            transactions._commit_plan(self._client, *built, results)
            waiting = [result for result in results if isinstance(result, PreparedTask)]
            begun = any(isinstance(result, CommittedTask) for result in results)
            if begun or not blocking.call(
                transactions._end_transactions, self._client, waiting[:1], True
            ):
                some = waiting[1 : self._rng.randint(1, TASKS)]
                blocking.call(transactions._end_transactions, self._client, some, True)
        return True


def rows(number: int, task: int) -> Iterator[pyarrow.RecordBatch]:
    yield pyarrow.RecordBatch.from_pydict(
        {"value": [f"{number}-{task}-{row}" for row in range(ROWS)]}
    )


ALL = Counter(
    value.as_py()
    for number, task in product(range(BATCHES), range(TASKS))
    for part in rows(number, task)
    for value in part["value"]
)


def written(seed: int, as_of: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Run both drivers, then count the rows that a reader of committed records finds."""
    monkeypatch.setattr(transactions, "MARKER_LOOKUP_S", 0.4)
    monkeypatch.setattr(transactions, "ABORT_TIMEOUT_S", 1.0)
    rng = random.Random(seed)

    def fault(request: Any) -> Any:
        if request.api_key not in FAULTY or rng.random() > 0.1:
            return None
        return rng.choice([Close(), Close(carried_out=True), Delay(0.05), Delay(0.3)])

    with threaded_broker(as_of=as_of) as kafka:
        create(kafka, TOPIC, 2)
        kafka.call(kafka.broker.on, None, fault)
        drivers = [Driver(kafka, random.Random(f"{seed} {number}")) for number in range(2)]
        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(driver.run) for driver in drivers]:
                done.result()
        kafka.call(kafka.broker.clear_faults)
        # Aborts what the one that came too late has left open.
        again = drivers[0].tasks(SinkBatch("sink", "stream", BATCHES - 1, TOPIC))
        drivers[0].end(again)
        return visible(kafka, TOPIC)


@pytest.mark.parametrize(("seed", "as_of"), [(1, "4.3"), (2, "3.9"), (3, "2.5")])
def test_two_drivers_at_once_write_every_row_once(seed, as_of, monkeypatch):
    assert written(seed, as_of, monkeypatch) == ALL


def test_drivers_that_look_at_no_marker_would_write_some_twice(monkeypatch):
    monkeypatch.setattr(transactions, "find_committed_marker", lambda *_: None)
    found = written(1, "4.3", monkeypatch)
    assert set(found) == set(ALL)
    assert found != ALL
