"""The topics that cases read, on real Kafka, and what cases do to them between their steps."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import admin

from aiokafkawire import Consumer, DetachedTransaction, Producer, blocking, end_detached_transaction
from tests.brokers.kafka import Kafka
from tests.spark.kafka import append, transactions

WAIT_S = 30

BASE_MS = 1_700_000_000_000
"""The timestamp of the first record of most partitions; the next ones are a second apart."""

PROPERTIES = {
    "log.cleaner.enable": "true",
    "log.cleaner.dedupe.buffer.size": "2000000",
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "3600000",
    "auto.create.topics.enable": "false",
}
"""Of the broker: it compacts, within its small heap."""


def timed(count: int, start_ms: int = BASE_MS, step_ms: int = 1_000) -> list[dict[str, Any]]:
    return [
        {
            "key": f"k{n % 3}".encode() if n % 4 else None,
            "value": f"v{n}".encode() if n % 5 != 4 else None,
            "timestamp_ms": start_ms + n * step_ms,
        }
        for n in range(count)
    ]


class World:
    """Real Kafka with topics that all cases share, and those that cases make."""

    def __init__(self, kafka: Kafka) -> None:
        self.servers = kafka.bootstrap_servers
        self._kafka = kafka
        self._admin = admin.AdminClient({"bootstrap.servers": self.servers})
        self._open: dict[str, DetachedTransaction] = {}

    def make_shared(self) -> None:
        """Create the topics that cases read and do not change."""
        self.make("plain", 3)
        self.append("plain", {0: timed(10), 1: timed(6, BASE_MS + 500)})
        self.make("other", 1)
        self.append("other", {0: timed(5, BASE_MS + 100_000)})
        self.make("with.dots-and_1", 1)
        self.append("with.dots-and_1", {0: ["x"]})
        self.make("empty", 2)
        self.make("large", 2)
        self.append("large", {0: timed(1_000), 1: timed(200)})
        self.make("headed", 1)
        self.append("headed", {0: HEADED})
        self.make("codecs", 1)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            self.append("codecs", {0: timed(4)}, compression_type=codec)
        self.make("arrived", 1, {"message.timestamp.type": "LogAppendTime"})
        self.append("arrived", {0: ["a", "b"]})
        self.make("unordered", 1)
        times = [5, 1, 9, 3, 9, 2, 7]
        mixed = [{"value": b"", "timestamp_ms": BASE_MS + n * 1_000} for n in times]
        self.append("unordered", {0: mixed})
        self.make("cut", 2)
        self.append("cut", {0: timed(10), 1: timed(3)})
        self.delete_before("cut", 0, 4)
        self.make("gone", 1)
        self.append("gone", {0: timed(4)})
        self.delete_before("gone", 0, 4)
        self.make("ended", 1)
        transactions(self, "ended", (["1", "2"], True), (["3"], False), (["4"], True))
        self.append("ended", {0: ["5"]})
        transactions(self, "ended", (["6", "7"], False))
        self.make("open", 1)
        transactions(self, "open", (["1", "2"], True))
        self.open_transaction("open", ["3"])
        self.append("open", {0: ["4"]})
        self.make_compacted("compacted")

    def make(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        # What has old timestamps is not to be deleted for its age.
        kept = {"retention.ms": "-1", "segment.ms": "3600000000"}
        self._kafka.create_topic(topic, partitions=partitions, configs=kept | dict(configs or {}))

    def append(
        self, topic: str, by_partition: Mapping[int | str, Iterable[Any]], **options: Any
    ) -> None:
        append(self, topic, {int(n): values for n, values in by_partition.items()}, **options)

    def transactions(self, topic: str, *made: tuple[list[str], bool]) -> None:
        transactions(self, topic, *made)

    def open_transaction(self, topic: str, values: Iterable[str]) -> None:
        """Records of a transaction that stays open until `end_transaction`."""

        async def send() -> DetachedTransaction:
            options: Any = {"bootstrap_servers": self.servers, "transactional_id": f"{topic}-open"}
            producer = Producer(**options, transaction_timeout_ms=900_000)
            async with producer:
                await producer.begin_transaction()
                for value in values:
                    await producer.send(topic, partition=0, value=value.encode())
                await producer.flush()
                return await producer.detach_transaction()

        self._open[topic] = blocking.call(send)

    def end_transaction(self, topic: str) -> None:
        detached = self._open.pop(topic)
        blocking.call(
            lambda: end_detached_transaction(detached, commit=True, bootstrap_servers=self.servers)
        )

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        place = confluent_kafka.TopicPartition(topic, partition, offset)
        for done in self._admin.delete_records([place]).values():
            done.result(WAIT_S)

    def remake(self, topic: str, partitions: int) -> None:
        """Delete a topic and create another one of the same name."""
        for done in self._admin.delete_topics([topic]).values():
            done.result(WAIT_S)
        self.make(topic, partitions)

    def add_partitions(self, topic: str, count: int) -> None:
        asked = [admin.NewPartitions(topic, count)]
        for done in self._admin.create_partitions(asked).values():
            done.result(WAIT_S)

    def make_compacted(self, topic: str) -> None:
        """A topic of keys that were written again: most of its offsets are gone."""
        self.make(topic, 1, COMPACTED)
        for _ in range(2):
            self.append(topic, {0: [{"key": b"abc"[n % 3 : n % 3 + 1]} for n in range(9)]})
            self.append(topic, {0: [{"key": f"{n}".encode(), "value": b"x"} for n in range(3)]})
            # Only what is not in the active segment is compacted.
            time.sleep(0.1)
        end = time.monotonic() + WAIT_S
        while len(self.contents(topic)) >= 24:
            assert time.monotonic() < end, "nothing is compacted"
            time.sleep(0.2)

    def contents(self, topic: str) -> list[list[Any]]:
        """Partition, key, value and headers of all records, in order."""

        async def read() -> list[list[Any]]:
            options: Any = {"bootstrap_servers": self.servers, "auto_offset_reset": "earliest"}
            found: list[list[Any]] = []
            async with Consumer(**options) as consumer:
                partitions = await consumer.partitions_for(topic)
                places = [(topic, number) for number in partitions]
                ends = await consumer.end_offsets(*places)
                consumer.assign(*places)
                left = {tp for tp, end in ends.items() if end}
                while left:
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        found += [
                            [r.partition, _text(r.key), _text(r.value), _headers(r.headers)]
                            for r in records
                        ]
                    left = {tp for tp in left if await consumer.position(tp) < ends[tp]}
            return found

        return sorted(blocking.call(read), key=json.dumps)


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}

HEADED: list[Any] = [
    {"value": b"1", "headers": [("a", b"1")]},
    {"value": b"2", "headers": [("a", b"1"), ("a", b"2"), ("b", b"")]},
    {"value": b"3", "headers": [("null", None), ("é", "ü".encode())]},
    {"value": b"4"},
]


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode("latin-1")


def _headers(headers: Any) -> list[list[str | None]]:
    return [[key, _text(value)] for key, value in headers or ()]
