"""Producers with all kinds of options under faults; a reader or a group consumes the records."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from aiokafkawire.broker import Answer, Delay, SeenRequest
from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import BufferFull, DeliveriesFailed, KafkaError
from aiokafkawire.producer import Producer
from aiokafkawire.runtime import with_runtime
from aiokafkawire.wire import ApiKey, ErrorCode
from verify.invariants.checker import Guarantees
from verify.simulation.faults import Scene, draw_steps
from verify.simulation.harness import Harness
from verify.simulation.plan import BROKER_HOST, Plan, PlannedClient, Step
from verify.simulation.scenario import Scenario
from verify.simulation.shared_draws import (
    draw_broker,
    draw_client,
    draw_network,
    draw_reader,
    has_api_versions,
    has_idempotence,
)

TOPIC = "orders"
SMALL_BATCHES_BYTES = 700
LARGEST_PAYLOAD_BYTES = 300
"""Record size below `SMALL_BATCHES_BYTES`; a batch of several exceeds it and must be split."""
TOO_LARGE_BYTES = 1_000
"""Record size that often exceeds it alone, and is rejected for good."""

STYLES = ("send", "send_and_wait", "send_many", "send_nowait", "cancelled", "short_lived")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4")
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")
GROUP = "billing"
MEMBER: dict[str, Any] = {
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 300,
    "max_poll_interval_ms": 6_000,
    "auto_commit_interval_ms": 500,
}
PRESSED: Mapping[str, Any] = {"linger_ms": 0, "batch_size_bytes": 200, "metadata_max_age_ms": 700}
EXPIRES_S = 3
TRICKS: Mapping[str, Mapping[str, Any]] = {
    "overtake": {
        "enable_idempotence": False,
        "max_in_flight_requests_per_connection": 1,
        "request_timeout_ms": 10_000,
    },
    "deny what is written": {"request_timeout_ms": 1_000},
    "leave in doubt": {
        "request_timeout_ms": 1_000,
        "delivery_timeout_ms": EXPIRES_S * 1_000,
        "buffer_memory_bytes": 10_000,
        "max_block_ms": 1_000,
    },
    "refuse the first": {"batch_size_bytes": 100},
    "refuse": {
        "request_timeout_ms": 1_000,
        "delivery_timeout_ms": EXPIRES_S * 1_000,
        "max_block_ms": 1_000,
    },
}
"""Faults for a sender with closely spaced requests, and its options then."""
TRICKED = 0.5
"""Share of runs with such a sender."""
HOPS = 2
"""Longest network delays after which, on average, both followers have a batch."""
IN_FLIGHT = 5
"""Requests in flight of a sender with closely spaced requests: the default."""
RECORD_OVERHEAD_BYTES = 100
"""Largest number of bytes that a batch of one record adds to its payload."""
UNDER_WAY_S = 4.0
LONG_AGO_MS = 1_000_000_000_000
IMPATIENT_S = 0.02
"""Longest wait of a reader for a response that takes about as long."""
MANY = 5
"""Records of one `send_many`."""


def draw(rng: random.Random) -> Plan:
    readers = _readers(rng)
    grouped = any(client.arguments["group"] for client in readers)
    broker = draw_broker(rng, since="0.9.0" if grouped else "0.8.0")
    if rng.random() < 0.25:
        broker["max_message_bytes"] = SMALL_BATCHES_BYTES
    topics = {TOPIC: rng.randint(1, 4)}
    senders = [_sender(rng, number) for number in range(rng.choice([1, 1, 2, 3]))]
    if "max_message_bytes" in broker:
        senders = [_unhurried(sender) for sender in senders]
    clients = [*senders, *readers]
    if not has_api_versions(broker):
        clients = [_patient(client) for client in clients]
    scene = Scene(
        nodes=3,
        hosts=[client.host for client in clients],
        topics=topics,
        groups=[GROUP] if grouped else [],
        replicated="replicate" in broker,
    )
    records = rng.choice([20, 40, 80, 150, 300])
    pause_s = max(client.arguments["pause_s"] for client in senders)
    to_s = 1.0 + records / len(senders) * pause_s
    plan = Plan(
        broker=broker,
        network=draw_network(rng),
        topics=topics,
        records=records,
        clients=tuple(clients),
        steps=draw_steps(
            rng,
            scene,
            count=rng.choice((0, *(rng.randint(1, 16) for _ in range(4)))),
            from_s=0.05,
            to_s=to_s,
        ),
    )
    return _tricked(rng, plan) if rng.random() < TRICKED else _with_time_for_queues(plan)


def _tricked(rng: random.Random, plan: Plan) -> Plan:
    """Draw few other faults, and one for its first sender while that is busy."""
    trick = rng.choice(list(TRICKS))
    plan = _with_time_for_queues(replace(plan, records=300))
    first, *others = plan.clients
    at_s, for_s = round(rng.uniform(0.3, 1.5), 3), round(rng.uniform(1.2, 4), 3)
    if trick == "refuse the first":
        at_s = 0.0
    steps = [*plan.steps[:2], Step(at_s, trick, {"sender": first.name, "for_s": for_s})]
    return replace(
        plan,
        clients=(_pressed(rng, first, trick, plan), *others),
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
    )


def _pressed(rng: random.Random, client: PlannedClient, trick: str, plan: Plan) -> PlannedClient:
    """Draw a sender with several small batches per partition in flight, or one that awaits each.

    With short timeouts it sends half of what brokers can acknowledge that wait for all replicas, so
    that a queue drains after a fault. A request in flight waits for those before it.
    """
    steady_s = 0.06
    options = {**PRESSED, **TRICKS[trick]}
    if "replicate" in plan.broker and trick == "leave in doubt":
        replicated_s = HOPS * plan.network.get("max_delay_s", 0.0)
        steady_s = max(steady_s, 2 * replicated_s)
        timeout_ms = round(2 * IN_FLIGHT * replicated_s * 1_000)
        options["request_timeout_ms"] = max(options["request_timeout_ms"], timeout_ms)
    arguments = {
        "style": "send_and_wait" if trick == "refuse" else "send",
        "payload_bytes": LARGEST_PAYLOAD_BYTES,
        "pause_s": steady_s if trick == "leave in doubt" else rng.choice([0.01, 0.03]),
        "keyed": False,
        "options": options,
    }
    return replace(client, arguments=arguments)


def _unhurried(client: PlannedClient, at_least_ms: int = 30_000) -> PlannedClient:
    """Raise short timeouts: where batches are rejected as too large, each record takes its own
    requests, and records with a short timeout would expire in the queue."""
    options = client.arguments["options"]
    options = {**options, "delivery_timeout_ms": max(options["delivery_timeout_ms"], at_least_ms)}
    return replace(client, arguments={**client.arguments, "options": options})


def _with_time_for_queues(plan: Plan) -> Plan:
    """Raise timeouts that the queue of a sender outlasts without any fault: the sender buffers
    records faster than brokers acknowledge them, and the records would expire in the queue."""
    clients = (
        _unhurried(client, round(_longest_queue_s(client, plan) * 1_000))
        if client.kind == "sends" and client.arguments["style"] != "send_and_wait"
        else client
        for client in plan.clients
    )
    return replace(plan, clients=tuple(clients))


def _longest_queue_s(client: PlannedClient, plan: Plan) -> float:
    """Return the time in which all records of a plan, sent by this client to one partition, are
    acknowledged.

    A request has one batch per partition. More requests in flight save the round trip only:
    a broker handles the next request of a connection after it responded to the one before.
    """
    options = client.arguments["options"]
    acks = options.get("acks", "all")
    if acks == 0:
        return 0.0
    record_bytes = client.arguments["payload_bytes"] + RECORD_OVERHEAD_BYTES
    batches = plan.records / max(1, options["batch_size_bytes"] // record_bytes)
    hops = 2 / options["max_in_flight_requests_per_connection"]
    if acks == "all" and "replicate" in plan.broker:
        hops += HOPS
    return float(batches * hops * plan.network.get("max_delay_s", 0.0))


def _patient(client: PlannedClient) -> PlannedClient:
    """Brokers without ApiVersions take 2 s for each connection."""
    options = {
        **client.arguments["options"],
        "connections_max_idle_ms": 540_000,
    }
    if client.kind == "sends":
        options["max_block_ms"] = 20_000
    return replace(client, arguments={**client.arguments, "options": options})


def _sender(rng: random.Random, number: int) -> PlannedClient:
    options = draw_client(rng) | {
        "compression_type": rng.choice(COMPRESSIONS),
        "linger_ms": rng.choice([0, 5, 5, 100]),
        "batch_size_bytes": rng.choice([200, 2_000, 16_384]),
        "delivery_timeout_ms": rng.choice([3_000, 8_000, 30_000, 30_000]),
        "max_in_flight_requests_per_connection": rng.choice([1, 2, 5]),
    }
    if options["delivery_timeout_ms"] < 10_000:
        options["request_timeout_ms"] = 1_000
    acks = rng.choices(["all", 1, 0], [8, 1, 1])[0]
    if acks != "all":
        options["acks"] = acks
    elif rng.random() < 0.15:
        options["enable_idempotence"] = False
    if rng.random() < 0.2:
        options |= {"buffer_memory_bytes": 20_000, "max_block_ms": 3_000, "batch_size_bytes": 2_000}
    return PlannedClient(
        f"sender{number}",
        f"10.0.1.{number + 1}",
        "sends",
        {
            "style": rng.choice(STYLES),
            "payload_bytes": rng.choice(
                [0, 20, LARGEST_PAYLOAD_BYTES, LARGEST_PAYLOAD_BYTES, TOO_LARGE_BYTES]
            ),
            "pause_s": rng.choice([0.0, 0.02, 0.05, 0.2]),
            "keyed": rng.random() < 0.3,
            "options": options,
        },
    )


def _readers(rng: random.Random) -> list[PlannedClient]:
    """Draw a reader without a group, or the members of a group."""
    if rng.random() < 0.6:
        arguments = {"group": None, "options": draw_reader(rng)}
        return [PlannedClient("reader", "10.0.2.1", "reads", arguments)]
    strategy, count = rng.choice(STRATEGIES), rng.randint(1, 3)
    return [
        PlannedClient(
            f"member{number}",
            f"10.0.2.{number + 1}",
            "reads",
            {"group": GROUP, "strategy": strategy, "options": draw_reader(rng)},
        )
        for number in range(count)
    ]


def guarantees(plan: Plan) -> Guarantees:
    readers = plan.of("reads")
    groups = {client.arguments["group"] for client in readers} - {None}
    return Guarantees(
        numbers=has_idempotence(plan.broker),
        complete_readers=tuple(c.name for c in readers if c.arguments["group"] is None),
        complete_groups=tuple(sorted(groups)),
    )


async def overtake(harness: Harness, sender: str, for_s: float) -> None:
    """Delay the next request of a sender, and move the leaders of its partitions meanwhile."""
    broker = harness.broker

    def inject(seen: SeenRequest) -> Delay | None:
        if not seen.client_id.startswith(f"{sender}."):
            return None
        held_up.remove()
        for partition in range(broker.topics[TOPIC]):
            others = [
                node
                for node in broker.isr(TOPIC, partition)
                if node != seen.node_id and node in broker.live_nodes
            ]
            if others:
                broker.move_leader(TOPIC, partition, others[0])
        return Delay(for_s)

    held_up = broker.on(ApiKey.PRODUCE, inject)
    await anyio.sleep(for_s)
    held_up.remove()


async def deny(harness: Harness, sender: str, for_s: float) -> None:
    """Let a sender's requests arrive without a response; then deny one write."""
    (client,) = (each for each in harness.plan.of("sends") if each.name == sender)

    def inject(seen: SeenRequest) -> Answer | None:
        if not seen.client_id.startswith(f"{sender}."):
            return None
        denied.remove()
        return Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    network = harness.world.network
    network.sever(BROKER_HOST, client.host, one_way=True)
    await anyio.sleep(for_s)
    denied = harness.broker.on(ApiKey.PRODUCE, inject)
    network.heal(BROKER_HOST, client.host)
    # It ends when the rule applies, not when the response arrives.
    await anyio.sleep(UNDER_WAY_S)
    denied.remove()


async def answer(harness: Harness, code: ErrorCode, sender: str, for_s: float) -> None:
    """Answer all requests of a sender with an error, for longer than its delivery timeout; if
    the outcome is unknown by the code, all records are written."""
    answer_once = Answer(code, carried_out=code is ErrorCode.REQUEST_TIMED_OUT)

    def inject(seen: SeenRequest) -> Answer | None:
        return answer_once if seen.client_id.startswith(f"{sender}.") else None

    answered = harness.broker.on(ApiKey.PRODUCE, inject)
    await anyio.sleep(2 * EXPIRES_S + for_s)
    answered.remove()


async def refuse_first(harness: Harness, sender: str, for_s: float) -> None:
    """A log that does not know a producer yet rejects its first batch for a moment, no other."""

    def inject(seen: SeenRequest) -> Answer | None:
        if not seen.client_id.startswith(f"{sender}."):
            return None
        refused.remove()
        return Answer(ErrorCode.NOT_ENOUGH_REPLICAS)

    refused = harness.broker.on(ApiKey.PRODUCE, inject)
    await anyio.sleep(for_s)
    refused.remove()


async def run(harness: Harness) -> None:
    harness.on("refuse the first", partial(refuse_first, harness))
    harness.on("leave in doubt", partial(answer, harness, ErrorCode.REQUEST_TIMED_OUT))
    harness.on("refuse", partial(answer, harness, ErrorCode.NOT_ENOUGH_REPLICAS))
    harness.on("overtake", partial(overtake, harness))
    harness.on("deny what is written", partial(deny, harness))
    await harness.make_topics()
    async with anyio.create_task_group() as readers:
        for client in harness.plan.of("reads"):
            readers.start_soon(read, harness, client)
        async with anyio.create_task_group() as group:
            group.start_soon(harness.run_steps)
            for client in harness.plan.of("sends"):
                group.start_soon(Sender(harness, client).run)
        if any(client.arguments["options"].get("acks") == 0 for client in harness.plan.of("sends")):
            # It is unknown which records are still in flight.
            await anyio.sleep(UNDER_WAY_S)
        if harness.plan.of("reads"):
            await harness.until_consumed()
        await harness.until_replicated()
        readers.cancel_scope.cancel()


class Sender:
    """One application that sends its share of the records in its way."""

    def __init__(self, harness: Harness, client: PlannedClient) -> None:
        self.harness = harness
        self.client = client
        self.style: str = client.arguments["style"]
        self.rng = harness.rng(client.name)
        self.left = max(1, harness.plan.records // len(harness.plan.of("sends")))
        self.lives = 0

    async def run(self) -> None:
        while self.left > 0:
            self.lives += 1
            name = f"{self.client.name}.{self.lives}"
            producer = with_runtime(
                Producer(
                    client_id=name,
                    **self.harness.client_options,
                    **self.client.arguments["options"],
                ),
                self.harness.runtime(self.client.host),
            )
            try:
                async with self.harness.recorder.producer(producer, name) as sender:
                    await self.live(sender)
            except DeliveriesFailed as error:
                self.harness.note(f"{name}: {error}")
            except KafkaError as error:  # it could not start
                self.harness.note(f"{name}: {error}")
                self.left -= 1

    async def live(self, sender: Any) -> None:
        ends_at = float("inf")
        lives_s = self.rng.uniform(0.5, 1.5) if self.style == "short_lived" else ends_at
        ways: dict[str, Callable[[Any], Awaitable[None]]] = {
            "send": self.send,
            "send_and_wait": self.send_and_wait,
            "send_many": self.send_many,
            "send_nowait": self.send_nowait,
            "cancelled": self.cancelled,
            "short_lived": self.send,
        }
        while self.left > 0 and self.harness.now() < ends_at:
            try:
                await ways[self.style](sender)
            except KafkaError as error:
                self.harness.note(f"{sender.name}: {error}")
            # From its first record on: brokers before 0.10 take seconds to be recognized.
            ends_at = min(ends_at, self.harness.now() + lives_s)
            await anyio.sleep(self.rng.uniform(0, 2 * self.client.arguments["pause_s"]))

    def value(self, sender: Any) -> bytes:
        self.left -= 1
        size = self.rng.randint(0, self.client.arguments["payload_bytes"])
        value: bytes = sender.value(self.rng.randbytes(size))
        return value

    def key(self) -> bytes | None:
        return b"%d" % self.rng.randrange(10) if self.client.arguments["keyed"] else None

    async def send(self, sender: Any) -> None:
        dated = {}
        # Records have timestamps since the releases that have ApiVersions.
        if self.rng.random() < 0.2 and has_api_versions(self.harness.plan.broker):
            dated["timestamp_ms"] = LONG_AGO_MS + self.rng.randrange(10_000)
        await sender.send(TOPIC, self.value(sender), key=self.key(), **dated)

    async def send_and_wait(self, sender: Any) -> None:
        await sender.send_and_wait(TOPIC, self.value(sender), key=self.key())

    async def send_many(self, sender: Any) -> None:
        count = min(MANY, self.left)
        await sender.send_many(TOPIC, [self.value(sender) for _ in range(count)])
        if self.rng.random() < 0.2:
            await sender.flush()

    async def send_nowait(self, sender: Any) -> None:
        await sender.partitions_for(TOPIC)
        try:
            sender.send_nowait(TOPIC, self.value(sender), key=self.key())
        except BufferFull:
            await anyio.sleep(0.5)

    async def cancelled(self, sender: Any) -> None:
        """Cancel waits now and then, at any moment."""
        after_s = self.rng.choice([0.0, 0.001, 0.01, 0.1, 1.0, 5.0])
        with anyio.move_on_after(self.rng.uniform(0, after_s)):
            await self.send_and_wait(sender)


async def read(harness: Harness, client: PlannedClient) -> None:
    rng = harness.rng(client.name)
    options: dict[str, Any] = client.arguments["options"]
    if client.arguments["group"] is not None:
        strategy = client.arguments["strategy"]
        options = (
            options | MEMBER | {"group_id": GROUP, "partition_assignment_strategy": [strategy]}
        )
    consumer = with_runtime(
        Consumer(
            TOPIC,
            client_id=client.name,
            **harness.client_options,
            auto_offset_reset="earliest",
            **options,
        ),
        harness.runtime(client.host),
    )
    async with harness.recorder.consumer(consumer, client.name) as reader:
        while True:
            await reader.getmany(timeout_ms=500)
            if rng.random() < 0.2:
                with suppress(KafkaError), anyio.move_on_after(rng.uniform(0, IMPATIENT_S)):
                    await reader.end_offsets((TOPIC, 0))


SCENARIO = Scenario("producing", draw, run, guarantees, share=25)
