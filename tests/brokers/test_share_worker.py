"""Workers of a share group on Kafka 4.3.0."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from typing import Any

import anyio
import pytest

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType, NewTopic
from aiokafkawire.consumer import Consumer
from aiokafkawire.producer import Producer
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker import DeadLetter, Drop, Retry, RetryPolicy, Worker

WITHIN_S = 120.0
RECORDS = 60
KINDS = (b"fine", b"once", b"drop", b"letter", b"poison")


async def fill(servers: str, topic: str) -> dict[bytes, list[bytes]]:
    """Write records, and return them by kind."""
    written = defaultdict(list)
    async with Producer(bootstrap_servers=servers) as producer:
        for number in range(RECORDS):
            kind = KINDS[number % len(KINDS)]
            written[kind].append(value := b"%s %d" % (kind, number))
            await producer.send(topic, value, partition=number % 2)
    return written


async def wait_until_all_is_acknowledged(admin: Admin, group: str, topic: str) -> None:
    with anyio.fail_after(WITHIN_S):
        while True:
            offsets = (await admin.list_share_group_offsets([group]))[group]
            infos = [offsets.get(TopicPartition(topic, partition)) for partition in range(2)]
            if all(info is not None and info.lag == 0 for info in infos):
                return
            await anyio.sleep(0.1)


async def read_dead_letters(servers: str, topic: str, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    async with Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        with anyio.fail_after(WITHIN_S):
            while len(values) < count:
                for records in (await consumer.getmany(timeout_ms=1_000)).values():
                    values += [record.value for record in records]
    return values


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_workers_share_partitions_and_one_of_them_stops(kafka_43: str) -> None:
    topic, group = f"jobs-{uuid.uuid4().hex[:12]}", f"work-{uuid.uuid4().hex[:12]}"
    processed: Counter[bytes] = Counter()
    holds = anyio.Event()

    def make_worker(*, hangs: bool = False) -> Worker:
        worker = Worker(
            bootstrap_servers=kafka_43,
            group_id=group,
            group_type="share",
            concurrency=5,
            drain_timeout_ms=0,
        )

        @worker.on(topic, order_by=None, retries=RetryPolicy(attempts=4, backoff_ms=1))
        async def process(record: Any) -> None:
            if hangs:
                holds.set()
                await anyio.sleep_forever()
            kind = record.value.split()[0]
            if kind == b"once" and not processed[record.value]:
                processed[record.value] += 1
                raise Retry(0.01)
            if kind == b"letter":
                raise DeadLetter("rejected")
            if kind == b"poison":
                raise ValueError
            processed[record.value] += 1
            if kind == b"drop":
                raise Drop

        return worker

    async with Admin(bootstrap_servers=kafka_43) as admin:
        await admin.ensure_topics([NewTopic(topic, 2)])
        await admin.wait_for_topics([topic])
        resource = ConfigResource(ConfigResourceType.GROUP, group)
        await admin.incremental_alter_configs({resource: {"share.auto.offset.reset": "earliest"}})
        written = await fill(kafka_43, topic)
        async with make_worker(hangs=True):
            with anyio.fail_after(WITHIN_S):
                await holds.wait()
        # The records that it held are released, not left until their locks expire.
        async with make_worker(), make_worker():
            await wait_until_all_is_acknowledged(admin, group, topic)
    # Two attempts of "once"; no acknowledged record is delivered again.
    expected = {value: 1 for kind in (b"fine", b"drop") for value in written[kind]}
    assert processed == expected | dict.fromkeys(written[b"once"], 2)
    letters = written[b"letter"] + written[b"poison"]
    found = await read_dead_letters(kafka_43, f"{group}.dead", len(letters))
    assert sorted(value or b"" for value in found) == sorted(letters)
