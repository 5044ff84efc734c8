"""A worker that copies one topic to another, in a process of its own, which reports its actions.

    python -m verify.soak.stream_worker BOOTSTRAP SOURCE TARGET GROUP NAME MANNER

MANNER is `transactions` (consume, produce and commit in one transaction, with NAME as the
transactional id) or `plain` (produce, then commit). Lines of JSON: `entered`, `copied` (how many
records, once they are committed), `again` (what went wrong, so that the records are read again).
SIGTERM makes it leave the group and end."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from typing import Any, NamedTuple

from aiokafkawire import Consumer, KafkaError, Producer
from aiokafkawire.errors import CommitFailed, ProducerFenced, TransactionFailed
from aiokafkawire.records import Records
from aiokafkawire.types import TopicPartition

POLL_MS = 200
MAX_RECORDS = 200
SESSION_MS = 3_000
TRANSACTION_MS = 10_000

Batches = dict[TopicPartition, Records]


class Job(NamedTuple):
    """Command-line arguments."""

    servers: str
    source: str
    target: str
    group: str
    name: str
    manner: str


def emit(what: str, **facts: Any) -> None:
    print(json.dumps({"at": time.monotonic(), "what": what, **facts}), flush=True)


async def copy(producer: Producer, target: str, batches: Batches) -> None:
    """Copy each record to the partition with its number."""
    for (_, partition), batch in batches.items():
        for value in batch.values():
            await producer.send(target, value, partition=partition)


async def in_transactions(consumer: Consumer, job: Job, stop: asyncio.Event) -> None:
    while not stop.is_set():
        producer = Producer(
            bootstrap_servers=job.servers,
            transactional_id=job.name,
            transaction_timeout_ms=TRANSACTION_MS,
        )
        try:
            async with producer:
                while not stop.is_set():
                    await one_transaction(consumer, producer, job.target)
        except ProducerFenced as error:
            # The coordinator fenced it while it was stopped: start with a new producer.
            emit("again", error=repr(error))
            await consumer.seek_to_committed()


async def one_transaction(consumer: Consumer, producer: Producer, target: str) -> None:
    batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_RECORDS)
    if not batches:
        return
    try:
        async with producer.transaction():
            await copy(producer, target, batches)
            await producer.send_offsets_to_transaction(consumer)
    except (TransactionFailed, CommitFailed) as error:
        emit("again", error=f"{error!r} from {error.__cause__!r}")
        await consumer.seek_to_committed()
    else:
        emit("copied", count=sum(map(len, batches.values())))


async def without_transactions(consumer: Consumer, job: Job, stop: asyncio.Event) -> None:
    async with Producer(bootstrap_servers=job.servers) as producer:
        while not stop.is_set():
            batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_RECORDS)
            if not batches:
                continue
            await copy(producer, job.target, batches)
            await producer.flush()
            try:
                await consumer.commit()
            except KafkaError as error:
                emit("again", error=repr(error))
            else:
                emit("copied", count=sum(map(len, batches.values())))


async def work(job: Job) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Consumer(
        job.source,
        bootstrap_servers=job.servers,
        group_id=job.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=SESSION_MS // 10,
        fetch_max_wait_ms=100,
    ) as consumer:
        emit("entered")
        if job.manner == "transactions":
            await in_transactions(consumer, job, stop)
        else:
            await without_transactions(consumer, job, stop)
    emit("left")


if __name__ == "__main__":
    asyncio.run(work(Job(*sys.argv[1:])))
