"""Run a broker on one core, and each client in a process on another one."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient

from benchmarks.load import BATCH_BYTES, LINGER_MS, PARTITIONS, VALUE
from tests.brokers.kafka import Kafka, Node
from tests.brokers.process import HOST, free_ports
from tests.brokers.security.pki import Pki

SIDE_TIMEOUT_SECONDS = 180.0
FILL_TIMEOUT_SECONDS = 120.0
CALL_TIMEOUT_SECONDS = 20.0
WARM_UP_MESSAGES = 500_000
BROKER_PROPERTIES = {"log.segment.bytes": "268435456", "log.segment.delete.delay.ms": "1000"}
BROKER_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-Xms1g", "-Xmx1g")
"""Like Kafka's start script, but with the garbage collector for a single core."""


STORAGE_BYTES = 8 * 2**30


@dataclass(frozen=True, slots=True)
class Result:
    """The cost of one side.

    `busy` is the share of its core that it used, `broker_busy` that of the broker's core.
    """

    per_second: float
    cpu_us_per_message: float
    rss_mib: float = 0.0
    busy: float | None = None
    broker_busy: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    about: str = ""


class TlsKafka(Kafka):
    """A broker with another listener, for clients over TLS."""

    def __init__(self, folder: Path) -> None:
        self.pki = Pki(folder)
        (self._tls_port,) = free_ports(1)
        super().__init__(
            directory=folder, properties=BROKER_PROPERTIES, java_options=BROKER_JAVA_OPTIONS
        )

    @property
    def tls_address(self) -> str:
        return f"localhost:{self._tls_port}"

    def _settings(self, node: Node, nodes: Sequence[Node]) -> dict[str, str]:
        settings = super()._settings(node, nodes)
        for name, host in (("listeners", HOST), ("advertised.listeners", "localhost")):
            settings[name] += f",SSL://{host}:{self._tls_port}"
        settings["listener.security.protocol.map"] = (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL"
        )
        return settings | {
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.pki.server.pem_store),
        }


class Bench:
    """A running broker, the cores, and the topic that consumers read."""

    def __init__(self, kafka: TlsKafka, core: int | None, compression: str = "none") -> None:
        self._kafka = kafka
        self._core = core
        self._compression = compression
        self._filled: dict[int, str] = {}

    @property
    def bootstrap_servers(self) -> str:
        return self._kafka.bootstrap_servers

    def warm_up(self, messages: int = WARM_UP_MESSAGES) -> None:
        """Let the JVM compile the broker's code before the first measurement."""
        self.delete(self.new_topic_with(messages))

    def produced(self, client: str, action: str, messages: int, **how: object) -> Result:
        """Measure writing to a new topic, and check that all messages are there."""
        topic = self.new_topic()
        result = self.measure(client, action, topic, messages, **how)
        if (stored := self._stored(topic)) != messages:
            raise RuntimeError(f"{client} wrote {stored} messages instead of {messages}")
        self.delete(topic)
        return result

    def consumed(self, client: str, action: str, messages: int, **how: object) -> Result:
        """Measure reading from the shared topic."""
        enough = [count for count in self._filled if count >= messages]
        if not enough:
            self._filled[messages] = self.new_topic_with(messages)
        topic = self._filled[min(enough, default=messages)]
        return self.measure(client, action, topic, messages, **how)

    def measure(
        self,
        client: str,
        action: str,
        topic: str,
        messages: int,
        *,
        profile: bool = False,
        loop: str = "asyncio",
        tls: bool = False,
    ) -> Result:
        """Run one side in a new process."""
        command = [sys.executable, "-m", "benchmarks.side", client, action]
        servers = self._kafka.tls_address if tls else self.bootstrap_servers
        command += [servers, topic, str(messages), "--loop", loop]
        if tls:
            command += ["--authority", str(self._kafka.pki.authority)]
        command += ["--compression", self._compression]
        if self._core is not None:
            command += ["--core", str(self._core)]
        if (process := self._kafka.nodes[0].process) is not None:
            command += ["--broker", str(process.pid)]
        if profile:
            command.append("--profile")
        output = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, timeout=SIDE_TIMEOUT_SECONDS
        ).stdout
        found = json.loads(output)
        return Result(
            found["messages"] / found["seconds"],
            found["cpu_seconds"] / found["messages"] * 1e6,
            found["rss_mib"],
            found.get("busy"),
            found.get("broker_busy"),
            found.get("p50_ms"),
            found.get("p99_ms"),
            found["about"],
        )

    def new_topic(self) -> str:
        name = f"bench-{uuid.uuid4().hex[:12]}"
        self.create(name)
        return name

    def create(self, topic: str) -> None:
        self._kafka.create_topic(topic, partitions=PARTITIONS)

    def delete(self, topic: str) -> None:
        """Delete a topic, so that its data is not written to disk during other measurements."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 3})
        admin.delete_topics([topic])[topic].result(CALL_TIMEOUT_SECONDS)

    def new_topic_with(self, messages: int) -> str:
        topic = self.new_topic()
        fill(self.bootstrap_servers, topic, messages, self._compression)
        return topic

    def _stored(self, topic: str) -> int:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap_servers, "group.id": "count", "log_level": 3}
        )
        try:
            ends = (
                consumer.get_watermark_offsets(
                    confluent_kafka.TopicPartition(topic, partition), timeout=CALL_TIMEOUT_SECONDS
                )
                for partition in range(PARTITIONS)
            )
            return sum(high - low for low, high in ends)
        finally:
            consumer.close()


def fill(bootstrap_servers: str, topic: str, messages: int, compression: str = "none") -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 3,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "compression.type": compression,
            "enable.idempotence": True,
            "queue.buffering.max.messages": messages,
        }
    )
    for number in range(messages):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
    if producer.flush(FILL_TIMEOUT_SECONDS):
        raise RuntimeError(f"{topic} was not filled in {FILL_TIMEOUT_SECONDS:.0f} s")


@contextmanager
def running(compression: str = "none") -> Iterator[Bench]:
    """Start a broker and yield a bench on it."""
    broker_core, client_core = cores()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=in_memory()) as directory:
        kafka = TlsKafka(Path(directory))
        try:
            pinned(kafka.start, broker_core)
            yield Bench(kafka, client_core, compression)
        finally:
            kafka.close()


def in_memory() -> str | None:
    """Return a directory in memory: disk writes would slow down the last side."""
    place = Path("/dev/shm")
    enough = place.is_dir() and shutil.disk_usage(place).free > STORAGE_BYTES
    return str(place) if enough else None


def spread(values: Sequence[float], layout: str) -> str:
    """Format the median, the minimum and the maximum."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:{layout}} ({low:{layout}} to {high:{layout}})"


def pinned(start: Callable[[], object], core: int | None) -> None:
    """Start processes pinned to a core; this process stays where it is."""
    if core is None:
        start()
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        start()
    finally:
        os.sched_setaffinity(0, before)


def cores() -> tuple[int | None, int | None]:
    """Return a core for the broker and one for the client, or None without two cores."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else (None, None)
