"""A compacted log has the remaining records at their offsets, in valid batches."""

from __future__ import annotations

import pytest

from aiokafkawire import Consumer, Producer, TopicPartition
from aiokafkawire.broker import Broker
from verify.invariants.broker_observer import read_log
from verify.simulation.log_cleaner import clean_log, superseded_offsets

pytestmark = pytest.mark.anyio


async def test_readers_get_the_records_that_are_left() -> None:
    async with Broker() as broker:
        await broker.create_topic("orders", partitions=1)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for batch in (b"ab", b"aab", b"a", b"c"):
                sent = [
                    await producer.send("orders", b"%c%d" % (key, index), key=b"%c" % key)
                    for index, key in enumerate(batch)
                ]
                for delivery in sent:
                    await delivery
        log = broker._partition("orders", 0).log
        superseded = superseded_offsets(log)
        assert superseded == [0, 1, 2, 3]
        clean_log(log, frozenset({0, 1, 3}).__contains__)
        records = read_log(broker, "orders", 0).records
        assert [(each.offset, each.value) for each in records] == [
            (2, b"a0"), (4, b"b2"), (5, b"a0"), (6, b"c0"),
        ]  # fmt: skip
        assert not read_log(broker, "orders", 0).misdated
        async with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            tp = TopicPartition("orders", 0)
            consumer.assign([tp])
            consumer.seek(tp, 1)
            assert [(await consumer.getone()).offset for _ in range(4)] == [2, 4, 5, 6]
