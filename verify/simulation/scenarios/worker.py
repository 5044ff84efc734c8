"""Workers of a group process records that fail in all ways, and leave, die and stall meanwhile."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import anyio

from aiokafkawire.errors import (
    ConnectionFailed,
    ConnectionLost,
    KafkaError,
    NoBrokerAvailable,
    PartialFailure,
    RequestTimedOut,
)
from aiokafkawire.runtime import with_runtime
from aiokafkawire.wire import ApiKey
from aiokafkawire.worker import (
    BatchPolicy,
    DeadLetter,
    Drop,
    FailedAt,
    Retry,
    RetryPolicy,
    Worker,
)
from verify.invariants.checker import Guarantees
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import SLACK_S, ConditionTimedOut, Harness
from verify.simulation.plan import Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.group_workers import (
    CLIENT,
    GroupWorkers,
    WorkerLife,
    draw_worker_steps,
    host_of,
    make_producer,
)
from verify.simulation.share_worker_ledger import ShareWorkerLedger
from verify.simulation.worker_faults import ACLS, WorkerFaults, draw_worker_faults
from verify.simulation.worker_ledger import KINDS, WorkerLedger, kind_of

GROUP = "billing"
TOPIC = "orders"
DEAD = "billing.dead"
BILLS = "bills"
TO_S = 20.0
WEIGHTS = (60, 10, 3, 5, 4, 5, 3, 3, 5, 4)
"""Weights of the kinds of records. Without a time limit of attempts, no record hangs."""

STALL_SHARE = 0.4
"""A stall takes at most this part of the time limit of an attempt, a slow record half of it."""

FILLER_BYTES = 600
"""Header of an output record, so that a small buffer holds one."""

IN_TIME = 9
"""Number of the invariant that is checked here."""

STARTS = (NoBrokerAvailable, RequestTimedOut, ConnectionFailed, ConnectionLost, PartialFailure)
"""Errors that may end the start of a worker under faults."""


class HandlerCrash(BaseException):
    """An exception of a library that is no Exception."""


def draw(rng: random.Random) -> Plan:
    partitions = rng.randint(1, 3)
    workers = tuple(
        PlannedClient(
            f"worker-{number}",
            host_of(number),
            "works",
            {"comes_at_s": round(rng.choice((0.0, rng.uniform(0, TO_S / 2))), 3)},
        )
        for number in range(rng.randint(1, 4))
    )
    sender = PlannedClient("sender", "10.0.1.1", "sends")
    scene = Scene(3, [each.host for each in (sender, *workers)], {TOPIC: partitions}, (GROUP,))
    steps = [
        *draw_worker_steps(rng, workers, rng.randint(0, 8), TO_S),
        *draw_steps(rng, scene, count=rng.randint(0, 5), from_s=0.1, to_s=TO_S),
        *draw_clock_jumps(rng, scene),
        *draw_cancellations(rng, workers),
    ]
    options = _draw_options(rng)
    steps += draw_worker_faults(rng, workers, partitions, TO_S)
    return Plan(
        broker={
            "nodes": 3,
            "group_min_session_timeout_ms": 100,
            "acls": ACLS,
            "auto_create_topics": rng.random() < 0.5,
        },
        network={"max_delay_s": rng.choice((0.002, 0.02))},
        topics={TOPIC: partitions},
        options=options,
        records=1 if options["poison"] == "alone" else rng.choice((20, 60, 150)),
        clients=(sender, *workers),
        steps=tuple(sorted(shorter_stalls(steps, options), key=lambda step: step.at_s)),
    )


def shorter_stalls(steps: Iterable[Step], options: Mapping[str, Any]) -> Iterator[Step]:
    """Yield steps whose stalls alone do not let an attempt time out."""
    limit_ms = options["timeout_ms"]
    for step in steps:
        if step.kind != "stall" or limit_ms is None:
            yield step
        else:
            for_s = min(step.arguments["for_s"], STALL_SHARE * limit_ms / 1_000)
            yield dataclasses.replace(step, arguments={**step.arguments, "for_s": for_s})


def _draw_options(rng: random.Random) -> dict[str, Any]:
    is_batch = rng.random() < 0.3
    return {
        "keys": rng.choice((1, 3, 20)),
        "order_by": rng.choice(("partition", None) if is_batch else ("partition", "key", None)),
        "batch": rng.choice((2, 7)) if is_batch else 0,
        "attempts": rng.choice((2, 3)),
        "delays_ms": rng.choice(((), (500,), (500, 2_000))),
        "concurrency": rng.choice((1, 3, 20)),
        "max_buffered_records": rng.choice((8, 20, 1_000)),
        "drain_timeout_ms": rng.choice((0, 500, 4_000)),
        "commit_interval_ms": rng.choice((50, 500)),
        "connect_on_start": rng.random() < 0.8,
        "max_poll_records": rng.choice((1, 5, 500)),
        "strategy": rng.choice(("cooperative-sticky", "range")),
        "pause_after_failures": rng.choice((None, None, 1, 3)),
        "commit_finished_records": rng.random() < 0.5,
        "timeout_ms": rng.choice((None, None, 1_000, 4_000)),
        "poison": rng.choices((None, "first", "last", "alone"), (7, 1, 1, 1))[0],
    }


def draw_clock_jumps(rng: random.Random, scene: Scene) -> list[Step]:
    return [
        Step(
            round(rng.uniform(0.1, TO_S), 3),
            "jump",
            {"host": rng.choice(scene.hosts[1:]), "by_s": rng.choice((-60.0, -1.0, 1.0, 60.0))},
        )
        for _ in range(rng.choice((0, 0, 1, 3)))
    ]


def draw_cancellations(rng: random.Random, workers: Sequence[PlannedClient]) -> list[Step]:
    return [
        Step(round(rng.uniform(0.1, TO_S), 3), "cancel", {"worker": rng.choice(workers).name})
        for _ in range(rng.choice((0, 0, 1, 2)))
    ]


def stages(plan: Plan) -> list[str]:
    """Return the topics that the workers read, in the order in which a record passes them."""
    names = {500: "billing.retry.500ms", 2_000: "billing.retry.2s"}
    return [TOPIC, *(names[delay] for delay in plan.options["delays_ms"])]


async def run(harness: Harness) -> None:
    await harness.make_topics()
    topics = stages(harness.plan)
    harness.copied_topics = (*topics[1:], DEAD, BILLS)
    options = harness.plan.options
    output = BILLS if is_exactly_once(harness.plan) else None
    ledger = WorkerLedger(harness, GROUP, topics, DEAD, options["order_by"], output)
    allow_clock_jumps(harness)
    WorkerFaults(harness, ledger, GROUP, TOPIC, DEAD)
    _check_commits(harness, ledger)
    async with anyio.create_task_group() as tasks:
        workers = GroupWorkers(
            harness,
            tasks,
            harness.plan.of("works"),
            lambda life: work(life, ledger),
            expects=STARTS,
        )
        allow_cancellations(harness, workers)
        async with anyio.create_task_group() as busy:
            busy.start_soon(harness.run_steps)
            for client in harness.plan.of("sends"):
                busy.start_soon(send, harness, client)
        _check_commits(harness, ledger)  # the end of the faults has removed it
        if harness.plan.of("works"):
            await _until_finished(harness, ledger)
        await workers.stop_all()
    ledger.check_dead_letters()
    ledger.check_output()


async def _until_finished(harness: Harness, ledger: WorkerLedger) -> None:
    try:
        await harness.until(lambda: not ledger.unfinished(), "processed", 120.0)
    except ConditionTimedOut as error:
        raise ConditionTimedOut(f"{error}: {ledger.unfinished()[:5]}") from None


def _check_commits(harness: Harness, ledger: WorkerLedger) -> None:
    harness.broker.on(ApiKey.OFFSET_COMMIT, ledger.check_commit)
    harness.broker.on(ApiKey.TXN_OFFSET_COMMIT, ledger.keep_offsets)
    harness.broker.on(ApiKey.END_TXN, ledger.check_transaction)


def allow_clock_jumps(harness: Harness) -> None:
    """Register the steps of `draw_clock_jumps`."""

    async def jump(host: str, by_s: float) -> None:
        harness.runtime(host).clock.jump(by_s)

    harness.on("jump", jump)


def allow_cancellations(harness: Harness, workers: GroupWorkers) -> None:
    """Register the steps of `draw_cancellations`: a worker is cancelled, and starts again."""

    async def cancel(worker: str) -> None:
        life = workers.current_lives.get(worker)
        if life is None:
            return
        life.over = True
        life.scope.cancel()
        await life.gone.wait()
        await workers.leave(worker, 0.1)

    harness.on("cancel", cancel)


async def send(harness: Harness, client: PlannedClient) -> None:
    rng, keys = harness.rng(client.name), harness.plan.options["keys"]
    weights = [
        0 if kind == "hang" and harness.plan.options["timeout_ms"] is None else weight
        for kind, weight in zip(KINDS, WEIGHTS, strict=True)
    ]
    places = {"first": 0, "last": harness.plan.records - 1, "alone": 0}
    poison = places.get(harness.plan.options.get("poison"))
    pause_s = 2 * client.arguments.get("for_s", TO_S) / max(harness.plan.records, 1)
    async with make_producer(harness, client.name, client.host) as sender:
        for number in range(harness.plan.records):
            key, kind = f"k{rng.randrange(keys)}", rng.choices(KINDS, weights)[0]
            if number == poison:
                kind = "poison"
            value = sender.value(f"{kind},{key}".encode())
            try:
                await sender.send_and_wait(TOPIC, value, key=key.encode())
            except KafkaError as error:
                harness.note(f"{client.name}: {error}")
            await anyio.sleep(rng.choice((0.0, rng.uniform(0, pause_s))))


def decode(value: bytes) -> bytes:
    """Return the value, unless it cannot be decoded."""
    if kind_of(value).kind == "garbage":
        raise ValueError("garbage")
    return value


def _decodes(options: Mapping[str, Any]) -> bool:
    """Return whether handlers have a decoder; those without options run on a shorter path."""
    return options["timeout_ms"] is not None


def make_worker(life: WorkerLife) -> Worker:
    """Return a worker that is not started, without handlers."""
    options = life.harness.plan.options
    same = (
        "pause_after_failures",
        "concurrency",
        "max_buffered_records",
        "drain_timeout_ms",
        "commit_interval_ms",
        "commit_finished_records",
    )
    worker = Worker(
        pause_ms=50,
        **life.harness.client_options,
        **CLIENT,
        **{name: options[name] for name in same},
        client_id=life.name,
        group_id=GROUP,
        connect_on_start=options["connect_on_start"],
        default_api_timeout_ms=15_000 if is_exactly_once(life.harness.plan) else 5_000,
        consumer_options={
            "session_timeout_ms": 3_000,
            "heartbeat_interval_ms": 300,
            "max_poll_interval_ms": 6_000,
            "max_poll_records": options["max_poll_records"],
            "partition_assignment_strategy": [options["strategy"]],
        },
        **_guarantee(life.harness.plan),
    )
    return with_runtime(worker, life.harness.runtime(life.client.host))


def is_exactly_once(plan: Plan) -> bool:
    """Return whether the workers write in transactions."""
    return bool(plan.options.get("exactly_once"))


def _guarantee(plan: Plan) -> dict[str, Any]:
    producer_options = {"delivery_timeout_ms": 6_000, "max_block_ms": 5_000}
    if not is_exactly_once(plan):
        return {"producer_options": producer_options}
    for name in ("transaction_timeout_ms", "buffer_memory_bytes"):
        producer_options[name] = plan.options[name]
    return {"processing_guarantee": "exactly_once_v2", "producer_options": producer_options}


async def work(life: WorkerLife, ledger: WorkerLedger) -> None:
    """Run a worker until its life is over."""
    options, handler = life.harness.plan.options, Handler(life, ledger)
    worker = make_worker(life)
    policy = RetryPolicy(
        attempts=options["attempts"], backoff_ms=50, delays_ms=tuple(options["delays_ms"])
    )
    size = options["batch"]
    on = worker.on(
        TOPIC,
        order_by=options["order_by"],
        value=decode if _decodes(options) else None,
        retries=policy,
        timeout_ms=options["timeout_ms"],
        batch=BatchPolicy(max_records=size, max_wait_ms=200) if size else None,
    )
    on(handler.process_batch if size else handler.process_record)
    async with worker:
        while not life.over and worker.health().is_alive:  # noqa: ASYNC110 - steps set `over`
            await anyio.sleep(0.1)


class Handler:
    """Handlers that behave as the kind of each record says."""

    def __init__(self, life: WorkerLife, ledger: WorkerLedger | ShareWorkerLedger) -> None:
        self._life = life
        self._ledger = ledger
        timeout_ms = life.harness.plan.options["timeout_ms"]
        self._timeout_s = None if timeout_ms is None else timeout_ms / 1_000

    async def process_record(self, record: Any) -> None:
        """Process a record."""
        self._ledger.begin(self._life.name, record)
        try:
            await self._process(record)
        finally:
            self._ledger.end(self._life.name, record)

    async def process_batch(self, batch: Any) -> None:
        """Process records; some failures name the record."""
        for index, record in enumerate(batch):
            try:
                await self.process_record(record)
            except Exception as error:
                if self._life.rng.random() < 0.5:
                    raise FailedAt(index) from error
                raise

    async def _process(self, record: Any) -> None:
        ledger, life, value = self._ledger, self._life, record.record.value
        limit_s = self._timeout_s
        kind = kind_of(value).kind
        await life.handle()
        if kind == "slow":
            await anyio.sleep(life.rng.uniform(0.5, 6) if limit_s is None else limit_s / 2)
        if kind == "hang" and not ledger.failed[value]:
            ledger.failed[value] += 1
            await self._hang(record)
        if kind in {"once", "base"} and not ledger.failed[value]:
            ledger.failed[value] += 1
            raise (
                life.rng.choice((ValueError("once"), Retry(0.2)))
                if kind == "once"
                else HandlerCrash
            )
        if kind == "later" and record.topic != stages(life.harness.plan)[-1]:
            raise ConnectionError("later")
        if kind == "drop":
            ledger.processed.add(value)
            raise Drop("dropped")
        if kind == "letter":
            raise DeadLetter("rejected")
        if kind in {"poison", "garbage"}:  # garbage gets here without a decoder
            raise ValueError(kind)
        if is_exactly_once(life.harness.plan):
            headers = (("filler", bytes(FILLER_BYTES)),)
            record.send(BILLS, value, key=record.record.key, headers=headers)
        ledger.processed.add(value)

    async def _hang(self, record: Any) -> None:
        """Wait until the attempt is cancelled; sometimes ignore that for a while."""
        harness = self._life.harness
        began = harness.now()
        try:
            await anyio.sleep_forever()
        finally:
            took_s = harness.now() - began
            if self._timeout_s is not None and took_s > self._timeout_s + SLACK_S:
                text = f"{record!r} runs for {took_s:.3f} s, at most {self._timeout_s} s"
                harness.violated(IN_TIME, text)
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self._life.rng.choice((0.0, self._life.rng.uniform(0, 3))))


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees()


SCENARIO = Scenario("worker", draw, run, guarantees)
