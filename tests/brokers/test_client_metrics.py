"""Clients push their metrics to real Kafka with a reporter that takes them (KIP-714)."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import anyio
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aiokafkawire import Admin, Consumer, Producer, blocking
from aiokafkawire.admin import ConfigResource, ConfigResourceType
from aiokafkawire.telemetry import java_names, reporter
from aiokafkawire.telemetry.collector import NODE_LATENCY, NODE_TOTALS, RATES_PER_HOUR
from aiokafkawire.telemetry.java_names import ClientKind
from aiokafkawire.testing import KafkaBroker
from tests.behaviour.support import eventually
from tests.brokers.fixtures import what_real_kafka_needs
from tests.brokers.kafka import JAVA_OPTIONS, Kafka
from tests.brokers.releases import RELEASES, fetch, java_for

RELEASE = RELEASES["4.3.0"]
RECEIVER = Path(__file__).with_name("ClientMetricsReceiver.java")
WITHIN_S = 90
COMPILE_S = 60
TOPIC = "orders"
SUBSCRIPTION = {"metrics": "*", "interval.ms": "200"}
EVERYTHING = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all")

PRODUCER = {
    "org.apache.kafka.producer.connection.creation.rate",
    "org.apache.kafka.producer.connection.creation.total",
    "org.apache.kafka.producer.node.request.latency.avg",
    "org.apache.kafka.producer.node.request.latency.max",
    "org.apache.kafka.producer.produce.throttle.time.avg",
    "org.apache.kafka.producer.produce.throttle.time.max",
    "org.apache.kafka.producer.record.queue.time.avg",
    "org.apache.kafka.producer.record.queue.time.max",
}
CONSUMER = {
    "org.apache.kafka.consumer.connection.creation.rate",
    "org.apache.kafka.consumer.connection.creation.total",
    "org.apache.kafka.consumer.coordinator.assigned.partitions",
    "org.apache.kafka.consumer.coordinator.commit.latency.avg",
    "org.apache.kafka.consumer.coordinator.commit.latency.max",
    "org.apache.kafka.consumer.coordinator.rebalance.latency.avg",
    "org.apache.kafka.consumer.coordinator.rebalance.latency.max",
    "org.apache.kafka.consumer.coordinator.rebalance.latency.total",
    "org.apache.kafka.consumer.fetch.manager.fetch.latency.avg",
    "org.apache.kafka.consumer.fetch.manager.fetch.latency.max",
    "org.apache.kafka.consumer.node.request.latency.avg",
    "org.apache.kafka.consumer.node.request.latency.max",
    "org.apache.kafka.consumer.poll.idle.ratio.avg",
}


@dataclass(frozen=True)
class Push:
    """A line of the receiver."""

    client_id: str
    instance_id: UUID
    terminating: bool
    metrics: MetricsData

    @classmethod
    def parse(cls, line: str) -> Push:
        client_id, instance_id, terminating, content_type, metrics = line.split(" ")
        assert content_type == "OTLP"
        raw = base64.urlsafe_b64decode(f"{instance_id}==")
        data = MetricsData.FromString(base64.b64decode(metrics))
        return cls(client_id, UUID(bytes=raw), terminating == "true", data)

    @property
    def names(self) -> set[str]:
        return {
            metric.name
            for resource in self.metrics.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


class Cluster:
    """Kafka whose receiver writes to a file."""

    def __init__(self, kafka: Kafka, file: Path) -> None:
        self.servers = kafka.bootstrap_servers
        self._file = file

    def pushes(self, client_id: str) -> list[Push]:
        if not self._file.exists():
            return []
        # The last line may be incomplete.
        lines = self._file.read_text("ascii").split("\n")[:-1]
        return [push for push in map(Push.parse, lines) if push.client_id == client_id]

    async def wait_for(self, client_id: str, names: set[str]) -> None:
        """Wait until the pushes of a client have had all these metrics."""

        async def are_there() -> bool:
            return names <= {name for push in self.pushes(client_id) for name in push.names}

        await eventually(are_there)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("client-metrics")
    with what_real_kafka_needs():
        compiler, jars = java_for(RELEASE).with_name("javac"), fetch(RELEASE)
    command = [str(compiler), "-nowarn", "-cp", f"{jars}/*", "-d", str(folder), str(RECEIVER)]
    subprocess.run(command, check=True, timeout=COMPILE_S)
    file = folder / "pushes.txt"
    properties = {"metric.reporters": "ClientMetricsReceiver", "client.metrics.file": str(file)}
    with Kafka(properties=properties, classes=folder) as kafka:
        kafka.create_topic(TOPIC)
        yield Cluster(kafka, file)


async def is_subscribed(admin: Admin) -> bool:
    return await admin.list_client_metrics_resources() == ["all"]


async def test_kafka_takes_the_pushes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "TERMINATING_PUSH_S", float(WITHIN_S))
    servers, name = cluster.servers, uuid4().hex
    async with Admin(bootstrap_servers=servers, enable_metrics_push=False) as admin:
        await admin.incremental_alter_configs({EVERYTHING: SUBSCRIPTION})
        await eventually(partial(is_subscribed, admin))
    with anyio.fail_after(WITHIN_S):
        async with (
            Producer(bootstrap_servers=servers, client_id=f"{name}-p") as producer,
            Consumer(
                TOPIC,
                bootstrap_servers=servers,
                client_id=f"{name}-c",
                group_id=name,
                auto_offset_reset="earliest",
            ) as consumer,
            anyio.create_task_group() as tasks,
        ):

            async def keep_reading() -> None:
                async for _ in consumer:
                    await consumer.commit()

            async def keep_sending() -> None:
                while True:
                    await producer.send_many(TOPIC, [b"pen", b"book"])
                    await producer.flush()
                    await anyio.sleep(0.1)

            tasks.start_soon(keep_reading)
            tasks.start_soon(keep_sending)
            await cluster.wait_for(f"{name}-p", PRODUCER)
            await cluster.wait_for(f"{name}-c", CONSUMER)
            producer_id = await producer.client_instance_id()
            consumer_id = await consumer.client_instance_id()
            tasks.cancel_scope.cancel()
    for client_id, instance_id in ((f"{name}-p", producer_id), (f"{name}-c", consumer_id)):
        pushes = cluster.pushes(client_id)
        assert {push.instance_id for push in pushes} == {instance_id}
        assert [push.terminating for push in pushes] == [False] * (len(pushes) - 1) + [True]


MEASURED: dict[ClientKind, set[str]] = {
    java_names.PRODUCER: {"record.queue.time", "request.latency"},
    java_names.CONSUMER: {
        "fetch.manager.fetch.latency",
        "coordinator.commit.latency",
        "coordinator.rebalance.latency",
    },
    java_names.SHARE_CONSUMER: {"share.fetch.manager.fetch.latency"},
}
"""Metrics with an average and a maximum, besides the latency by node."""

JAVA_TOOLS: dict[ClientKind, tuple[str, ...]] = {
    java_names.PRODUCER: ("ConsoleProducer", "--topic", TOPIC),
    java_names.CONSUMER: ("consumer.ConsoleConsumer", "--topic", TOPIC, "--from-beginning"),
    java_names.SHARE_CONSUMER: ("consumer.ConsoleShareConsumer", "--topic", TOPIC),
}


async def prepare(servers: str) -> None:
    """Subscribe to all metrics, and send a record for the consumers to read."""
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.incremental_alter_configs({EVERYTHING: SUBSCRIPTION})
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(TOPIC, b"book")


@pytest.mark.parametrize("kind", JAVA_TOOLS)
def test_the_java_client_has_the_same_names(kind: ClientKind) -> None:
    wanted = {*java_names.JAVA_NAMES[kind].values(), *NODE_TOTALS.values()}
    wanted |= {
        RATES_PER_HOUR.get(name, f"{name.removesuffix('total')}rate")
        for name in wanted
        if name.endswith(".total")
    }
    measured = {NODE_LATENCY, java_names.THROTTLE_TIMES[kind], *MEASURED[kind]}
    wanted |= {f"{name}.{end}" for name in measured for end in ("avg", "max")}
    wanted = {java_names.PREFIXES[kind] + name for name in wanted}
    with what_real_kafka_needs():
        java, jars = java_for(RELEASE), fetch(RELEASE)
    with KafkaBroker(client_telemetry=True) as broker:
        broker.create_topic(TOPIC)
        blocking.call(prepare, broker.bootstrap_servers)
        tool, *arguments = JAVA_TOOLS[kind]
        command = [str(java), *JAVA_OPTIONS, "-cp", f"{jars}/*", f"org.apache.kafka.tools.{tool}"]
        process = subprocess.Popen(
            [*command, "--bootstrap-server", broker.bootstrap_servers, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert process.stdin is not None
            process.stdin.write(b"pen\n")
            process.stdin.flush()
            missing, end = wanted, time.monotonic() + WITHIN_S
            while missing and time.monotonic() < end:
                time.sleep(0.1)
                missing = wanted - {
                    metric.name
                    for push in broker.client_metrics
                    if push.client_id.startswith("console-")
                    for resource in push.decode()
                    for metric in resource.metrics
                    if (metric.temporality is not None) == metric.name.endswith(".total")
                }
        finally:
            process.kill()
            process.communicate(timeout=WITHIN_S)
    assert not missing
