"""The job of the proof `worker`, in a process of its own, on one of three libraries.

    python -m verify.soak.worker_job LIBRARY BOOTSTRAP TOPIC GROUP SESSION_MS

LIBRARY is a key of `LIBRARIES`. The value of a record is its number, which says whether its
processing fails. Lines of JSON: `done` and `failed` with the number. SIGTERM makes it end.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from aiokafkawire import Worker
from verify.soak.group_worker import emit

FAILS_ONCE_EVERY = 100
POISON_EVERY = 1_000
WORK_S = 0.002


class JobFailed(Exception):
    """The processing of a record failed."""


def is_poison(number: int) -> bool:
    """Return whether the processing of a record always fails."""
    return number % POISON_EVERY == POISON_EVERY // 2


class Job:
    """Processes records; some fail once in each process, and some always."""

    def __init__(self) -> None:
        self._failed: set[int] = set()

    async def process(self, number: int) -> None:
        await asyncio.sleep(WORK_S)
        fails_once = number % FAILS_ONCE_EVERY == FAILS_ONCE_EVERY // 3
        if is_poison(number) or (fails_once and number not in self._failed):
            self._failed.add(number)
            emit("failed", number=number)
            raise JobFailed(number)
        emit("done", number=number)


async def with_worker(servers: str, topic: str, group: str, session_ms: int) -> None:
    """Run the job on the worker, with its default retries and dead letters."""
    job = Job()
    worker = Worker(
        bootstrap_servers=servers,
        group_id=group,
        consumer_options={"session_timeout_ms": session_ms},
    )

    @worker.on(topic, order_by="key")
    async def process(record: Any) -> None:
        await job.process(int(record.value))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.request_stop)
    await worker.run()


async def with_faststream(servers: str, topic: str, group: str, session_ms: int) -> None:
    """Run the job on FastStream's confluent broker, with its default policy (ACK_FIRST).

    NACK_ON_ERROR tries the first poison record of a partition without end.
    """
    # Imported here: they are slow, and other libraries' processes do not need them.
    from faststream import FastStream
    from faststream.confluent import KafkaBroker

    job = Job()
    # Its logs would be among the JSON lines.
    broker = KafkaBroker(servers, config={"session.timeout.ms": session_ms}, logger=None)

    @broker.subscriber(topic, group_id=group, auto_offset_reset="earliest")
    async def process(number: int) -> None:
        await job.process(number)

    await FastStream(broker, logger=None).run()


async def with_aiokafka(servers: str, topic: str, group: str, session_ms: int) -> None:
    """Run the job in a plain loop, which goes on after a failure."""
    from aiokafka import AIOKafkaConsumer

    job = Job()
    loop = asyncio.get_running_loop()
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // 5,
    )

    async def read() -> None:
        async for record in consumer:
            with suppress(JobFailed):
                await job.process(int(record.value))

    await consumer.start()
    try:
        task = asyncio.create_task(read())
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        await asyncio.wait([task])
    finally:
        await consumer.stop()


LIBRARIES: Mapping[str, Callable[[str, str, str, int], Coroutine[Any, Any, None]]] = {
    "aiokafkawire": with_worker,
    "FastStream": with_faststream,
    "aiokafka": with_aiokafka,
}


if __name__ == "__main__":
    logging.disable(logging.ERROR)  # several lines for each failed record
    library, servers, topic, group, session_ms = sys.argv[1:]
    asyncio.run(LIBRARIES[library](servers, topic, group, int(session_ms)))
