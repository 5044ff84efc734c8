"""Transactions are committed, aborted, cancelled, fenced and handed over; processes die and return.

`read_committed` consumers must see each transaction completely or not at all. Copiers read a topic
in a group and write each record to another topic, in transactions with their offsets: in the end
each record is there exactly once.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any

import anyio

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import Runtime, with_runtime
from aiokafkawire.types import GroupMetadata, TopicPartition
from verify.invariants.checker import Guarantees
from verify.invariants.events import parse_value
from verify.invariants.recorder import OwnError
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import HEALED_WITHIN_S, Harness
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.shared_draws import IMPATIENT, draw_broker, draw_client, draw_network

TOPIC, SOURCE, COPIES = "orders", "source", "copies"
GROUP, COPYING = "bookkeeping", "copying"
OFFSETS_OF = TopicPartition(TOPIC, 0)

TRANSACTION_TIMEOUT_MS = 10_000
DELIVERY_TIMEOUT_MS = 8_000
MAX_BLOCK_MS = 10_000
COPIERS_SINCE = "2.5"
"""Earlier brokers cannot fence a copier that lost its partitions."""

MAX_DOWN_S = 3.0


def draw(rng: random.Random) -> Plan:
    copying = rng.random() < 0.3
    broker = draw_broker(rng, since=COPIERS_SINCE if copying else "0.11.0")
    broker["transaction_marker_delay_ms"] = rng.choice([0, 0, 20, 200])
    topics = {TOPIC: rng.randint(1, 3)}
    clients = [_transactor(rng, number) for number in range(rng.choice([1, 1, 2]))]
    clients += [
        PlannedClient("reader", "10.0.2.1", "reads", {"late": False}),
        PlannedClient("late-reader", "10.0.2.2", "reads", {"late": True}),
    ]
    if copying:
        topics |= {SOURCE: rng.randint(1, 3), COPIES: rng.randint(1, 2)}
        clients.append(PlannedClient("feeder", "10.0.3.1", "feeds"))
        clients += [_copier(rng, number) for number in range(rng.choice([1, 2, 2]))]
    scene = Scene(
        nodes=3,
        hosts=[client.host for client in clients],
        topics=topics,
        groups=[GROUP, COPYING],
        transactional_ids=[client.name for client in clients if client.kind != "reads"],
        replicated="replicate" in broker,
    )
    records = rng.choice([15, 30, 60, 120])
    to_s = records / 5
    steps = list(draw_steps(rng, scene, count=rng.randint(0, 10), from_s=0.05, to_s=to_s))
    own = [client.name for client in clients if client.kind in {"transacts", "copies"}]
    for _ in range(rng.choice([0, 0, 1, 2])):
        kind = rng.choice(["crash", "take over"])
        arguments: dict[str, Any] = {"client": rng.choice(own)}
        if kind == "crash":
            arguments["for_s"] = round(rng.uniform(0.05, MAX_DOWN_S), 3)
        steps.append(Step(round(rng.uniform(0.2, to_s), 3), kind, arguments))
    return Plan(
        broker=broker,
        network=draw_network(rng),
        topics=topics,
        records=records,
        clients=tuple(clients),
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
    )


def _transactor(rng: random.Random, number: int) -> PlannedClient:
    return PlannedClient(
        f"transactor{number}",
        f"10.0.1.{number + 1}",
        "transacts",
        {
            "aborts": rng.choice([0.0, 0.1, 0.4]),
            "cancels": rng.choice([0.0, 0.1, 0.4]),
            "flushes": rng.choice([0.0, 0.2]),
            "offsets": rng.choice([0.0, 0.5]),
            "detaches": rng.choice([0.0, 0.0, 0.3]),
            "by_hand": rng.random() < 0.3,
            "linger_ms": rng.choice([0, 5, 50]),
            "options": draw_client(rng) | {"request_timeout_ms": rng.choice([1_000, 2_000])},
        },
    )


def _copier(rng: random.Random, number: int) -> PlannedClient:
    arguments = {
        "aborts": rng.choice([0.0, 0.2]),
        "linger_ms": rng.choice([0, 5]),
        "options": draw_client(rng) | {"request_timeout_ms": rng.choice([1_000, 2_000])},
    }
    return PlannedClient(f"copier{number}", f"10.0.4.{number + 1}", "copies", arguments)


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(complete_readers=tuple(client.name for client in plan.of("reads")))


async def run(harness: Harness) -> None:
    await harness.make_topics()
    plan = harness.plan
    processes = {
        client.name: Process(harness, client)
        for client in plan.clients
        if client.kind in {"transacts", "copies"}
    }
    harness.on("crash", partial(crash, processes))
    harness.on("take over", partial(take_over, processes))
    over = anyio.Event()
    async with anyio.create_task_group() as group:
        for client in plan.of("reads"):
            if not client.arguments["late"]:
                group.start_soon(read, harness, client, over)
        copiers = [processes[client.name] for client in plan.of("copies")]
        for process in copiers:
            group.start_soon(process.run)
        async with anyio.create_task_group() as acts:
            acts.start_soon(harness.run_steps)
            for client in plan.of("feeds"):
                acts.start_soon(feed, harness, client)
            for client in plan.of("transacts"):
                acts.start_soon(processes[client.name].run)
        if copiers:
            await harness.until(lambda: copied(harness), "all that was there to copy")
        for process in copiers:
            process.over = True
        for process in processes.values():
            await process.after_all()
        for client in plan.of("reads"):
            if client.arguments["late"]:
                group.start_soon(read, harness, client, over)
        if plan.of("reads"):
            await harness.until_consumed(TOPIC, committed=True)
        over.set()
    judge_copies(harness)


class Process:
    """An application with one transactional id, which dies and returns."""

    def __init__(self, harness: Harness, client: PlannedClient) -> None:
        self.harness = harness
        self.client = client
        self.rng = harness.rng(client.name)
        self.over = False
        self.lives = 0
        self.offset = 0
        self.scope = anyio.CancelScope()
        self.names: list[str] = []
        self.left = max(1, harness.plan.records // max(1, len(harness.plan.of(client.kind))))
        self.down_s: float | None = None

    def options(self) -> dict[str, Any]:
        return self.client.arguments["options"] | {
            **self.harness.client_options,
        }

    @property
    def runtime(self) -> Runtime:
        return self.harness.runtime(self.client.host)

    async def run(self) -> None:
        """Run one life after the other, until all is done."""
        while self.left > 0 and not self.over:
            self.scope, self.down_s = anyio.CancelScope(), None
            with self.scope:
                await self.life()
            if self.down_s is not None:
                await anyio.sleep(self.down_s)
                self.harness.revive(self.client.host)
            else:
                await anyio.sleep(0.1)

    def crash(self, for_s: float) -> None:
        if self.down_s is None and self.names:
            self.down_s = for_s
            self.harness.crash(self.client.host, self.scope, *self.names)

    async def life(self) -> None:
        """Run one producer of this process, from start to end."""
        producer = self.producer()
        self.names = [producer.name]
        try:
            if self.client.kind == "copies":
                consumer = self.consumer(f"{producer.name}.in")
                self.names.append(consumer.name)
                async with producer, consumer:
                    await self.copy(producer, consumer)
            else:
                async with producer:
                    await self.transact_on(producer)
        except KafkaError as error:
            self.harness.note(f"{producer.name}: {type(error).__name__}: {error}")
        finally:
            self.names = []

    def producer(self) -> Any:
        self.lives += 1
        name = f"{self.client.name}.{self.lives}"
        producer = Producer(
            client_id=name,
            transactional_id=self.client.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=MAX_BLOCK_MS,
            linger_ms=self.client.arguments["linger_ms"],
            **self.options(),
        )
        return self.harness.recorder.producer(with_runtime(producer, self.runtime), name)

    async def after_all(self) -> None:
        """Start again, which aborts the open transaction of the last life."""
        async with self.producer():
            pass

    # --- transactions of its own ---

    async def transact_on(self, producer: Any) -> None:
        """Run transactions until the producer fails."""
        good = True
        while good and self.left > 0:
            good = await self.transact(producer)
            await anyio.sleep(self.rng.uniform(0, 0.3))

    async def transact(self, producer: Any) -> bool:
        """Run one transaction; return whether the producer can run another."""
        arguments, rng = self.client.arguments, self.rng
        cancelled = rng.random() < arguments["cancels"]
        limit_s = rng.choice([0.0, 0.01, 0.1, 1.0]) * rng.random() if cancelled else 60.0
        with anyio.move_on_after(limit_s) as scope:
            try:
                if rng.random() < arguments["detaches"]:
                    await self.hand_on(producer)
                    return False
                if arguments["by_hand"]:
                    return await self.by_hand(producer)
                async with producer.transaction():
                    await self.fill(producer)
                    if rng.random() < arguments["aborts"]:
                        raise OwnError("changed its mind")
            except OwnError:
                return True
            except KafkaError as error:
                self.harness.note(f"{producer.name}: {type(error).__name__}: {error}")
                return await self.usable(producer)
        if scope.cancelled_caught:
            return await self.usable(producer)
        return True

    async def by_hand(self, producer: Any) -> bool:
        """Begin and end by explicit calls."""
        await producer.begin_transaction()
        try:
            await self.fill(producer)
        except KafkaError as error:
            self.harness.note(f"{producer.name}: {type(error).__name__}: {error}")
            await producer.abort_transaction()
            return True
        if self.rng.random() < self.client.arguments["aborts"]:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
        return True

    async def hand_on(self, producer: Any) -> None:
        """Fill a transaction that another process ends."""
        await producer.begin_transaction()
        await self.fill(producer)
        detached = await producer.detach_transaction()
        commit = self.rng.random() < 0.7
        await self.harness.recorder.end_detached_transaction(
            detached, commit=commit, runtime=self.runtime, **self.options()
        )

    async def fill(self, producer: Any) -> None:
        rng = self.rng
        for _ in range(rng.randrange(1, 8)):
            self.left -= 1
            partition = rng.randrange(self.harness.plan.topics[TOPIC])
            await producer.send(TOPIC, producer.value(), partition=partition)
            if rng.random() < self.client.arguments["flushes"]:
                await producer.flush()
            await anyio.sleep(rng.choice([0, 0, 0.05]))
        if rng.random() < self.client.arguments["offsets"]:
            self.offset += 1
            group = GroupMetadata(f"{GROUP} of {self.client.name}")
            await producer.send_offsets_to_transaction({OFFSETS_OF: self.offset}, group)

    async def usable(self, producer: Any) -> bool:
        """End what is left of the last transaction; return whether another one can begin."""
        try:
            await producer.abort_transaction()
        except KafkaError as error:
            self.harness.note(f"{producer.name}: {type(error).__name__}: {error}")
        return self.rng.random() < 0.7

    # --- copying ---

    def consumer(self, name: str) -> Any:
        consumer = Consumer(
            SOURCE,
            client_id=name,
            group_id=COPYING,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=3_000,
            max_poll_interval_ms=6_000,
            heartbeat_interval_ms=500,
            **self.options(),
        )
        return self.harness.recorder.consumer(with_runtime(consumer, self.runtime), name)

    async def copy(self, producer: Any, consumer: Any) -> None:
        """Copy records, each batch in a transaction with its offsets."""
        while not self.over:
            found = await consumer.getmany(timeout_ms=500, max_records=10)
            if not found:
                continue
            try:
                async with producer.transaction():
                    for records in found.values():
                        for record in records:
                            value = producer.value(record.value)
                            await producer.send(COPIES, value)
                    await producer.send_offsets_to_transaction(consumer)
                    if self.rng.random() < self.client.arguments["aborts"]:
                        raise OwnError("changed its mind")
            except OwnError:
                await consumer.seek_to_committed()


async def crash(processes: dict[str, Process], client: str, for_s: float) -> None:
    if client in processes:
        processes[client].crash(for_s)


async def take_over(processes: dict[str, Process], client: str) -> None:
    """Start another process with the same transactional id, which fences the first one."""
    if client in processes and processes[client].client.kind == "transacts":
        process = processes[client]
        try:
            async with process.producer() as producer:
                await process.transact(producer)
        except KafkaError as error:
            process.harness.note(f"{client} could not be taken over: {error}")


async def feed(harness: Harness, client: PlannedClient) -> None:
    producer = with_runtime(
        Producer(client_id=client.name, **harness.client_options, **IMPATIENT),
        harness.runtime(client.host),
    )
    rng = harness.rng(client.name)
    async with harness.recorder.producer(producer, client.name) as sender:
        for _ in range(harness.plan.records):
            try:
                await sender.send(SOURCE, sender.value())
            except KafkaError as error:
                harness.note(f"{client.name}: {error}")
            await anyio.sleep(rng.uniform(0, 0.3))


async def read(harness: Harness, client: PlannedClient, over: anyio.Event) -> None:
    """Read until the writers have ended; then on to the end of each partition."""
    consumer = with_runtime(
        Consumer(
            TOPIC,
            client_id=client.name,
            **harness.client_options,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **IMPATIENT,
        ),
        harness.runtime(client.host),
    )
    async with harness.recorder.consumer(consumer, client.name) as reader:
        while not (over.is_set() and reader.assignment()):
            await reader.getmany(timeout_ms=500)
        begun = harness.now()
        for partition in range(harness.plan.topics[TOPIC]):
            end = harness.log(TOPIC, partition).end_offset
            while await reader.position(TopicPartition(TOPIC, partition)) < end:
                if harness.now() > begun + HEALED_WITHIN_S:
                    harness.violated(11, f"{client.name} does not reach the end of {partition}")
                    return
                await reader.getmany(timeout_ms=100)


# --- what copiers must have done ---


def sources(harness: Harness) -> list[bytes]:
    """Return all values to be copied."""
    return values(harness, SOURCE)


def values(harness: Harness, topic: str) -> list[bytes]:
    """Return the values of a topic that a `read_committed` consumer sees."""
    return [
        record.value
        for partition in range(harness.plan.topics.get(topic, 0))
        for record in harness.log(topic, partition).records
        if record.fate in {"none", "committed"}
    ]


def copies(harness: Harness) -> list[bytes]:
    """Return the values copied by committed transactions."""
    found = [parse_value(value) for value in values(harness, COPIES)]
    return [each.payload for each in found if each is not None]


def copied(harness: Harness) -> bool:
    return set(copies(harness)) >= set(sources(harness))


def judge_copies(harness: Harness) -> None:
    """Check that each record is copied once; `run` has waited for all."""
    twice = [value for value, count in Counter(copies(harness)).items() if count > 1]
    if twice:
        harness.violated(14, f"{len(twice)} records were copied more than once: {twice[:5]}")


SCENARIO = Scenario("transacting", draw, run, guarantees, share=15)
