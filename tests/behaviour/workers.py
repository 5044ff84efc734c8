"""Members of a group that work on their own: as tasks of the test, and as processes.

    python -m tests.behaviour.workers BACKEND BOOTSTRAP_SERVERS TOPIC GROUP_ID PAUSE_S

prints `<partition> <first offset> <next offset>` for each batch once it is committed, and pauses
after it. Its `api_version` is that of the environment variable TEST_API_VERSION, and more options
are in TEST_CLIENT_OPTIONS.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import CommitFailed
from aiokafkawire.producer import Producer
from aiokafkawire.records import Record
from tests.behaviour.support import MEMBER, WITHIN_S
from tests.conftest import BACKENDS

API_VERSION = "TEST_API_VERSION"

CLIENT_OPTIONS = "TEST_CLIENT_OPTIONS"
"""Options in JSON, such as those of TLS."""

CLASSIC_OPTIONS = ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy")
"""Options that the brokers set for members of the consumer protocol."""

TO_BE_KILLED: dict[str, Any] = {"session_timeout_ms": 3_000}
"""Options of a member in its own process: the group waits for the end of its session."""

ROOT = Path(__file__).parents[2]


def without_classic_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a member of the consumer protocol."""
    return {name: value for name, value in options.items() if name not in CLASSIC_OPTIONS}


def member_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a member with short timeouts, of either protocol."""
    together = MEMBER | options
    if together.get("group_protocol") == "consumer":
        return without_classic_options(together)
    return together


class Worker:
    """A member of a group in a task: reads, commits, remembers. `leave` leaves the group."""

    def __init__(self, bootstrap_servers: str, topic: str, group_id: str, **options: Any) -> None:
        self.consumer = Consumer(
            topic,
            bootstrap_servers=bootstrap_servers,
            group_id=group_id,
            **member_options(options),
        )
        self.seen: list[Record] = []
        self._entered = self._leaving = False
        self._left = anyio.Event()
        self._changed = anyio.Event()

    async def work(self) -> None:
        async with self.consumer:
            self._entered = True
            while not self._leaving:
                found = await self.consumer.getmany(timeout_ms=50)
                for records in found.values():
                    self.seen.extend(records)
                if found:
                    # Records of revoked partitions are delivered again, elsewhere.
                    with contextlib.suppress(CommitFailed):
                        await self.consumer.commit()
                self._notify()
            self._entered = False
        self._left.set()
        self._notify()

    async def leave(self) -> None:
        self._leaving = True
        await self._left.wait()

    @property
    def changed(self) -> anyio.Event:
        return self._changed

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    @property
    def owned(self) -> int:
        return len(self.consumer.assignment()) if self._entered else 0

    @property
    def values(self) -> set[bytes | None]:
        return {record.value for record in self.seen}


class Source:
    """Writes to every partition of a topic, one record at a time, until it is stopped."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._servers, self._topic, self._partitions = bootstrap_servers, topic, partitions
        self._stopping = False
        self._stopped = anyio.Event()
        self.sent: set[bytes | None] = set()

    async def work(self) -> None:
        async with Producer(bootstrap_servers=self._servers, linger_ms=1) as producer:
            for number in count():
                if self._stopping:
                    break
                values = [b"%d/%d" % (partition, number) for partition in range(self._partitions)]
                deliveries = [
                    await producer.send(self._topic, value, partition=partition)
                    for partition, value in enumerate(values)
                ]
                for delivery in deliveries:
                    await delivery
                self.sent.update(values)
        self._stopped.set()

    async def stop(self) -> None:
        self._stopping = True
        await self._stopped.wait()


async def until(workers: Iterable[Worker], holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, checked after each poll of the workers."""
    workers = list(workers)
    with anyio.fail_after(WITHIN_S):
        while not holds():
            async with anyio.create_task_group() as group:

                async def look(worker: Worker) -> None:
                    await worker.changed.wait()
                    group.cancel_scope.cancel()

                for worker in workers:
                    group.start_soon(look, worker)


@asynccontextmanager
async def at_work(*workers: Worker) -> AsyncIterator[anyio.abc.TaskGroup]:
    """Run workers until the block ends; then they leave, one after the other."""
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(worker.work)
        try:
            yield group
            for worker in workers:
                await worker.leave()
        finally:
            group.cancel_scope.cancel()


class WorkerProcess:
    """A worker in its own process, to be killed."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self.process = process
        assert process.stdout is not None
        self._output = BufferedByteReceiveStream(process.stdout)
        self.committed: dict[int, int] = {}

    async def read_line(self) -> None:
        line = await self._output.receive_until(b"\n", 1_000)
        partition, _, following = map(int, line.split())
        self.committed[partition] = following

    async def until_committed(self, partitions: int, offset: int) -> None:
        """Wait until this number of partitions is committed up to `offset`."""
        with anyio.fail_after(WITHIN_S):
            while sum(following >= offset for following in self.committed.values()) < partitions:
                await self.read_line()

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def worker_process(
    bootstrap_servers: str, topic: str, group_id: str, backend: str, pause_s: float = 0
) -> AsyncIterator[WorkerProcess]:
    arguments = [backend, bootstrap_servers, topic, group_id, str(pause_s)]
    command = [sys.executable, "-m", __name__, *arguments]
    async with await anyio.open_process(
        command, stdin=DEVNULL, stdout=PIPE, stderr=None, cwd=ROOT
    ) as process:
        try:
            yield WorkerProcess(process)
        finally:
            if process.returncode is None:
                process.kill()


async def _main(bootstrap_servers: str, topic: str, group_id: str, pause_s: str) -> None:
    options = member_options(TO_BE_KILLED | json.loads(os.environ.get(CLIENT_OPTIONS, "{}")))
    async with Consumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        max_poll_records=10,
        api_version=os.environ.get(API_VERSION),
        **options,
    ) as consumer:
        async for batch in consumer.batches():
            try:
                await consumer.commit(batch)
            except CommitFailed:
                continue
            print(batch.partition, batch.first_offset, batch.next_offset, flush=True)
            await anyio.sleep(float(pause_s))


if __name__ == "__main__":
    library, loop_options = BACKENDS[sys.argv[1]]
    anyio.run(_main, *sys.argv[2:], backend=library, backend_options=loop_options)
