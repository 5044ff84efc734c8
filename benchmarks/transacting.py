"""The transactional work of both clients: transactions of a size, and the loop.

As in `side`, each is a context manager that yields work. The blocking client blocks the event loop,
in which nothing else runs.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from benchmarks.load import BATCH_BYTES, LINGER_MS, MAX_RECORDS, VALUE, Incomplete

Work = Callable[[int], Awaitable[int]]
Side = Callable[[str, str], AbstractAsyncContextManager[Work]]

POLL_MS = 10_000
SIZES = {"transaction-1": 1, "transaction-100": 100, "transaction-10000": 10_000}
LOOP = "loop"


def results_topic(topic: str) -> str:
    """Return the topic that the loop writes to."""
    return f"{topic}-results"


def _name() -> str:
    return f"bench-{uuid.uuid4().hex[:12]}"


# --- aiokafkawire ---------------------------------------------------------------------------


def _our_producer(bootstrap_servers: str) -> Any:
    from aiokafkawire import Producer  # noqa: PLC0415 - only the measured client is loaded

    return Producer(
        bootstrap_servers=bootstrap_servers,
        transactional_id=_name(),
        linger_ms=LINGER_MS,
        batch_size_bytes=BATCH_BYTES,
    )


@asynccontextmanager
async def our_transactions(
    bootstrap_servers: str, topic: str, *, records: int
) -> AsyncIterator[Work]:
    async with _our_producer(bootstrap_servers) as producer:
        await producer.partitions_for(topic)

        async def work(count: int) -> int:
            done = 0
            while done < count:
                async with producer.transaction():
                    for _ in range(records):
                        producer.send_nowait(topic, VALUE)
                done += records
            return done

        yield work


@asynccontextmanager
async def our_loop(bootstrap_servers: str, topic: str) -> AsyncIterator[Work]:
    from aiokafkawire import Consumer  # noqa: PLC0415

    target = results_topic(topic)
    async with (
        Consumer(
            topic,
            bootstrap_servers=bootstrap_servers,
            group_id=_name(),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        _our_producer(bootstrap_servers) as producer,
    ):
        await producer.partitions_for(target)

        async def work(count: int) -> int:
            done = 0
            while done < count:
                limit = min(count - done, MAX_RECORDS)
                batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=limit)
                if not batches:
                    raise Incomplete(f"no message within {POLL_MS} ms, after {done} of {count}")
                async with producer.transaction():
                    for (_, partition), batch in batches.items():
                        for record in batch:
                            producer.send_nowait(target, record.value, partition=partition)
                        done += len(batch)
                    await producer.send_offsets_to_transaction(consumer)
            return done

        yield work


# --- confluent-kafka ------------------------------------------------------------------------


def _their_producer(bootstrap_servers: str) -> Any:
    import confluent_kafka  # noqa: PLC0415

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": _name(),
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
        }
    )
    producer.init_transactions()
    return producer


@asynccontextmanager
async def their_transactions(
    bootstrap_servers: str, topic: str, *, records: int
) -> AsyncIterator[Work]:
    producer = _their_producer(bootstrap_servers)

    async def work(count: int) -> int:
        done = 0
        while done < count:
            producer.begin_transaction()
            for _ in range(records):
                producer.produce(topic, VALUE)
            producer.commit_transaction()
            done += records
        return done

    yield work


@asynccontextmanager
async def their_loop(bootstrap_servers: str, topic: str) -> AsyncIterator[Work]:
    import confluent_kafka  # noqa: PLC0415

    target = results_topic(topic)
    producer = _their_producer(bootstrap_servers)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": _name(),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    try:

        async def work(count: int) -> int:
            done = 0
            while done < count:
                messages = consumer.consume(min(count - done, MAX_RECORDS), POLL_MS / 1000)
                if not messages:
                    raise Incomplete(f"no message within {POLL_MS} ms, after {done} of {count}")
                producer.begin_transaction()
                for message in messages:
                    producer.produce(target, message.value(), partition=message.partition())
                positions = consumer.position(consumer.assignment())
                metadata = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(positions, metadata)
                producer.commit_transaction()
                done += len(messages)
            return done

        yield work
    finally:
        consumer.close()


SIDES: Mapping[tuple[str, str], Side] = {
    ("aiokafkawire", LOOP): our_loop,
    ("confluent-kafka", LOOP): their_loop,
    **{
        ("aiokafkawire", action): partial(our_transactions, records=records)
        for action, records in SIZES.items()
    },
    **{
        ("confluent-kafka", action): partial(their_transactions, records=records)
        for action, records in SIZES.items()
    },
}
