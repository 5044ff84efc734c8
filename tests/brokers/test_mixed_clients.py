"""Consumers of Java, of librdkafka and of this package in one group of the consumer protocol."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import confluent_kafka
import pytest
from anyio import to_thread

from aiokafkawire.admin import Admin, ConsumerGroupDescription, GroupState, NewTopic
from aiokafkawire.broker import Broker
from tests.behaviour.workers import Source, Worker, at_work, until
from tests.brokers.fixtures import session_kafka, what_real_kafka_needs
from tests.brokers.kafka import DEFAULT_VERSION, JAVA_OPTIONS
from tests.brokers.process import Process
from tests.brokers.releases import RELEASES, fetch, java_for

PARTITIONS = 6
WITHIN_S = 60
LEAVING_S = 30
JAVA, LIBRDKAFKA, OURS = "java", "librdkafka", "ours"


class JavaMember:
    """Kafka's console consumer, which prints the records that it reads."""

    TOOL = "ConsoleConsumer"
    CONFIG = "group.protocol=consumer\nauto.offset.reset=earliest\nauto.commit.interval.ms=100\n"

    def __init__(self, servers: str, topic: str, group: str, folder: Path) -> None:
        release = RELEASES[DEFAULT_VERSION]
        with what_real_kafka_needs():
            java, jars = java_for(release), fetch(release)
        config = folder / "consumer.properties"
        config.write_text(f"{self.CONFIG}client.id={JAVA}\n")
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        command = (str(java), *JAVA_OPTIONS, quiet, "-cp", f"{jars}/*")
        tool = f"org.apache.kafka.tools.consumer.{self.TOOL}"
        where = ("--bootstrap-server", servers, "--topic", topic, "--group", group)
        self._process = Process(
            (*command, tool, *where, "--command-config", str(config)), folder / "java.log"
        )

    def values(self) -> list[bytes]:
        lines = self._process.log.read_bytes().split(b"\n")
        # The last one may not be whole yet; what is not a record is a line of the log.
        return [line for line in lines[:-1] if line.replace(b"/", b"", 1).isdigit()]

    def leave(self) -> None:
        """Commit, leave the group and end."""
        self._process.terminate()
        assert self._process.wait(LEAVING_S), "the console consumer does not end"
        self.close()

    def close(self) -> None:
        self._process.kill()


class LibrdkafkaMember:
    """A consumer of confluent-kafka in a thread."""

    CONFIG: Mapping[str, object] = {
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
    }

    def __init__(self, servers: str, topic: str, group: str) -> None:
        config = {"bootstrap.servers": servers, "group.id": group, "client.id": LIBRDKAFKA}
        self._consumer = self._make({**config, **self.CONFIG, "log_level": 0})
        self._topic = topic
        self._read: list[bytes] = []
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._work, name=LIBRDKAFKA)
        self._thread.start()

    def _make(self, config: Mapping[str, object]) -> Any:
        return confluent_kafka.Consumer(config)

    def _work(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self._leaving.is_set():
            self._poll()
        self._close()

    def _poll(self) -> None:
        message = self._consumer.poll(0.1)
        if message is not None and message.error() is None:
            self._read.append(message.value() or b"")

    def _close(self) -> None:
        self._consumer.close()

    def values(self) -> list[bytes]:
        return list(self._read)

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(LEAVING_S)
        assert not self._thread.is_alive()

    close = leave


@asynccontextmanager
async def mixed_servers(request: pytest.FixtureRequest, **options: int) -> AsyncIterator[str]:
    """Serve an embedded broker with these options, or Apache Kafka, as the parameter says."""
    if request.param == "kafka":
        yield session_kafka(request.config).bootstrap_servers
        return
    async with Broker(as_of="4.3", **options) as broker:  # type: ignore[arg-type]
        yield broker.bootstrap_servers


@pytest.fixture(params=["embedded", "kafka"])
async def servers(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncIterator[str]:
    async with mixed_servers(
        request,
        group_consumer_min_heartbeat_interval_ms=100,
        group_consumer_heartbeat_interval_ms=200,
        group_consumer_assignment_interval_ms=0,
    ) as servers:
        yield servers


Member = JavaMember | LibrdkafkaMember | Worker


def read(member: Member) -> list[bytes]:
    if isinstance(member, Worker):
        return [record.value or b"" for record in member.seen]
    return member.values()


def seen(members: Iterable[Member]) -> Counter[bytes]:
    return Counter(value for member in members for value in read(member))


async def shares(admin: Admin, group: str, wanted: Mapping[str, int]) -> None:
    """Wait until these members, by client id, own these numbers of partitions."""
    with anyio.fail_after(WITHIN_S):
        while True:
            found = (await admin.describe_consumer_groups([group], return_errors=True))[group]
            # Before the first member has joined, there is no group.
            if isinstance(found, ConsumerGroupDescription):
                owned = {each.client_id: len(each.assignment) for each in found.members}
                if owned == wanted and found.group_state is GroupState.STABLE:
                    break
            await anyio.sleep(0.2)
    assert len({tp for each in found.members for tp in each.assignment}) == PARTITIONS


async def more(*members: Member) -> None:
    """Wait until each member reads more records."""
    so_far = [len(read(member)) for member in members]
    with anyio.fail_after(WITHIN_S):
        for member, count in zip(members, so_far, strict=True):
            while len(read(member)) < count + 20:  # noqa: ASYNC110 - another process reads
                await anyio.sleep(0.1)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_they_share_move_and_leave_partitions(
    servers: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    topic, group = f"mixed-{uuid.uuid4().hex[:12]}", f"group-{uuid.uuid4().hex[:12]}"
    source = Source(servers, topic, PARTITIONS)
    ours = [
        Worker(servers, topic, group, group_protocol="consumer", client_id=OURS) for _ in range(2)
    ]
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.ensure_topics([NewTopic(topic, PARTITIONS)])
        await admin.wait_for_topics([topic])
        with ExitStack() as stack:
            async with at_work(ours[0]) as tasks:
                tasks.start_soon(source.work)
                await shares(admin, group, {OURS: 6})
                librdkafka = LibrdkafkaMember(servers, topic, group)
                stack.callback(librdkafka.close)
                await shares(admin, group, {OURS: 3, LIBRDKAFKA: 3})
                java = JavaMember(servers, topic, group, tmp_path)
                stack.callback(java.close)
                await shares(admin, group, {OURS: 2, LIBRDKAFKA: 2, JAVA: 2})
                await more(ours[0], librdkafka, java)
                await to_thread.run_sync(librdkafka.leave)
                await shares(admin, group, {OURS: 3, JAVA: 3})
                await ours[0].leave()
                await shares(admin, group, {JAVA: 6})
                await more(java)
                tasks.start_soon(ours[1].work)
                await shares(admin, group, {OURS: 3, JAVA: 3})
                await more(ours[1], java)
                await to_thread.run_sync(java.leave)
                await shares(admin, group, {OURS: 6})
                await source.stop()
                members: list[Member] = [*ours, librdkafka, java]
                await until(ours[1:], lambda: seen(members).keys() == source.sent)
                await ours[1].leave()
    again = seen(members).total() - len(source.sent)
    record_property(
        "summary",
        f"Java, librdkafka and this client in one group: {len(source.sent)} records read, "
        f"{again} of them again",
    )
