"""kafka-python, which blocks and has its own threads, against the embedded broker."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from aiokafkawire.broker import Close
from aiokafkawire.wire import ApiKey

from .threaded_broker import DEADLINE_S, ThreadedBroker, repeat_until, threaded_broker

with warnings.catch_warnings():
    # It reads a file of its own in a way that Python will not have for ever.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

pytestmark = [
    pytest.mark.slow,
    # It leaks sockets of failed connection attempts.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("kafka_python_leftovers"),
]

POLL_MS = 10_000
STOP = b"stop"


@pytest.fixture(params=["asyncio", "trio"])
def threaded(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    with threaded_broker(request.param, nodes=3) as broker:
        broker.call(broker.broker.create_topic, "t", 4)
        yield broker


def produce(
    threaded: ThreadedBroker, values: Sequence[bytes], *, spread: bool = False, **options: Any
) -> list[Any]:
    """Produce values with themselves as keys, or one to each partition in turn."""
    producer = KafkaProducer(bootstrap_servers=threaded.servers, **options)
    try:
        sent = [
            producer.send(
                "t", value, key=None if spread else value, partition=i if spread else None
            )
            for i, value in enumerate(values)
        ]
        return [future.get(DEADLINE_S) for future in sent]
    finally:
        producer.close()


def consumer(threaded: ThreadedBroker, **options: Any) -> Any:
    return KafkaConsumer(
        "t",
        bootstrap_servers=threaded.servers,
        **{
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 10_000,
            "heartbeat_interval_ms": 100,
            "fetch_max_wait_ms": 100,
            "retry_backoff_ms": 20,
            **options,
        },
    )


class Polling:
    """Polls a consumer in a thread and commits its records, until it is stopped.

    A poll ends when there are records; a short one that ends during a rebalance can leave this
    client waiting forever.
    """

    def __init__(self, threaded: ThreadedBroker, **options: Any) -> None:
        self.values: list[bytes] = []
        self._threaded = threaded
        self._stopped = False
        self._consumer = consumer(threaded, **options)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopped:
                for records in self._consumer.poll(POLL_MS).values():
                    self.values += [record.value for record in records if record.value != STOP]
                self._consumer.commit()
        finally:
            self._consumer.close()

    @property
    def share(self) -> int:
        """Return the number of its partitions."""
        return len(self._consumer.assignment())

    def stop(self) -> None:
        if self._thread.is_alive():
            self._stopped = True
            produce(self._threaded, [STOP] * 4, spread=True)
            self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


@contextmanager
def polling(threaded: ThreadedBroker, **options: Any) -> Iterator[Polling]:
    poller = Polling(threaded, **options)
    try:
        yield poller
    finally:
        poller.stop()


def wait_until(done: Callable[[], bool]) -> None:
    repeat_until(lambda: time.sleep(0.01), done)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enable_idempotence": False, "acks": 1},
        {"compression_type": "gzip"},
        {"compression_type": "snappy"},
    ],
    ids=str,
)
def test_what_is_produced_is_consumed(threaded: ThreadedBroker, options: dict[str, Any]) -> None:
    values = [b"%03d" % number for number in range(200)]
    receipts = produce(threaded, values, **options)
    assert {receipt.topic for receipt in receipts} == {"t"}
    with polling(threaded) as reader:
        wait_until(lambda: len(reader.values) >= 200)
    assert sorted(reader.values) == values


@pytest.mark.parametrize(
    "strategy",
    [None, StickyPartitionAssignor, CooperativeStickyAssignor],
    ids=["range", "sticky", "cooperative"],
)
def test_a_group_of_two_rebalances_commits_and_resumes(
    threaded: ThreadedBroker, strategy: Any
) -> None:
    options = {} if strategy is None else {"partition_assignment_strategy": (strategy,)}
    before, after = ([b"%s%d" % (name, n) for n in range(50)] for name in (b"a", b"b"))
    produce(threaded, before)
    with polling(threaded, **options) as first:
        wait_until(lambda: len(first.values) == 50)
        with polling(threaded, **options) as second:
            wait_until(lambda: first.share == second.share == 2)
            produce(threaded, after)
            wait_until(lambda: len(first.values) + len(second.values) == 100)
        wait_until(lambda: first.share == 4)
    assert sorted(first.values + second.values) == sorted(before + after)
    assert second.values
    produce(threaded, [b"last"])
    with polling(threaded, **options) as third:
        wait_until(lambda: bool(third.values))
    assert third.values == [b"last"]


def test_it_fetches_in_sessions(threaded: ThreadedBroker) -> None:
    with polling(threaded) as reader:
        for value in (b"a", b"b"):
            produce(threaded, [value])
            wait_until(lambda value=value: value in reader.values)  # type: ignore[misc]
    epochs = [seen.message.session_epoch for seen in threaded.broker.requests.of(ApiKey.FETCH)]
    assert max(epochs) > 0


def test_an_idempotent_producer_survives_a_killed_leader_and_lost_answers(
    threaded: ThreadedBroker,
) -> None:
    broker = threaded.broker
    producer = KafkaProducer(bootstrap_servers=threaded.servers, retry_backoff_ms=20)
    try:
        producer.send("t", b"before", partition=0).get(DEADLINE_S)
        threaded.call(lambda: broker.on(ApiKey.PRODUCE, Close(carried_out=True), times=1))
        producer.send("t", b"during", partition=0).get(DEADLINE_S)
        threaded.call(broker.kill, broker.leader("t", 0))
        producer.send("t", b"after", partition=0).get(DEADLINE_S)
    finally:
        producer.close()
    assert broker.end_offset("t", 0) == 3


@pytest.mark.parametrize("as_of", ["0.11", "3.9", "4.3"])
def test_transactions(as_of: str) -> None:
    with threaded_broker(nodes=3, as_of=as_of) as threaded:
        threaded.call(threaded.broker.create_topic, "t", 4)
        producer = KafkaProducer(
            bootstrap_servers=threaded.servers, transactional_id="tx", retry_backoff_ms=20
        )
        try:
            producer.init_transactions()
            for value, end in (
                (b"a", producer.commit_transaction),
                (b"x", producer.abort_transaction),
                (b"b", producer.commit_transaction),
            ):
                producer.begin_transaction()
                producer.send("t", value, partition=0).get(DEADLINE_S)
                end()
        finally:
            producer.close()
        with polling(threaded, isolation_level="read_committed") as reader:
            wait_until(lambda: len(reader.values) >= 2)
        assert reader.values == [b"a", b"b"]
