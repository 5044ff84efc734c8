"""An application in its own process, which records what it observes.

    python -m verify.soak.application '{"role": "by_hand", "name": "hand-1", …}'

The argument has the fields of `Job`. Its events go into the job's history file as JSON lines,
unbuffered, so that a killed process leaves all of them. Times are of the system's monotonic clock,
equal for all processes. On its standard output it prints `entered` and `left`, and with
`sample_seconds` its resource usage. SIGTERM makes it finish its work and end.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio
import sniffio

from aiokafkawire import Consumer, KafkaError, Producer
from aiokafkawire.errors import CommitFailed, ProducerFenced, RequestTimedOut, TransactionFailed
from verify.invariants.events import Event, parse_value, to_line
from verify.invariants.recorded_consumer import RecordedConsumer
from verify.invariants.recorded_producer import RecordedProducer
from verify.invariants.recorder import Recorder

TICK_SECONDS = 0.05
POLL_MS = 200
MAX_RECORDS = 200
TRANSACTION_MS = 15_000
GROUP_OPTIONS = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 1_000,
    "fetch_max_wait_ms": 200,
    "max_poll_records": MAX_RECORDS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Task of one application.

    `source` and `target` are topics with this number of `partitions`, `rate` is in records per
    second, `options` override those of its client. Without a `history` nothing is recorded.
    """

    role: str
    name: str
    servers: str
    source: str = ""
    target: str = ""
    partitions: int = 1
    group: str = ""
    rate: float = 0.0
    history: str = ""
    sample_seconds: float = 0.0
    backend: str = "asyncio"
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_argument(self) -> str:
        return json.dumps(asdict(self))


def parse_job(argument: str) -> Job:
    return Job(**json.loads(argument))


def emit(what: str, **facts: Any) -> None:
    print(json.dumps({"at": time.monotonic(), "what": what, **facts}), flush=True)


class StreamingRecorder(Recorder):
    """A recorder that keeps nothing: each event is written at once, or dropped."""

    def __init__(self, write: Callable[[str], object] | None) -> None:
        super().__init__(time.monotonic)
        self._line = write

    def note(self, event: Event) -> None:
        if self._line is not None:
            self._line(f"{to_line(event)}\n")


class RoleContext:
    """Context of a role: its job, its recorder, and the stop event."""

    def __init__(self, job: Job, recorder: Recorder) -> None:
        self.job = job
        self.stop = anyio.Event()
        self._recorder = recorder

    @asynccontextmanager
    async def producer(self, name: str, **options: Any) -> AsyncIterator[RecordedProducer]:
        job = self.job
        made = Producer(bootstrap_servers=job.servers, client_id=name, **{**options, **job.options})
        async with self._recorder.producer(made, name) as producer:
            yield producer

    @asynccontextmanager
    async def consumer(self, **options: Any) -> AsyncIterator[RecordedConsumer]:
        job = self.job
        made = Consumer(
            job.source,
            bootstrap_servers=job.servers,
            group_id=job.group,
            client_id=job.name,
            **{**GROUP_OPTIONS, **options, **job.options},
        )
        async with self._recorder.consumer(made, job.name) as consumer:
            emit("entered")
            yield consumer


async def produce(context: RoleContext) -> None:
    """Send at a steady rate, and await every outcome."""
    job = context.job
    async with context.producer(job.name) as producer:
        emit("entered")
        began, sent = time.monotonic(), 0
        while not context.stop.is_set():
            due = int((time.monotonic() - began) * job.rate)
            while sent < due:
                await producer.send(job.target, producer.value(), partition=sent % job.partitions)
                sent += 1
            producer.settle()
            await anyio.sleep(TICK_SECONDS)
        await producer.flush()


async def by_hand(context: RoleContext) -> None:
    """Process records, then commit their offsets."""
    async with context.consumer(enable_auto_commit=False) as consumer:
        while not context.stop.is_set():
            found = await consumer.getmany(timeout_ms=POLL_MS)
            if not found:
                continue
            try:
                await consumer.commit({tp: batch.next_offset for tp, batch in found.items()})
            except CommitFailed:
                continue  # records of revoked partitions are delivered again, elsewhere
            except KafkaError as error:
                if not error.retriable:
                    raise


async def auto_commit(context: RoleContext) -> None:
    """Process records with auto-commit."""
    async with context.consumer(enable_auto_commit=True, auto_commit_interval_ms=1_000) as consumer:
        while not context.stop.is_set():
            await consumer.getmany(timeout_ms=POLL_MS)


async def transactions(context: RoleContext) -> None:
    """Consume, produce and commit in one transaction."""
    options = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    attempts = 0
    async with context.consumer(**options) as consumer:
        while not context.stop.is_set():
            attempts += 1
            job = context.job
            producing = context.producer(
                f"{job.name}.producer.{attempts}",
                transactional_id=f"{job.group}-{job.name.partition('.')[0]}",
                transaction_timeout_ms=TRANSACTION_MS,
            )
            try:
                async with producing as producer:
                    if attempts > 1:
                        # Now the open transaction of the predecessor has ended.
                        await consumer.seek_to_committed()
                    while not context.stop.is_set():
                        await one_transaction(consumer, producer, job.target)
            except (ProducerFenced, RequestTimedOut) as error:
                # Fenced, or no response in time: start with a new producer.
                emit("again", error=repr(error))


async def one_transaction(
    consumer: RecordedConsumer, producer: RecordedProducer, target: str
) -> None:
    found = await consumer.getmany(timeout_ms=POLL_MS)
    if not found:
        return
    try:
        async with producer.transaction():
            for (_, partition), batch in found.items():
                for value in batch.values():
                    copy = producer.value(original(bytes(value or b"")))
                    await producer.send(target, copy, partition=partition)
            await producer.send_offsets_to_transaction(consumer)
    except (TransactionFailed, CommitFailed):
        await consumer.seek_to_committed()


def original(value: bytes) -> bytes:
    """Return the payload that a record is a copy of, or its own value."""
    found = parse_value(value)
    return found.payload if found is not None and found.payload else value


ROLES: dict[str, Callable[[RoleContext], Coroutine[Any, Any, None]]] = {
    "produce": produce,
    "by_hand": by_hand,
    "auto_commit": auto_commit,
    "transactions": transactions,
}


def tasks() -> int:
    """Return the number of tasks."""
    if sniffio.current_async_library() == "trio":
        import trio.lowlevel

        return trio.lowlevel.current_statistics().tasks_living
    return len(asyncio.all_tasks())


def resident_kib() -> int:
    """Return the resident memory of this process in KiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


async def sample(seconds: float) -> None:
    """Emit the resource usage of this process every `seconds`."""
    while True:
        await anyio.sleep(seconds)
        # One descriptor belongs to the listed directory.
        descriptors = len(os.listdir("/proc/self/fd")) - 1
        emit("uses", resident_kib=resident_kib(), descriptors=descriptors, tasks=tasks())


async def end_at_signal(stop: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            stop.set()


async def work(job: Job, recorder: Recorder) -> None:
    context = RoleContext(job, recorder)
    async with anyio.create_task_group() as group:
        group.start_soon(end_at_signal, context.stop)
        if job.sample_seconds:
            group.start_soon(sample, job.sample_seconds)
        await ROLES[job.role](context)
        group.cancel_scope.cancel()
    emit("left")


def main(argument: str) -> None:
    job = parse_job(argument)
    if not job.history:
        anyio.run(work, job, StreamingRecorder(None), backend=job.backend)
        return
    with open(job.history, "a", encoding="ascii", buffering=1) as file:
        anyio.run(work, job, StreamingRecorder(file.write), backend=job.backend)


if __name__ == "__main__":
    main(sys.argv[1])
