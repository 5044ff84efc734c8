"""CPU of a client without hooks, with empty ones, and with OpenTelemetry.

    python -m benchmarks.hooks

Prints µs of CPU per record in the client's thread; the embedded broker runs in another one. The
variants take turns, and the figure of each is the median of the rounds. With 0 % sampled, only the
context is written; with 100 %, each span is ended and given to a processor that drops it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from aiokafkawire import Consumer, Producer, Worker
from aiokafkawire.hooks import HookFunctions
from aiokafkawire.otel import OpenTelemetry
from aiokafkawire.testing import KafkaBroker

VALUE = b"x" * 100

Hooks = Sequence[Any]
Row = Callable[[str, str, Hooks, int], Awaitable[None]]


class EmptyHook:
    """Has all methods, which do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name not in HookFunctions.__dataclass_fields__:
            raise AttributeError(name)
        return lambda client, event: None


def sampled(share: float) -> OpenTelemetry:
    provider = TracerProvider(ParentBased(TraceIdRatioBased(share)), shutdown_on_exit=False)
    provider.add_span_processor(SpanProcessor())
    return OpenTelemetry(tracer_provider=provider)


VARIANTS: Mapping[str, Callable[[], Hooks]] = {
    "no hooks": lambda: (),
    "empty hooks": lambda: (EmptyHook(),),
    "tracing, 0 % sampled": lambda: (sampled(0.0),),
    "tracing, 100 % sampled": lambda: (sampled(1.0),),
}


async def send_and_wait(servers: str, topic: str, hooks: Hooks, records: int) -> None:
    async with Producer(bootstrap_servers=servers, hooks=hooks) as producer:
        for _ in range(records // 10):
            await producer.send_and_wait(topic, VALUE)


async def send(servers: str, topic: str, hooks: Hooks, records: int) -> None:
    async with Producer(bootstrap_servers=servers, hooks=hooks) as producer:
        for _ in range(records):
            await producer.send(topic, VALUE)
        await producer.flush()


async def read(servers: str, topic: str, hooks: Hooks, records: int) -> None:
    async with Consumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", hooks=hooks
    ) as consumer:
        async for record in consumer:
            if record.offset == records - 1:
                return


async def work(servers: str, topic: str, hooks: Hooks, records: int) -> None:
    worker = Worker(bootstrap_servers=servers, group_id=topic, hooks=hooks)

    @worker.on(topic)
    async def handle(record: Any) -> None:
        if record.offset == records - 1:
            worker.request_stop()

    await worker.run()


ROWS: Mapping[str, tuple[Row, int]] = {
    "send_and_wait": (send_and_wait, 10),
    "send": (send, 1),
    "async for": (read, 1),
    "worker": (work, 1),
}
"""Function and divisor of the number of records by row."""


def measure(broker: KafkaBroker, row: str, hooks: Hooks, topic: str, records: int) -> float:
    """Return µs of CPU per record."""
    function, divisor = ROWS[row]
    broker.create_topic(topic, partitions=1)
    if function in (read, work):
        asyncio.run(send(broker.bootstrap_servers, topic, hooks, records))
    gc.collect()
    began = time.thread_time()
    asyncio.run(function(broker.bootstrap_servers, topic, hooks, records))
    return (time.thread_time() - began) * 1e6 / (records / divisor)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    print(f"{'µs of CPU per record':<24}" + "".join(f"{name:>16}" for name in ROWS))
    figures: dict[tuple[str, str], list[float]] = {}
    names = map("bench{}".format, count())
    with KafkaBroker() as broker:
        for _ in range(given.rounds):
            for row in ROWS:
                for variant, make in VARIANTS.items():
                    found = measure(broker, row, make(), next(names), given.records)
                    figures.setdefault((variant, row), []).append(found)
    for variant in VARIANTS:
        medians = [statistics.median(figures[variant, row]) for row in ROWS]
        print(f"{variant:<24}" + "".join(f"{median:16.2f}" for median in medians))


if __name__ == "__main__":
    main()
