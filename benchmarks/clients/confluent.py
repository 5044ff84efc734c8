"""confluent-kafka: the blocking clients, polled in the same thread, and AIOProducer."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka.aio import AIOProducer

from benchmarks.clients import common
from benchmarks.load import (
    ARROW_RECORDS,
    BATCH_BYTES,
    BUFFER_BYTES,
    FETCH_BYTES,
    LINGER_MS,
    MAX_RECORDS,
    PARTITIONS,
    PER_YIELD,
    POLL_MS,
    VALUE,
    Incomplete,
    Setup,
    Side,
    check,
    nothing_came,
    working,
)

FLUSH_SECONDS = 60.0
QUEUE_BACKOFF_MS = 5
AIO_BATCH = 10
"""Messages that AIOProducer collects first: 5 ms of requests, like the linger."""


def about() -> str:
    return f"{confluent_kafka.version()}, librdkafka {confluent_kafka.libversion()[0]}"


def options(setup: Setup, linger_ms: int) -> dict[str, Any]:
    return {
        "bootstrap.servers": setup.bootstrap_servers,
        "log_level": 3,
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": linger_ms,
        "batch.size": BATCH_BYTES,
        "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
        "queue.buffering.max.messages": 1_000_000,
        "compression.type": setup.compression,
        **tls_options(setup),
    }


def tls_options(setup: Setup) -> dict[str, Any]:
    if setup.authority is None:
        return {}
    return {"security.protocol": "SSL", "ssl.ca.location": setup.authority}


class DeliveryCounter:
    """Counts delivery callbacks."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failed: Any = None

    def __call__(self, error: Any, message: Any) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed = error

    def check(self, producer: Any, count: int) -> None:
        left = producer.flush(FLUSH_SECONDS)
        if self.failed is not None or left or self.delivered != count:
            raise Incomplete(f"{self.delivered} of {count} delivered, {left} left: {self.failed}")


@asynccontextmanager
async def producer(setup: Setup, linger_ms: int = LINGER_MS) -> AsyncIterator[Any]:
    yield confluent_kafka.Producer(options(setup, linger_ms))


async def produce(producer: Any, setup: Setup, count: int) -> int:
    topic, known = setup.topic, DeliveryCounter()
    put, poll = producer.produce, producer.poll
    for start in range(0, count, PER_YIELD):
        for _ in range(min(PER_YIELD, count - start)):
            while True:
                try:
                    put(topic, VALUE, on_delivery=known)
                    break
                except BufferError:
                    poll(0.01)
        poll(0)
    known.check(producer, count)
    return count


async def produce_batch(producer: Any, setup: Setup, count: int) -> int:
    topic, known = setup.topic, DeliveryCounter()
    for _ in range(0, count, MAX_RECORDS):
        messages: list[dict[str, Any]] = [{"value": VALUE} for _ in range(MAX_RECORDS)]
        while messages:
            producer.produce_batch(topic, messages, on_delivery=known)
            if messages := [{"value": VALUE} for message in messages if "_error" in message]:
                producer.poll(0.01)
        producer.poll(0)
    known.check(producer, count)
    return count


async def one_at_a_time(producer: Any, setup: Setup, count: int) -> int:
    topic, known = setup.topic, DeliveryCounter()
    now, add = time.perf_counter, setup.latencies_s.append
    for number in range(1, count + 1):
        began = now()
        producer.produce(topic, VALUE, on_delivery=known)
        while known.delivered < number:
            producer.poll(1.0)
            if known.failed is not None:
                raise Incomplete(str(known.failed))
        add(now() - began)
    return count


@asynccontextmanager
async def aio_producer(setup: Setup) -> AsyncIterator[Any]:
    async with AIOProducer(options(setup, LINGER_MS), batch_size=AIO_BATCH) as opened:

        async def poll() -> None:
            """Poll: otherwise callbacks run only when the next batch is full."""
            while True:
                await opened.poll(0.1)

        polling = asyncio.create_task(poll())
        try:
            yield opened
        finally:
            polling.cancel()
            await asyncio.wait([polling])


async def requests(producer: Any, setup: Setup, count: int) -> int:
    async def send(topic: str, value: bytes) -> None:
        await (await producer.produce(topic, value))

    return await common.run_requests(send, setup, count)


@asynccontextmanager
async def consumer(setup: Setup) -> AsyncIterator[Any]:
    opened = confluent_kafka.Consumer(
        {
            "bootstrap.servers": setup.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "check.crcs": True,
            "max.partition.fetch.bytes": FETCH_BYTES,
            # The default pauses for 1 s whenever the queue is full, and leaves the core idle.
            "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
            **tls_options(setup),
        }
    )
    opened.assign([TopicPartition(setup.topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    try:
        yield opened
    finally:
        opened.close()


@asynccontextmanager
async def share_consumer(setup: Setup) -> AsyncIterator[Any]:
    opened = confluent_kafka.ShareConsumer(
        {
            "bootstrap.servers": setup.bootstrap_servers,
            "group.id": await common.new_share_group(setup),
            "check.crcs": True,
        }
    )
    opened.subscribe([setup.topic])
    try:
        yield opened
    finally:
        opened.close()


async def share_poll(consumer: Any, setup: Setup, count: int) -> int:
    """Read batches; each is accepted with the next call."""
    return read_lists(lambda left: consumer.poll(POLL_MS / 1000), count)


async def in_lists(consumer: Any, setup: Setup, count: int) -> int:
    return read_lists(lambda left: consumer.consume(min(MAX_RECORDS, left), POLL_MS / 1000), count)


def read_lists(read: Callable[[int], Any], count: int) -> int:
    seen = size = 0
    while seen < count:
        messages = read(count - seen)
        if not messages:
            raise nothing_came(seen, count)
        for message in messages:
            size += len(message.value())
        seen += len(messages)
    check(size, seen)
    return seen


async def one_by_one(consumer: Any, setup: Setup, count: int) -> int:
    seen = size = 0
    poll = consumer.poll
    while seen < count:
        message = poll(POLL_MS / 1000)
        if message is None:
            raise nothing_came(seen, count)
        size += len(message.value())
        seen += 1
    check(size, seen)
    return seen


async def to_arrow(consumer: Any, setup: Setup, count: int) -> int:
    """Build Arrow columns by hand: the client has no call for them."""
    import pyarrow  # noqa: PLC0415 - slow to import, and only wanted here
    from pyarrow import compute  # noqa: PLC0415

    seen = size = 0
    while seen < count:
        messages = consumer.consume(min(ARROW_RECORDS, count - seen), POLL_MS / 1000)
        if not messages:
            raise nothing_came(seen, count)
        batch = pyarrow.record_batch(
            {
                "offset": pyarrow.array([message.offset() for message in messages]),
                "key": pyarrow.array([message.key() for message in messages], pyarrow.binary()),
                "value": pyarrow.array([message.value() for message in messages]),
            }
        )
        size += compute.sum(compute.binary_length(batch.column("value"))).as_py()
        seen += batch.num_rows
    check(size, seen)
    return seen


SIDES: Mapping[str, Side] = {
    "produce": working(produce, producer),
    "produce_batch": working(produce_batch, producer),
    "one-at-a-time": working(one_at_a_time, partial(producer, linger_ms=0)),
    "requests": working(requests, aio_producer),
    "consume": working(in_lists, consumer),
    "poll": working(one_by_one, consumer),
    "share": working(share_poll, share_consumer),
    "arrow": working(to_arrow, consumer),
}
