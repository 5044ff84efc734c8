"""Real Kafka starts, serves a client that is not ours, and keeps its data."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import confluent_kafka
import pytest

from tests.brokers import kafka as kafka_module
from tests.brokers import raw
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import Kafka, StartFailed
from tests.brokers.process import HOST, free_ports
from tests.brokers.releases import PROJECT_ROOT

pytestmark = pytest.mark.real_kafka

DEADLINE_SECONDS = 60.0


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:12]}"


def produce(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "socket.timeout.ms": 5_000,
            "request.timeout.ms": 5_000,
            "log_level": 0,
        }
    )
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_SECONDS) == 0


def consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    """Read `count` records as a member of the topic's group, and commit them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"readers-of-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        messages = consumer.consume(count, DEADLINE_SECONDS)
        assert [message.error() for message in messages] == [None] * count
        consumer.commit(asynchronous=False)
        return [message.value() for message in messages]
    finally:
        consumer.close()


def test_a_topic_on_demand_is_produced_and_consumed(kafka_43: str, topic: str) -> None:
    values = [b"%d" % number for number in range(100)]
    produce(kafka_43, topic, values)
    assert consume(kafka_43, topic, 100) == values


def test_a_restart_keeps_address_records_and_committed_offsets(
    kafka_43_server: Kafka, topic: str
) -> None:
    before = kafka_43_server.bootstrap_servers
    produce(before, topic, [b"a", b"b", b"c"])
    assert consume(before, topic, 2) == [b"a", b"b"]
    kafka_43_server.restart()
    assert kafka_43_server.bootstrap_servers == before
    assert consume(before, topic, 1) == [b"c"]


def test_a_suspended_broker_accepts_and_does_not_answer(kafka_43_server: Kafka) -> None:
    address = kafka_43_server.nodes[0].address
    kafka_43_server.suspend()
    try:
        with pytest.raises(TimeoutError):
            raw.metadata(address, timeout_seconds=0.5)
    finally:
        kafka_43_server.resume()
    assert raw.metadata(address).nodes == {1: address}


def test_topics_are_created_with_partitions_and_settings(
    kafka_43_server: Kafka, topic: str
) -> None:
    kafka_43_server.create_topic(topic, partitions=12, configs={"retention.ms": "60000"})
    seen = raw.metadata(kafka_43_server.nodes[0].address)
    assert seen.leaders[topic] == dict.fromkeys(range(12), 1)
    with pytest.raises(raw.Refused, match="error 36 "):
        kafka_43_server.create_topic(topic)


def test_a_taken_port_is_given_up_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, *others = free_ports(4)
    drawn = iter([[taken, others[0]], others[1:]])
    monkeypatch.setattr(kafka_module, "free_ports", lambda _count: next(drawn))
    with (
        socket.create_server((HOST, taken)),
        what_real_kafka_needs(),
        Kafka() as kafka,
    ):
        assert kafka.bootstrap_servers == f"{HOST}:{others[1]}"
        kafka.nodes[0].kill()


def test_a_node_that_ends_while_starting_fails_at_once_with_its_log(tmp_path: Path) -> None:
    """A valid storage, and settings that only the broker itself refuses."""
    kafka = Kafka(directory=tmp_path, properties={"metric.reporters": "no.such.Reporter"})
    with (
        what_real_kafka_needs(),
        pytest.raises(StartFailed, match=r"(?s)node 1 ended .*no\.such\.Reporter"),
        kafka,
    ):
        pytest.fail("started")
    assert (tmp_path / "node-1" / "server.log").exists(), "a given directory is kept"


def test_settings_that_cannot_be_read_fail_before_the_broker_starts() -> None:
    with (
        what_real_kafka_needs(),
        pytest.raises(StartFailed, match=r"(?s)could not be formatted .*num\.partitions"),
        Kafka(properties={"num.partitions": "many"}),
    ):
        pytest.fail("started")


@pytest.mark.slow
def test_three_nodes_go_on_without_one_and_take_it_back(topic: str) -> None:
    """After a kill the others take over; a frozen node alone does not respond."""
    with what_real_kafka_needs(), Kafka(nodes=3) as kafka:
        kafka.create_topic(topic, partitions=3, replication_factor=3)
        produce(kafka.bootstrap_servers, topic, [b"a"])
        assert consume(kafka.bootstrap_servers, topic, 1) == [b"a"]
        seen = raw.metadata(kafka.nodes[0].address)
        for name in (topic, "__consumer_offsets"):
            assert {tuple(sorted(copies)) for copies in seen.replicas[name].values()} == {(1, 2, 3)}
        killed, frozen = kafka.nodes[2], kafka.nodes[1]
        killed.kill()
        produce(kafka.bootstrap_servers, topic, [b"b"])
        kafka.start()
        assert raw.metadata(killed.address).nodes.keys() == {1, 2, 3}
        frozen.suspend()
        try:
            with pytest.raises(TimeoutError):
                raw.metadata(frozen.address, timeout_seconds=0.5)
            assert raw.metadata(killed.address).nodes
        finally:
            frozen.resume()
        produce(kafka.bootstrap_servers, topic, [b"c"])
        assert consume(kafka.bootstrap_servers, topic, 2) == [b"b", b"c"]


def test_by_hand_it_prints_the_address_and_ends_with_ctrl_c(kafka_43: str) -> None:
    command = [sys.executable, "-m", "tests.brokers.kafka"]
    with subprocess.Popen(
        command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        printed = process.stdout.readline().strip()
        assert re.fullmatch(r"127\.0\.0\.1:\d+", printed)
        assert printed != kafka_43
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 130
    assert re.search(r"ready after \d+\.\d s", errors)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, int(printed.split(":")[1])), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": "4.0.1"}, "unknown Kafka version '4.0.1'; known: 4.3.0, 4.2.0"),
        ({"nodes": 0}, "nodes must be 1 to 9"),
        ({"nodes": 2, "ports": [1]}, "1 ports given for 2 nodes"),
    ],
)
def test_what_cannot_be_started_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Kafka(**options)  # type: ignore[arg-type]
