"""Workers of groups that scenarios share: reading, committing, joining, leaving, dying.

A worker is a planned client with several lives: after it left or died it returns as another client
with another name ("worker-3.2" is the second life of "worker-3").
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio
import anyio.abc

from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import (
    BrokerError,
    CommitFailed,
    FencedInstanceId,
    KafkaError,
    NoBrokerAvailable,
    RequestTimedOut,
)
from aiokafkawire.producer import Producer
from aiokafkawire.records import Records
from aiokafkawire.runtime import with_runtime
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ErrorCode
from verify.simulation.harness import Harness
from verify.simulation.plan import PlannedClient, Step

__all__ = (
    "CLIENT",
    "COMMITS",
    "FAILURES",
    "MEMBER",
    "READS",
    "GroupWorkers",
    "WorkerLife",
    "draw_worker_steps",
    "host_of",
    "make_consumer",
    "make_producer",
    "send_steadily",
)

CLIENT: Mapping[str, Any] = {"request_timeout_ms": 2_000, "metadata_max_age_ms": 10_000}
"""Options of every client, with short timeouts."""

MEMBER: Mapping[str, Any] = {
    **CLIENT,
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 300,
    "max_poll_interval_ms": 6_000,
    "auto_commit_interval_ms": 500,
    "default_api_timeout_ms": 20_000,
}
"""Options of every worker."""

POLL_MS = 300
GRACE_S = 2.0
"""Time that a worker may take to leave; then its task is cancelled."""

COMMITS = ("automatic", "batch", "everything", "offsets")
"""Ways in which a worker commits."""

GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Error codes of a commit for a deleted topic."""

EACH_TH = 5
"""Number of records after which a worker that reads single records commits manually."""

BURST = 3
"""Consecutive records that a sender writes to one topic."""

BACK_AFTER_S = 1.0

FAILURES = (NoBrokerAvailable, FencedInstanceId)
"""Errors that may end a life.

A static member is fenced if the coordinator dies before the rebalance of its return is over: the
next coordinator only knows its earlier life.
"""


def make_consumer(harness: Harness, name: str, host: str, *topics: str, **options: Any) -> Any:
    """Create a recorded consumer at a host."""
    consumer = with_runtime(
        Consumer(*topics, **harness.client_options, client_id=name, **{**MEMBER, **options}),
        harness.runtime(host),
    )
    return harness.recorder.consumer(consumer, name)


def make_producer(harness: Harness, name: str, host: str, **options: Any) -> Any:
    """Create a recorded producer at a host."""
    producer = with_runtime(
        Producer(**harness.client_options, client_id=name, **{**CLIENT, **options}),
        harness.runtime(host),
    )
    return harness.recorder.producer(producer, name)


class WorkerLife:
    """One life of a worker. `over`: it should leave."""

    def __init__(self, harness: Harness, client: PlannedClient, number: int) -> None:
        self.name = f"{client.name}.{number}"
        self.client = client
        self.over = False
        self.scope = anyio.CancelScope()
        self.gone = anyio.Event()
        self.rng = harness.rng(self.name)
        self.harness = harness
        self.clients: list[str] = []
        self._stall_s = 0.0
        self._resting: dict[TopicPartition, float] = {}

    def argument(self, name: str, default: Any = None) -> Any:
        """Return an argument of this worker from the plan."""
        return self.client.arguments.get(name, default)

    def consumer(self, *topics: str, **options: Any) -> Any:
        """Create a consumer recorded with the name of this life."""
        self.clients.append(self.name)
        return make_consumer(self.harness, self.name, self.client.host, *topics, **options)

    def producer(self, **options: Any) -> Any:
        """Create a producer recorded with the name of this life."""
        name = f"{self.name}.out"
        self.clients.append(name)
        return make_producer(self.harness, name, self.client.host, **options)

    def stall(self, for_s: float) -> None:
        """Make the next piece of work take this much longer."""
        self._stall_s = for_s

    async def handle(self, count: int = 1) -> None:
        """Process this number of records."""
        takes_s, self._stall_s = self._stall_s, 0.0
        takes_s += self.rng.uniform(0, self.argument("work_s", 0.0)) * count
        if takes_s:
            await anyio.sleep(takes_s)

    async def commit(self, worker: Any, done: Any) -> None:
        """Commit manually, if this worker does; `done` is a batch, or offsets by partition."""
        manner = self.argument("commits", "automatic")
        try:
            if manner == "batch" or (manner == "offsets" and isinstance(done, Mapping)):
                await worker.commit(done)
            elif manner == "offsets":
                await worker.commit({done.topic_partition: done.next_offset})
            elif manner == "everything":
                await worker.commit()
        except (CommitFailed, RequestTimedOut) as error:
            self.harness.note(f"{self.name}: {error}")
        except BrokerError as error:
            if error.code not in GONE:
                raise
            self.harness.note(f"{self.name}: {error}")

    def wake(self, worker: Any) -> None:
        """Resume partitions that were paused for long enough."""
        for tp, until in list(self._resting.items()):
            if until <= self.harness.now():
                del self._resting[tp]
                with suppress(KafkaError):  # it may be revoked meanwhile
                    worker.resume(tp)

    async def random_action(
        self, worker: Any, partition: TopicPartition, first_offset: int
    ) -> None:
        """Sometimes seek back, or pause a partition."""
        if self.rng.random() >= self.argument("random_action_rate", 0.0):
            return
        kind = self.rng.choice(("again", "committed", "rest"))
        with suppress(KafkaError):
            if kind == "again":
                worker.seek(partition, first_offset)
            elif kind == "committed":
                await worker.seek_to_committed(partition)
            else:
                worker.pause(partition)
                self._resting[partition] = self.harness.now() + self.rng.uniform(0.2, 3)


# --- how applications read ---


async def read_many(worker: Any, life: WorkerLife) -> None:
    while not life.over:
        life.wake(worker)
        batches: Mapping[TopicPartition, Records] = await worker.getmany(timeout_ms=POLL_MS)
        for tp, batch in batches.items():
            await life.handle(len(batch))
            await life.commit(worker, batch)
            assert batch.first_offset is not None
            await life.random_action(worker, tp, batch.first_offset)


async def read_one(worker: Any, life: WorkerLife) -> None:
    count = 0
    while not life.over:
        life.wake(worker)
        record = await worker.getone(timeout_ms=POLL_MS)
        if record is None:
            continue
        await life.handle()
        count += 1
        if count % EACH_TH == 0:
            await life.commit(worker, {record.topic_partition: record.offset + 1})
            await life.random_action(worker, record.topic_partition, record.offset)


async def read_on(worker: Any, life: WorkerLife) -> None:
    count = 0
    async for record in worker:
        await life.handle()
        count += 1
        if count % EACH_TH == 0:
            await life.commit(worker, {record.topic_partition: record.offset + 1})
        if life.over:
            return


async def read_batches(worker: Any, life: WorkerLife) -> None:
    async for batch in worker.batches():
        await life.handle(len(batch))
        await life.commit(worker, batch)
        if life.over:
            return


READS: Mapping[str, Callable[[Any, WorkerLife], Awaitable[None]]] = {
    "many": read_many,
    "one": read_one,
    "on": read_on,
    "batches": read_batches,
}
"""Ways in which a worker reads."""


class CommitOnRevoke(RebalanceListener):
    """Listener that delays, and commits processed records on revocation."""

    def __init__(self, worker: Any, life: WorkerLife) -> None:
        self._worker = worker
        self._life = life

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await anyio.sleep(self._life.rng.uniform(0, 0.2))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await anyio.sleep(self._life.rng.uniform(0, 0.2))
        if self._life.argument("commits") == "everything":
            await self._life.commit(self._worker, None)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        await anyio.sleep(self._life.rng.uniform(0, 0.2))


# --- coming and going ---


class GroupWorkers:
    """All workers of a plan; steps make them leave, die, stall and return.

    `run_life` is what a worker does from its first connection to its last. The errors it `expects`
    end that life, and a supervisor starts another one soon after. Workers that start later have
    `comes_at_s`.
    """

    def __init__(
        self,
        harness: Harness,
        tasks: anyio.abc.TaskGroup,
        workers: Sequence[PlannedClient],
        run_life: Callable[[WorkerLife], Awaitable[None]],
        *,
        expects: tuple[type[KafkaError], ...] = FAILURES,
    ) -> None:
        self.current_lives: dict[str, WorkerLife] = {}
        self._harness = harness
        self._tasks = tasks
        self._workers = {client.name: client for client in workers}
        self._lives = dict.fromkeys(self._workers, 0)
        self._run_life = run_life
        self._expects = expects
        self._stopped: set[str] = set()
        harness.on("leave", self.leave)
        harness.on("die", self.die)
        harness.on("stall", self.stall)
        for client in workers:
            tasks.start_soon(self._arrive, client)

    async def _arrive(self, client: PlannedClient) -> None:
        await anyio.sleep_until(client.arguments.get("comes_at_s", 0.0))
        self._begin(client.name)

    def _begin(self, name: str) -> None:
        if name in self._stopped or name in self.current_lives or name not in self._workers:
            return
        self._lives[name] += 1
        life = self.current_lives[name] = WorkerLife(
            self._harness, self._workers[name], self._lives[name]
        )
        self._tasks.start_soon(self._live, life, name=life.name)

    async def _live(self, life: WorkerLife) -> None:
        name, failed = life.client.name, False
        try:
            with life.scope:
                await self._run_life(life)
        except self._expects as error:
            self._harness.note(f"{life.name}: {error}")
            failed = True
        finally:
            del self.current_lives[name]
            life.gone.set()
        if failed and not life.over:
            await anyio.sleep(BACK_AFTER_S)
            self._begin(name)

    # --- steps ---

    async def leave(self, worker: str, for_s: float) -> None:
        """Leave the group, and rejoin after a time."""
        await self._stop_worker(worker)
        await anyio.sleep(for_s)
        self._begin(worker)

    async def die(self, worker: str, for_s: float, silent: bool) -> None:
        """End without leaving; if `silent` the brokers do not even see the connection close."""
        life = self.current_lives.get(worker)
        if life is None:
            return
        network, host = self._harness.world.network, life.client.host
        life.over = True
        if silent:
            network.lose_power(host)
            for name in life.clients:
                self._harness.recorder.crashed(name)
            life.scope.cancel()
        else:
            self._harness.crash(host, life.scope, *life.clients)
        await life.gone.wait()
        await anyio.sleep(for_s)
        # Packets in flight at its death never arrive.
        network.crash(host)
        self._harness.revive(host)
        self._begin(worker)

    async def stall(self, worker: str, for_s: float) -> None:
        """Make its next piece of work take this long."""
        life = self.current_lives.get(worker)
        if life is not None:
            life.stall(for_s)

    async def _stop_worker(self, worker: str) -> None:
        life = self.current_lives.get(worker)
        if life is None:
            return
        life.over = True
        with anyio.move_on_after(GRACE_S):
            await life.gone.wait()
        life.scope.cancel()
        await life.gone.wait()

    async def stop(self, workers: Collection[str]) -> None:
        """Stop these workers; they do not return."""
        self._stopped.update(workers)
        async with anyio.create_task_group() as parting:
            for worker in list(self.current_lives):
                if worker in workers:
                    parting.start_soon(self._stop_worker, worker)

    async def stop_all(self) -> None:
        """Stop all workers."""
        await self.stop(self._workers)


def draw_worker_steps(
    rng: random.Random, workers: Sequence[PlannedClient], count: int, to_s: float
) -> tuple[Step, ...]:
    """Draw `count` steps in the life of workers."""
    steps = []
    for _ in range(count if workers else 0):
        kind = rng.choices(("leave", "die", "stall"), (4, 3, 2))[0]
        arguments: dict[str, Any] = {
            "worker": rng.choice(workers).name,
            "for_s": round(rng.uniform(0, 4) if kind != "stall" else rng.uniform(2, 12), 3),
        }
        if kind == "die":
            arguments["silent"] = rng.random() < 0.5
        steps.append(Step(round(rng.uniform(0.2, to_s), 3), kind, arguments))
    return tuple(sorted(steps, key=lambda step: step.at_s))


# --- what else scenarios share ---


def host_of(number: int) -> str:
    """Return the host of a client by its number, from 0."""
    return f"10.0.2.{number + 1}"


async def send_steadily(harness: Harness, client: PlannedClient, **options: Any) -> None:
    """Send all records of the plan to its topics in turn, some of them at once, and await the
    outcomes."""
    rng = harness.rng(client.name)
    topics = list(harness.plan.topics)
    pause_s = client.arguments.get("pause_s", 0.1)
    async with make_producer(harness, client.name, client.host, **options) as sender:
        deliveries = []
        at_once = 0
        for number in range(harness.plan.records):
            try:
                topic = topics[number // BURST % len(topics)]
                deliveries.append(await sender.send(topic, sender.value()))
            except KafkaError as error:
                harness.note(f"{client.name}: {error}")
            if not at_once:
                at_once = rng.choice((0, 0, 0, BURST, 2 * BURST))
                await anyio.sleep(rng.uniform(0, 2 * pause_s) * (1 + at_once))
            else:
                at_once -= 1
        for delivery in deliveries:
            try:
                await delivery
            except KafkaError as error:
                harness.note(f"{client.name}: {error}")
