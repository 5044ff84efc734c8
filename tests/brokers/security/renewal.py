"""Clients under load for a long time on real Kafka whose sessions last a few seconds (KIP-368).

    python -m tests.brokers.security.renewal --minutes 30

A producer, a transactional producer and a group of three go on while all of their connections
renew their sessions. Fails if an application sees an error, if a record is missing or comes twice,
or if a connection is lost.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from tests.brokers.kafka import DEFAULT_VERSION
from tests.brokers.security.cases import COMBINATIONS
from tests.brokers.security.servers import SESSION_LIFETIME_MS, SecureServers

COMBINATION = "SCRAM-SHA-512, TLS, short sessions"
PARTITIONS = 6
MEMBERS = 3
RECORDS_PER_TICK = 5
TICK_S = 0.02
TRANSACTION_RECORDS = 50
LEFT_S = 60.0
PLAIN, TRANSACTIONAL = "plain", "transactional"


class Load:
    """The clients of one run, what they sent and what came."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self.sent = {PLAIN: 0, TRANSACTIONAL: 0}
        self.came = {PLAIN: Counter[int](), TRANSACTIONAL: Counter[int]()}
        self.metrics: list[dict[str, int | float]] = []
        self._are_complete = self._have_ended = False
        self._all_came = anyio.Event()

    async def run(self, seconds: float) -> None:
        assigned = anyio.Event()
        async with anyio.create_task_group() as group:
            for _ in range(MEMBERS):
                group.start_soon(self._consume, assigned)
            with anyio.fail_after(LEFT_S):
                await assigned.wait()
            async with anyio.create_task_group() as producers:
                producers.start_soon(self._produce, seconds)
                producers.start_soon(self._transact, seconds)
            self._are_complete = True
            with anyio.move_on_after(LEFT_S):
                await self._all_came.wait()
            self._have_ended = True

    def missing(self, topic: str) -> int:
        return self.sent[topic] - len(self.came[topic])

    def repeated(self, topic: str) -> int:
        return self.came[topic].total() - len(self.came[topic])

    async def _produce(self, seconds: float) -> None:
        end = anyio.current_time() + seconds
        async with Producer(**self._options) as producer:
            while anyio.current_time() < end:
                for _ in range(RECORDS_PER_TICK):
                    number = self.sent[PLAIN]
                    await producer.send(PLAIN, b"%d" % number, partition=number % PARTITIONS)
                    self.sent[PLAIN] += 1
                await anyio.sleep(TICK_S)
            await producer.flush()
            self.metrics.append(producer.metrics())

    async def _transact(self, seconds: float) -> None:
        end = anyio.current_time() + seconds
        async with Producer(transactional_id="renewal", **self._options) as producer:
            while anyio.current_time() < end:
                async with producer.transaction():
                    for number in range(
                        self.sent[TRANSACTIONAL], self.sent[TRANSACTIONAL] + TRANSACTION_RECORDS
                    ):
                        value, partition = b"%d" % number, number % PARTITIONS
                        await producer.send(TRANSACTIONAL, value, partition=partition)
                self.sent[TRANSACTIONAL] += TRANSACTION_RECORDS
                await anyio.sleep(TICK_S)
            self.metrics.append(producer.metrics())

    async def _consume(self, assigned: anyio.Event) -> None:
        async with Consumer(
            PLAIN,
            TRANSACTIONAL,
            group_id="renewal",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **self._options,
        ) as consumer:
            while not self._have_ended:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        assert record.value is not None
                        self.came[record.topic][int(record.value)] += 1
                if self._are_complete and not any(self.missing(topic) for topic in self.sent):
                    self._all_came.set()
                # Each member has its share once all three have joined.
                if len(consumer.assignment()) == 2 * PARTITIONS // MEMBERS:
                    assigned.set()
            self.metrics.append(consumer.metrics())


async def measure(seconds: float) -> bool:
    with tempfile.TemporaryDirectory(prefix="renewal-") as folder:
        servers = SecureServers(Path(folder))
        try:
            kafka = servers.get(DEFAULT_VERSION)
            for topic in (PLAIN, TRANSACTIONAL):
                kafka.create_topic(topic, partitions=PARTITIONS)
            listener, access = COMBINATIONS[COMBINATION](servers)
            load = Load({"bootstrap_servers": kafka.address(listener), **access.options()})
            await load.run(seconds)
        finally:
            servers.close()
    print(f"{seconds / 60:g} minutes, sessions of {SESSION_LIFETIME_MS / 1_000:g} s: {COMBINATION}")
    for topic, count in load.sent.items():
        print(
            f"{topic}: {count:,} sent, {load.missing(topic):,} missing,"
            f" {load.repeated(topic):,} repeated"
        )
    totals = {
        name: int(sum(each[name] for each in load.metrics))
        for name in ("connections_made_total", "connections_lost_total", "reauthentications_total")
    }
    print(", ".join(f"{name} {count:,}" for name, count in totals.items()))
    return (
        totals["connections_lost_total"] == 0
        and totals["reauthentications_total"] > 0
        and not any(load.missing(topic) or load.repeated(topic) for topic in load.sent)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    return 0 if anyio.run(measure, options.minutes * 60) else 1


if __name__ == "__main__":
    sys.exit(main())
