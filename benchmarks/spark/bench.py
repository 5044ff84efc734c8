"""Run the broker and both drivers, and measure one action after the other."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
from confluent_kafka.admin import AdminClient

from aiokafkawire import Consumer, Producer, blocking
from aiokafkawire.types import TopicPartition
from benchmarks.bench import (
    BROKER_JAVA_OPTIONS,
    BROKER_PROPERTIES,
    CALL_TIMEOUT_SECONDS,
    Result,
    in_memory,
)
from benchmarks.load import PARTITIONS, VALUE
from benchmarks.rows import OURS, Actor, Row
from benchmarks.side import cpu_seconds_of
from benchmarks.spark.rows import THEIRS, TRICKLE_PER_SECOND, driver_action
from tests.brokers.kafka import Kafka
from tests.spark.jvm import environment

ROOT = Path(__file__).parent.parent.parent
START_SECONDS = 90.0
ACTION_TIMEOUT_S = 200.0
END_SECONDS = 30.0
TRICKLE_SECONDS = 10.0
"""Shortest time for which micro-batches are measured, in seconds."""
ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": ""}
"""Keep compiled modules, whatever the shell sets: each Spark worker imports them."""
FILL_BATCH = 10_000
"""Rows per call of `send_many`."""


class Side:
    """A driver process for the whole run."""

    def __init__(self, command: list[str], python: str, log: Path) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | ENVIRONMENT | {"PYSPARK_PYTHON": python},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        self._log = log
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.about = ""

    def started(self) -> None:
        self.about = self._answer(START_SECONDS)["about"]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer(ACTION_TIMEOUT_S)

    def end(self) -> None:
        """Close the driver's input, which ends it with all its processes."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _answer(self, seconds: float) -> dict[str, Any]:
        line = self._lines.get(timeout=seconds)
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            log = self._log.read_text(errors="replace")[-4_000:]
            raise RuntimeError(f"{answer['error']}\n{log}")
        return answer


class SparkBench:
    """A running broker, a driver per side, and the topics to read."""

    def __init__(self, kafka: Kafka, sides: dict[str, Side]) -> None:
        self._kafka = kafka
        self._sides = sides
        self._filled: dict[tuple[int, int], str] = {}

    @property
    def servers(self) -> str:
        return self._kafka.bootstrap_servers

    def measure(self, row: Row, actor: Actor) -> Result:
        """Run one side and check its result."""
        action = driver_action(actor)
        request: dict[str, Any] = {
            "action": action.name,
            "columns": action.columns,
            "options": dict(action.options),
            "rows": row.messages,
            "partitions": PARTITIONS,
        }
        if action.name == "trickle":
            return self._trickle(row, actor, request)
        if row.reads:
            request["topic"] = self.filled(row.messages)
        if action.name in ("write", "copy"):
            request["sink"] = self.new_topic()
        result, _ = self._asked(actor, request)
        if sink := request.get("sink"):
            if (stored := self._stored(sink)) != row.messages:
                raise RuntimeError(f"{actor.name} wrote {stored} rows, not {row.messages}")
            self.delete(sink)
        return result

    def ask(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        """Return the response of a side's driver."""
        return self._sides[name].ask(request)

    def _asked(self, actor: Actor, request: dict[str, Any]) -> tuple[Result, dict[str, Any]]:
        side, broker = self._sides[actor.client], self._kafka.nodes[0].process
        broker_began = cpu_seconds_of(broker.pid if broker else None) or 0.0
        found = side.ask(request)
        broker_took = (cpu_seconds_of(broker.pid if broker else None) or 0.0) - broker_began
        if request["action"] != "trickle" and found["rows"] != request["rows"]:
            raise RuntimeError(f"{actor.name} saw {found['rows']} rows, not {request['rows']}")
        seconds = found["seconds"]
        result = Result(
            found["rows"] / seconds,
            found["cpu_seconds"] / found["rows"] * 1e6,
            busy=found["cpu_seconds"] / seconds,
            broker_busy=broker_took / seconds,
            p50_ms=found.get("p50_ms"),
            p99_ms=found.get("p99_ms"),
            about=side.about,
        )
        return result, found

    def _trickle(self, row: Row, actor: Actor, request: dict[str, Any]) -> Result:
        topic = self.new_topic()
        seconds = max(row.messages / TRICKLE_PER_SECOND, TRICKLE_SECONDS)
        with trickling(self.servers, topic):
            result, found = self._asked(actor, request | {"topic": topic, "seconds": seconds})
        print(f"    {actor.name}: {found['parts']}", file=sys.stderr)
        self.delete(topic)
        return result

    def filled(self, messages: int, partitions: int = PARTITIONS) -> str:
        """Return a topic with this number of messages, shared by all readers."""
        if (messages, partitions) not in self._filled:
            topic = self.new_topic(partitions)
            blocking.call(fill, self.servers, topic, messages, partitions)
            self._filled[messages, partitions] = topic
        return self._filled[messages, partitions]

    def new_topic(self, partitions: int = PARTITIONS) -> str:
        name = f"spark-{uuid.uuid4().hex[:12]}"
        self._kafka.create_topic(name, partitions=partitions)
        return name

    def delete(self, topic: str) -> None:
        """Delete a topic, so that its data takes no memory during other measurements."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 3})
        admin.delete_topics([topic])[topic].result(CALL_TIMEOUT_SECONDS)

    def _stored(self, topic: str) -> int:
        return blocking.call(stored, self.servers, topic)


async def fill(servers: str, topic: str, messages: int, partitions: int) -> None:
    async with Producer(bootstrap_servers=servers, batch_size_bytes=512 * 1024) as producer:
        for partition in range(partitions):
            left = messages // partitions + (partition < messages % partitions)
            while left:
                count = min(left, FILL_BATCH)
                await producer.send_many(topic, [VALUE] * count, partition=partition)
                left -= count
        await producer.flush()


async def stored(servers: str, topic: str) -> int:
    async with Consumer(bootstrap_servers=servers) as consumer:
        partitions = [TopicPartition(topic, n) for n in await consumer.partitions_for(topic)]
        ends = await consumer.end_offsets(*partitions)
    return sum(ends.values())


@contextmanager
def trickling(servers: str, topic: str) -> Iterator[None]:
    """Send `TRICKLE_PER_SECOND` messages per second, a hundredth of them every 10 ms."""
    done = threading.Event()

    async def send() -> None:
        each = TRICKLE_PER_SECOND // 100
        async with Producer(bootstrap_servers=servers) as producer:
            due = time.monotonic()
            while not done.is_set():
                for _ in range(each):
                    await producer.send(topic, VALUE)
                due += 0.01
                await anyio.sleep(max(due - time.monotonic(), 0))

    sender = threading.Thread(target=blocking.call, args=(send,), daemon=True)
    sender.start()
    try:
        yield
    finally:
        done.set()
        sender.join(END_SECONDS)


@contextmanager
def running(*, theirs: bool = True, conf: tuple[str, ...] = ()) -> Iterator[SparkBench]:
    """Start a broker and yield a bench on it. `conf` configures our Spark."""
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=in_memory()))
        kafka = Kafka(
            directory=Path(place), properties=BROKER_PROPERTIES, java_options=BROKER_JAVA_OPTIONS
        )
        stack.callback(kafka.close)
        kafka.start()
        servers = kafka.bootstrap_servers
        yield SparkBench(
            kafka, stack.enter_context(drivers(servers, Path(place), theirs=theirs, conf=conf))
        )


@contextmanager
def drivers(
    servers: str, place: Path, *, theirs: bool = True, conf: tuple[str, ...] = ()
) -> Iterator[dict[str, Side]]:
    """Start both drivers, or ours only."""
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        module = "benchmarks.spark.driver"
        if theirs:
            made = environment()
            command = [str(made.python), "-m", module, "kafka", servers]
            command += ["--conf", f"spark.jars={made.spark_jars}"]
            sides[THEIRS] = Side(command, str(made.python), place / "theirs.log")
            stack.callback(sides[THEIRS].end)
        command = [sys.executable, "-m", module, "aiokafkawire", servers]
        for each in conf:
            command += ["--conf", each]
        sides[OURS] = Side(command, sys.executable, place / "ours.log")
        stack.callback(sides[OURS].end)
        for side in sides.values():
            side.started()
        yield sides
