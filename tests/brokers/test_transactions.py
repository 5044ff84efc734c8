"""Transactions across clients on real Kafka: ours are read by others, those of others by us.

The others are confluent-kafka and Kafka's own console consumer and load generator.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import anyio
import confluent_kafka
import pytest

from aiokafkawire import Consumer, GroupMetadata, Producer, TopicPartition
from aiokafkawire.errors import ProducerFenced
from tests.brokers.fixtures import session_kafka, what_real_kafka_needs
from tests.brokers.kafka import DEFAULT_VERSION, Kafka
from tests.brokers.releases import RELEASES, fetch, java_for

SERVERS = [
    *[pytest.param((version, 1), id=version) for version in ("0.11.0.3", "1.1.1", "2.8.2")],
    pytest.param(("3.9.1", 1), id="3.9.1"),
    pytest.param((DEFAULT_VERSION, 1), id=DEFAULT_VERSION),
    pytest.param((DEFAULT_VERSION, 3), id=f"{DEFAULT_VERSION}, three nodes"),
]
JAVA_TIMEOUT_SECONDS = 60.0
QUIET_MS = 8_000
"""Time without a record after which the console consumer ends."""
WITHIN_S = 30.0
FIRST_THAT_CHECKS_MEMBERS = (2, 5)
FIRST_THAT_LISTS_TRANSACTIONS = (3, 0)

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
LOAD_GENERATOR = "org.apache.kafka.tools.ProducerPerformance"

Values = list[bytes | None]


@pytest.fixture(scope="module", params=SERVERS)
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    version, nodes = request.param
    if version == DEFAULT_VERSION:
        yield session_kafka(request.config, nodes)
        return
    older = Kafka(version)
    try:
        with what_real_kafka_needs():
            older.start()
        yield older
    finally:
        older.close()


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = f"transactions-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(name, partitions=2, replication_factor=len(kafka.nodes))
    return name


@pytest.fixture
def name() -> str:
    return f"id-{uuid.uuid4().hex[:12]}"


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        with anyio.fail_after(WITHIN_S):
            return await work()

    return anyio.run(bounded)


def java(kafka: Kafka, tool: str, *arguments: object) -> str:
    """Return the output of one of Kafka's own tools; tools of 3.9 support all brokers before
    4.0."""
    release = RELEASES[DEFAULT_VERSION if kafka.release.version.startswith("4.") else "3.9.1"]
    with what_real_kafka_needs():
        jars, binary = fetch(release), java_for(release)
    command = [str(binary), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", tool]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=JAVA_TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- readers ------------------------------------------------------------------------------------


def read_by_java(kafka: Kafka, topic: str) -> Values:
    output = java(
        kafka, CONSOLE_CONSUMER, "--bootstrap-server", kafka.bootstrap_servers, "--topic", topic,
        "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", QUIET_MS,
    )  # fmt: skip
    return [line.encode() for line in output.splitlines()]


def read_by_confluent(kafka: Kafka, topic: str, level: str) -> Values:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in (0, 1)])
    values: Values = []
    ended: set[int] = set()
    while len(ended) < 2:
        message = consumer.poll(WITHIN_S)
        assert message is not None
        if message.error() is None:
            values.append(message.value())
        else:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return values


async def read_by_us(kafka: Kafka, topic: str, level: Any) -> Values:
    """All up to where a reader of this level comes to, once no transaction is open."""
    tps = [TopicPartition(topic, number) for number in (0, 1)]
    values: Values = []
    async with Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        isolation_level=level,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    ) as consumer:
        consumer.assign(tps)
        while True:
            for some in (await consumer.getmany(timeout_ms=50)).values():
                values += some.values()
            high = [consumer.highwater(tp) for tp in tps]
            if [await consumer.position(tp) for tp in tps] == high:
                return values


def settled(kafka: Kafka, topic: str) -> None:
    """Wait until the markers are written: until we read to the end."""
    run(lambda: read_by_us(kafka, topic, "read_committed"))


# --- writers ------------------------------------------------------------------------------------

KEPT = [b"first", b"second", *(b"%03d" % number for number in range(100)), b"last"]


async def write_by_us(kafka: Kafka, topic: str, name: str) -> None:
    async with Producer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=name
    ) as producer:
        async with producer.transaction():
            await producer.send(topic, b"first", partition=0)
            await producer.send(topic, b"second", partition=1)
        await producer.begin_transaction()
        for number in range(50):
            await producer.send(topic, b"taken back %d" % number, partition=number % 2)
        await producer.flush()
        await producer.abort_transaction()
        async with producer.transaction():
            for number in range(100):
                await producer.send(topic, b"%03d" % number, partition=number % 2)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"taken back", partition=1)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"last", partition=0)


def write_by_confluent(kafka: Kafka, topic: str, name: str) -> None:
    producer = their_producer(kafka, name)

    def transaction(values: Sequence[bytes], *, commit: bool) -> None:
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % 2)
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)()

    transaction(KEPT[:2], commit=True)
    transaction([b"taken back %d" % number for number in range(50)], commit=False)
    transaction(KEPT[2:-1], commit=True)
    transaction([b"taken back"] * 2, commit=False)
    transaction(KEPT[-1:], commit=True)


def their_producer(kafka: Kafka, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions()
    return producer


# --- across ---------------------------------------------------------------------------------------


def test_others_read_what_we_commit_and_nothing_that_we_abort(
    kafka: Kafka, topic: str, name: str
) -> None:
    run(lambda: write_by_us(kafka, topic, name))
    settled(kafka, topic)
    assert sorted(run(lambda: read_by_us(kafka, topic, "read_committed"))) == sorted(KEPT)
    assert sorted(read_by_confluent(kafka, topic, "read_committed")) == sorted(KEPT)
    assert len(read_by_confluent(kafka, topic, "read_uncommitted")) > len(KEPT)
    assert sorted(read_by_java(kafka, topic)) == sorted(KEPT)


def test_we_read_what_others_commit_and_nothing_that_they_abort(
    kafka: Kafka, topic: str, name: str
) -> None:
    write_by_confluent(kafka, topic, name)
    assert sorted(run(lambda: read_by_us(kafka, topic, "read_committed"))) == sorted(KEPT)
    everything = run(lambda: read_by_us(kafka, topic, "read_uncommitted"))
    assert len(everything) == len(KEPT) + 52


def test_we_read_what_the_java_client_commits(kafka: Kafka, topic: str, name: str) -> None:
    java(
        kafka, LOAD_GENERATOR, "--topic", topic, "--num-records", 2_000, "--record-size", 20,
        "--throughput", -1, "--transactional-id", name, "--transaction-duration-ms", 50,
        "--producer-props", f"bootstrap.servers={kafka.bootstrap_servers}", "linger.ms=5",
    )  # fmt: skip
    values = run(lambda: read_by_us(kafka, topic, "read_committed"))
    assert [len(value) for value in values] == [20] * 2_000


def test_the_older_of_two_clients_is_fenced(kafka: Kafka, topic: str, name: str) -> None:
    async def we_are_older() -> None:
        ours = Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name)
        async with ours:
            await ours.begin_transaction()
            await ours.send_and_wait(topic, b"ours", partition=0)
            theirs = await anyio.to_thread.run_sync(their_producer, kafka, name)
            with pytest.raises(ProducerFenced, match=name):
                await ours.commit_transaction()
        theirs.begin_transaction()
        theirs.produce(topic, b"theirs", partition=0)
        await anyio.to_thread.run_sync(theirs.commit_transaction)
        theirs.begin_transaction()
        theirs.produce(topic, b"theirs, fenced", partition=0)
        await anyio.to_thread.run_sync(theirs.flush)
        async with Producer(
            bootstrap_servers=kafka.bootstrap_servers, transactional_id=name
        ) as newest:
            async with newest.transaction():
                await newest.send(topic, b"ours again", partition=0)
            with pytest.raises(confluent_kafka.KafkaException) as raised:
                await anyio.to_thread.run_sync(theirs.commit_transaction)
            assert raised.value.args[0].fatal()

    run(we_are_older)
    expected = [b"theirs", b"ours again"]
    assert run(lambda: read_by_us(kafka, topic, "read_committed")) == expected
    assert read_by_confluent(kafka, topic, "read_committed") == expected


def test_offsets_that_we_commit_in_a_transaction_are_read_by_others(
    kafka: Kafka, topic: str, name: str
) -> None:
    group = f"group-{name}"

    async def consume_and_commit() -> None:
        async with (
            Consumer(
                topic,
                bootstrap_servers=kafka.bootstrap_servers,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            ) as consumer,
            Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name) as producer,
        ):
            seen = 0
            while seen < len(KEPT):
                batches = await consumer.getmany(timeout_ms=500)
                async with producer.transaction():
                    if kafka.release.number < FIRST_THAT_CHECKS_MEMBERS:
                        member = GroupMetadata(group)
                        await producer.send_offsets_to_transaction(consumer.positions(), member)
                    else:
                        await producer.send_offsets_to_transaction(consumer)
                seen += sum(map(len, batches.values()))

    write_by_confluent(kafka, topic, name)
    run(consume_and_commit)
    theirs = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}
    )
    tps = [confluent_kafka.TopicPartition(topic, number) for number in (0, 1)]
    committed = [found.offset for found in theirs.committed(tps, timeout=WITHIN_S)]
    ends = [theirs.get_watermark_offsets(tp, timeout=WITHIN_S)[1] for tp in tps]
    theirs.close()
    # What follows the last record, if anything, is a marker or was taken back.
    assert all(end - 4 <= offset <= end for offset, end in zip(committed, ends, strict=True))


def txns(kafka: Kafka, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aiokafkawire", "txns", *arguments]
    return subprocess.run(
        [*command, "-b", kafka.bootstrap_servers], check=False, capture_output=True, text=True
    )


def raised(kafka: Kafka, *arguments: str) -> list[dict[str, Any]]:
    done = txns(kafka, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_command_shows_an_open_transaction(kafka: Kafka, topic: str, name: str) -> None:
    if kafka.release.number < FIRST_THAT_LISTS_TRANSACTIONS:
        refused = txns(kafka, "list")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "ListTransactions" in refused.stderr
        return

    async def look() -> None:
        async with (
            Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name) as producer,
            producer.transaction(),
        ):
            await producer.send_and_wait(topic, b"value", partition=1)
            (described,) = await anyio.to_thread.run_sync(raised, kafka, "describe", name)
            assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
            assert described["partitions"] == [{"topic": topic, "partition": 1}]
            assert 0 <= described["duration_ms"] < WITHIN_S * 1_000
            ongoing = await anyio.to_thread.run_sync(raised, kafka, "list", "-s", "Ongoing")
            assert name in [each["transactional_id"] for each in ongoing]

    run(look)
    (described,) = raised(kafka, "describe", name)
    assert described["state"] in {"PrepareCommit", "CompleteCommit"}
