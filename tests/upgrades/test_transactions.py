"""Transactions continue through an upgrade, from those of 2.8 to KIP-890."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiokafkawire.broker import ApiKey, Broker
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import TransactionFailed
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition

from .load import IMPATIENT

WITHIN_S = 60.0
TOPIC = "orders"
NODES = 3
PARTITIONS = 3
MORE = 4
"""Transactions committed between two restarts."""


class CommitLoop:
    """Commits one transaction after the other."""

    def __init__(self, producer: Producer) -> None:
        self.committed: list[bytes] = []
        self.stopping = False
        self._producer = producer
        self._moved = anyio.Event()

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            values = [b"%06d" % (number + index) for index in range(PARTITIONS)]
            try:
                async with self._producer.transaction():
                    for partition, value in enumerate(values):
                        await self._producer.send(TOPIC, value, partition=partition)
            except TransactionFailed:
                # Nothing of it is visible, and the same values are written again.
                continue
            number += PARTITIONS
            self.committed += values
            self._moved.set()
            self._moved = anyio.Event()
        self._moved.set()

    async def more(self) -> None:
        """Wait until more transactions are committed."""
        wanted = len(self.committed) + MORE * PARTITIONS
        while len(self.committed) < wanted:
            await self._moved.wait()


async def read_committed(broker: Broker) -> list[bytes | None]:
    """Return all values of committed transactions."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    found: list[bytes | None] = []
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(*partitions)
        while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found += records.values()
    return found


@pytest.mark.parametrize("path", [("2.8", "3.9"), ("3.9", "4.3")], ids="-".join)
async def test_committed_records_are_stored_once_through_an_upgrade(path: tuple[str, str]) -> None:
    before, after = path
    options: dict[str, Any] = IMPATIENT | {"transactional_id": "orders"}
    async with Broker(nodes=NODES, as_of=before, default_replication_factor=NODES) as broker:
        await broker.create_topic(TOPIC, partitions=PARTITIONS)
        options["bootstrap_servers"] = broker.bootstrap_servers
        with anyio.fail_after(WITHIN_S):
            async with Producer(**options) as producer, anyio.create_task_group() as tasks:
                ledger = CommitLoop(producer)
                tasks.start_soon(ledger.run)
                await ledger.more()
                # The feature is finalized when all nodes are new; clients learn it in the second
                # round, from new connections.
                for node in (*range(1, NODES + 1), *range(1, NODES + 1)):
                    await broker.restart(node, as_of=after)
                    await ledger.more()
                ledger.stopping = True
            found = await read_committed(broker)
        assert sorted(value for value in found if value is not None) == ledger.committed
        ended = list(dict.fromkeys(s.version for s in broker.requests.of(ApiKey.END_TXN)))
        assert ended == ([4, 5] if after == "4.3" else [3, 4])
