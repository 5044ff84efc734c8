"""Other clients on replicating nodes: acknowledged records survive their leader."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from ..threaded_broker import DEADLINE_S, ThreadedBroker, repeat_until, threaded_broker

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

with warnings.catch_warnings():
    # It reads a file of its own in a way that Python will not have for ever.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer

pytestmark = [
    pytest.mark.slow,
    # kafka-python leaks sockets of failed connection attempts.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("kafka_python_leftovers"),
]

VALUES = [b"%d" % index for index in range(20)]


@pytest.fixture(params=["0.10", "2.8"])
def threaded(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    options: Any = {"as_of": request.param, "replicate": True, "min_insync_replicas": 2}
    with threaded_broker(nodes=3, **options) as broker:
        broker.call(broker.broker.create_topic, "t", 1, 3)
        yield broker


def kill_leader(threaded: ThreadedBroker) -> None:
    threaded.call(lambda: threaded.broker.kill(threaded.broker.leader("t", 0)))


def test_kafka_python(threaded: ThreadedBroker) -> None:
    as_of = threaded.broker.options.as_of
    # Before 0.11 there are no idempotent producers.
    idempotent = as_of == "2.8"
    producer = KafkaProducer(
        bootstrap_servers=threaded.servers, acks="all", enable_idempotence=idempotent
    )
    for index, value in enumerate(VALUES):
        if index == len(VALUES) // 2:
            kill_leader(threaded)
        producer.send("t", value, partition=0).get(DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer(
        "t", bootstrap_servers=threaded.servers, group_id="g", auto_offset_reset="earliest"
    )
    got: list[bytes] = []
    repeat_until(
        lambda: got.extend(
            record.value for records in consumer.poll(1_000).values() for record in records
        ),
        lambda: set(VALUES) <= set(got),
    )
    consumer.close()
    assert list(dict.fromkeys(got)) == VALUES


def test_librdkafka(threaded: ThreadedBroker) -> None:
    quiet = logging.getLogger("librdkafka")
    quiet.setLevel(logging.CRITICAL)
    idempotent = threaded.broker.options.as_of == "2.8"
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": threaded.servers,
            "acks": "all",
            "enable.idempotence": idempotent,
            "topic.metadata.refresh.interval.ms": 500,
        },
        logger=quiet,
    )
    errors: list[Any] = []
    for index, value in enumerate(VALUES):
        if index == len(VALUES) // 2:
            kill_leader(threaded)
        producer.produce("t", value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
    assert errors == [None] * len(VALUES)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": threaded.servers, "group.id": "g", "auto.offset.reset": "earliest"},
        logger=quiet,
    )
    consumer.subscribe(["t"])
    got: list[bytes] = []

    def poll() -> None:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            got.append(message.value())

    repeat_until(poll, lambda: set(VALUES) <= set(got))
    consumer.close()
    assert list(dict.fromkeys(got)) == VALUES
