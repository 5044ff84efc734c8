"""Corner cases of the consumer protocol (KIP-848): bugs of other clients, each caused on purpose.

The seed draws the corner case and its details.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import Any

import anyio

from aiokafkawire.broker import Answer, Delay, SeenRequest
from aiokafkawire.config.consumer_config import CLASSIC_PROTOCOL_OPTIONS
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import GroupFailed, KafkaError
from aiokafkawire.runtime import Address, with_runtime
from aiokafkawire.types import TopicPartition
from aiokafkawire.wire import ApiKey, ErrorCode
from verify.invariants.checker import Guarantees
from verify.simulation.harness import Harness
from verify.simulation.plan import BROKER_HOST, Plan
from verify.simulation.scenario import Scenario
from verify.simulation.scenarios.corners.corner_case import (
    GROUP,
    HOST,
    OTHER_HOST,
    P0,
    P1,
    TOPIC,
    CornerCase,
    RequestLog,
    committed_offsets,
    fill,
)
from verify.simulation.scenarios.group_workers import make_consumer
from verify.simulation.shared_draws import draw_network

__all__ = ("CORNERS", "SCENARIO")

OTHER = "invoices"
MOST_LOOKUPS = 15
"""Lookups of a name in 3 s, with a backoff that begins at 0.1 s and doubles."""

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
INTERVAL_S = 0.3
MOST_RETRIES = 8
"""Requests in 1.5 s, with a backoff that begins at 0.1 s and doubles."""
MEMBER: Mapping[str, Any] = {
    "group_id": GROUP,
    "group_protocol": "consumer",
    "enable_auto_commit": False,
    **CLASSIC_PROTOCOL_OPTIONS,
}
BROKER = {
    "nodes": 3,
    "auto_create_topics": False,
    "group_consumer_session_timeout_ms": 3_000,
    "group_consumer_min_session_timeout_ms": 100,
    "group_consumer_heartbeat_interval_ms": 300,
    "group_consumer_min_heartbeat_interval_ms": 100,
}


def make_member(harness: Harness, name: str, host: str, *topics: str, **options: Any) -> Any:
    """Create a recorded member of the consumer protocol."""
    return make_consumer(harness, name, host, *topics, **{**MEMBER, **options})


async def take(reader: Any, count: int) -> dict[TopicPartition, int]:
    """Poll until this number of records was given; return the first offset of each partition."""
    first: dict[TopicPartition, int] = {}
    while count > 0:
        for tp, records in (await reader.getmany(timeout_ms=300)).items():
            first.setdefault(tp, records.first_offset)
            count -= len(records)
    return first


async def poll_for(reader: Any, seconds: float) -> list[TopicPartition]:
    """Poll for a time; return the partitions of all records."""
    found: list[TopicPartition] = []
    with anyio.move_on_after(seconds):
        while True:
            found += await reader.getmany(timeout_ms=100)
    return found


class SlowListener(RebalanceListener):
    """Listener whose revocation lasts for a time, in which it commits and asks for positions."""

    def __init__(self, harness: Harness, for_s: float) -> None:
        self.reader: Any = None
        self.assigned: list[TopicPartition] = []
        self.revoking = False
        self._harness = harness
        self._for_s = for_s

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.assigned += partitions

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.revoking = True
        await anyio.sleep(self._for_s)
        try:
            for tp in partitions:
                await self.reader.position(tp)
            await self.reader.commit()
        except KafkaError as error:
            self._harness.violated(6, f"no position or commit during a revocation: {error}")
        self.revoking = False


def draw_late(rng: random.Random) -> dict[str, Any]:
    return {"by_s": round(rng.uniform(0.4, 1.5), 3), "times": rng.randint(1, 4)}


# --- leaving and rejoining ---


async def rejoin_before_late_responses(harness: Harness) -> None:
    """A member unsubscribes and subscribes again while a heartbeat is in flight (KAFKA-19335)."""
    await fill(harness, 3)
    async with make_member(harness, "reader", HOST, TOPIC) as reader:
        await take(reader, 3)
        harness.broker.on(HEARTBEAT, Delay(harness.plan.options["by_s"]), times=1)
        await anyio.sleep(1.5 * INTERVAL_S)
        reader.unsubscribe()
        reader.subscribe([TOPIC])
        await harness.bounded("reading again", 6, take(reader, 3))
        await reader.commit()


async def close_while_joining(harness: Harness) -> None:
    """A member is closed before the response to its first heartbeat (KAFKA-17116)."""
    harness.broker.on(HEARTBEAT, Delay(harness.plan.options["by_s"]), times=1)
    async with make_member(harness, "reader", HOST, TOPIC):
        await anyio.sleep(0.3)
    # Its session would last longer.
    await anyio.sleep(harness.plan.options["by_s"])
    state: Any = harness.broker._running.group_coordinator.get(GROUP)
    if state is not None and state.data.members:
        harness.violated(10, "the member is still in the group")


async def close_without_coordinator(harness: Harness) -> None:
    """A member is closed with a commit in flight while no node responds (KAFKA-19357)."""
    await fill(harness, 3)
    reader = make_member(harness, "reader", HOST, TOPIC, close_timeout_ms=1_000)
    async with reader, anyio.create_task_group() as tasks:
        await take(reader, 3)
        harness.recorder.fault("no node responds")
        for node in harness.broker.nodes:
            harness.broker.pause(node)

        async def commit() -> None:
            try:
                await reader.commit()
            except KafkaError as error:
                harness.note(f"the commit failed: {error}")

        tasks.start_soon(commit)
        await anyio.sleep(0.1)
        await harness.bounded("stop", 1, reader.stop())
    await harness.heal()


async def unsubscribe_without_permission(harness: Harness) -> None:
    """The coordinator refuses the heartbeat with which a member leaves (KAFKA-19300): the member
    can subscribe again."""
    await fill(harness, 3)
    async with make_member(harness, "reader", HOST, TOPIC) as reader:
        await take(reader, 3)
        harness.broker.on(HEARTBEAT, Answer(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=1)
        reader.unsubscribe()
        await anyio.sleep(1)
        reader.subscribe([TOPIC])
        with anyio.move_on_after(6) as scope:
            await take(reader, 3)
        if scope.cancelled_caught:
            harness.violated(11, "the member does not join again")


async def assignment_after_unsubscribing(harness: Harness) -> None:
    """A member gets more partitions while its revocation runs, because it unsubscribed
    (KAFKA-20428)."""
    listener = SlowListener(harness, 1.5)
    async with make_member(harness, "reader", HOST) as reader:
        listener.reader = reader
        async with make_member(harness, "other", OTHER_HOST, TOPIC) as other:
            reader.subscribe([TOPIC], listener=listener)
            with anyio.move_on_after(3):
                while True:
                    await reader.getmany(timeout_ms=100)
                    await other.getmany(timeout_ms=100)
            reader.unsubscribe()
            await anyio.sleep(INTERVAL_S)
            before = list(listener.assigned)
        await anyio.sleep(2)
        if listener.assigned != before:
            harness.violated(8, f"assigned after unsubscribing: {listener.assigned}")


# --- epochs ---


async def stale_epoch_in_offset_fetch(harness: Harness) -> None:
    """OffsetFetch fails with STALE_MEMBER_EPOCH: the member reads from the committed offset, not
    from the reset policy, and does not send the request at once again (KAFKA-20765)."""
    await fill(harness, 6)
    async with make_consumer(harness, "first", HOST, group_id=GROUP) as first:
        first.assign(P0)
        await first.commit({P0: 2})
    requests = RequestLog(harness, ApiKey.OFFSET_FETCH, "reader")
    error = Answer(ErrorCode.STALE_MEMBER_EPOCH)
    stale = harness.broker.on(ApiKey.OFFSET_FETCH, error)
    options = {"auto_offset_reset": "latest"}
    async with make_member(harness, "reader", OTHER_HOST, TOPIC, **options) as reader:
        with anyio.move_on_after(8) as scope:
            await poll_for(reader, harness.plan.options["by_s"])
            stale.remove()
            count = len(requests)
            found = await take(reader, 4)
            if found[P0] != 2:
                harness.violated(5, f"the member began at {found[P0]}, committed is 2")
        if scope.cancelled_caught:
            harness.violated(11, "the committed offset was not found")
    if count > MOST_RETRIES:
        harness.violated(12, f"{count} OffsetFetch requests in a row")


async def stale_epoch_in_commit(harness: Harness) -> None:
    """OffsetCommit fails with STALE_MEMBER_EPOCH: it is sent again with the next epoch."""
    await fill(harness, 3)
    async with make_member(harness, "reader", HOST, TOPIC) as reader:
        await take(reader, 3)
        error = Answer(ErrorCode.STALE_MEMBER_EPOCH)
        harness.broker.on(ApiKey.OFFSET_COMMIT, error, times=harness.plan.options["times"])
        try:
            await harness.bounded("commit", 5, reader.commit())
        except KafkaError as error_:
            harness.violated(6, f"a commit with an old epoch failed: {error_}")


async def epoch_changes_while_leaving(harness: Harness) -> None:
    """A response changes the epoch of a member while its last revocation runs: the commit in it
    has the new epoch (librdkafka #4672). Kafka 4.0 accepts no other."""
    await fill(harness, 3)
    listener = SlowListener(harness, 1.5)
    late: list[SeenRequest] = []

    def delay_once(seen: SeenRequest) -> Delay | None:
        if late or seen.client_id != "reader":
            return None
        late.append(seen)
        return Delay(1.2)

    async with (
        make_member(harness, "other", OTHER_HOST, OTHER) as other,
        make_member(harness, "reader", HOST) as reader,
    ):
        listener.reader = reader
        reader.subscribe([TOPIC], listener=listener)
        await take(reader, 3)
        await poll_for(reader, 2 * INTERVAL_S)
        harness.broker.on(HEARTBEAT, delay_once)
        await harness.until(lambda: bool(late), "a late heartbeat")
        other.subscribe([TOPIC, OTHER])
        await poll_for(other, INTERVAL_S)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.stop)
            await poll_for(other, 3)


async def fenced_during_revocation(harness: Harness) -> None:
    """A member is fenced while its revocation runs: it sends no heartbeat until the listener has
    returned (KAFKA-16251)."""
    heartbeats = RequestLog(harness, HEARTBEAT, "reader")

    class Fenced(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            error = Answer(ErrorCode.FENCED_MEMBER_EPOCH)
            harness.recorder.fault("a member is fenced")
            harness.broker.on(HEARTBEAT, error, times=1)
            await anyio.sleep(2 * INTERVAL_S)
            sent = len(heartbeats)
            await anyio.sleep(4 * INTERVAL_S)
            if len(heartbeats) > sent:
                harness.violated(8, f"{len(heartbeats) - sent} heartbeats of a fenced member")

        async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
            pass

    listener = Fenced()
    async with make_member(harness, "reader", HOST) as reader:
        reader.subscribe([TOPIC, OTHER], listener=listener)
        await harness.until(lambda: bool(reader.assignment()), "an assignment")
        reader.subscribe([OTHER], listener=listener)
        await poll_for(reader, 5)
        topics = {tp.topic for tp in reader.assignment()}
        if topics != {OTHER}:
            harness.violated(8, f"the member reads {topics} after it was fenced")


# --- topics and positions ---


async def fetch_of_offsets_without_subscription(harness: Harness) -> None:
    """A member unsubscribes while OffsetFetch is in flight, and asks for offsets of topics whose
    ids it does not know (KAFKA-20040)."""
    await fill(harness, 3)
    async with make_member(harness, "reader", HOST, TOPIC) as reader:
        harness.broker.on(ApiKey.OFFSET_FETCH, Delay(harness.plan.options["by_s"]), times=1)
        await poll_for(reader, 0.3)
        reader.unsubscribe()
        try:
            await reader.committed((OTHER, 0))
            await poll_for(reader, 1)
        except GroupFailed as error:
            harness.violated(12, f"offsets without a subscription: {error}")
        except KafkaError as error:
            if getattr(error, "code", None) == ErrorCode.UNKNOWN_TOPIC_ID:
                harness.violated(12, f"offsets without a subscription: {error}")


async def smaller_subscription(harness: Harness) -> None:
    """A subscription shrinks, and the coordinator is late: no record of the other topic is given
    (KAFKA-19356)."""
    await fill(harness, 3)
    async with make_member(harness, "reader", HOST, TOPIC, OTHER) as reader:
        await take(reader, 3)
        late = harness.broker.on(HEARTBEAT, Delay(harness.plan.options["by_s"]))
        reader.subscribe([OTHER])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fill, harness, 4)
            found = await poll_for(reader, 4)
        late.remove()
        await anyio.sleep(2)
    if P0 in found or P1 in found:
        harness.violated(8, "records of a topic without a subscription")


async def positions_during_revocation(harness: Harness) -> None:
    """A listener asks for positions of the partitions that are revoked, and commits them
    (KAFKA-19781)."""
    await fill(harness, 3)
    listener = SlowListener(harness, 0.2)
    async with make_member(harness, "reader", HOST) as reader:
        listener.reader = reader
        reader.subscribe([TOPIC, OTHER], listener=listener)
        await take(reader, 3)
        reader.subscribe([OTHER], listener=listener)
        await poll_for(reader, 2)


async def commit_after_revocation(harness: Harness) -> None:
    """A commit is refused until its partition is revoked: it is not sent again afterwards."""
    await fill(harness, 3)
    async with make_member(harness, "reader", HOST, TOPIC, OTHER) as reader:
        await take(reader, 3)
        harness.recorder.fault("the coordinator loads")
        error = Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        loading = harness.broker.on(ApiKey.OFFSET_COMMIT, error)

        async def commit() -> None:
            try:
                await reader.commit()
            except KafkaError as failure:
                harness.note(f"the commit failed: {failure}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit)
            await anyio.sleep(0.1)
            reader.subscribe([OTHER])
            await poll_for(reader, 4)
            loading.remove()
            await poll_for(reader, 3)
    if P0 in committed_offsets(harness):
        harness.violated(7, "a partition was committed after its revocation")
    await harness.heal()


async def lag_after_failed_lookup(harness: Harness) -> None:
    """ListOffsets fails: the position and the lag are known a little later (KAFKA-20131)."""
    await fill(harness, 3)
    error = Answer(ErrorCode.LEADER_NOT_AVAILABLE)
    harness.broker.on(ApiKey.LIST_OFFSETS, error, times=harness.plan.options["times"])
    async with make_member(harness, "reader", HOST, TOPIC) as reader:
        await harness.until(lambda: bool(reader.assignment()), "an assignment")
        with anyio.move_on_after(6) as scope:
            await take(reader, 3)
            await reader.end_offsets(P0)
        if scope.cancelled_caught or reader.lag(P0) != 0:
            harness.violated(11, "the lag is not known after a failed ListOffsets")


async def callback_that_is_cancelled(harness: Harness) -> None:
    """on_partitions_assigned is cancelled: records follow nevertheless (KAFKA-18160)."""
    await fill(harness, 3)

    class Stuck(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            await anyio.sleep_forever()

    options = {"rebalance_callback_timeout_ms": 1_000}
    async with make_member(harness, "reader", HOST, **options) as reader:
        reader.subscribe([TOPIC], listener=Stuck())
        with anyio.move_on_after(8) as scope:
            await take(reader, 3)
        if scope.cancelled_caught:
            harness.violated(11, "no records after a cancelled callback")


async def bootstrap_without_names(harness: Harness) -> None:
    """Names of the bootstrap servers are unknown at first: the client waits between attempts
    (KAFKA-20854)."""
    network = harness.world.network
    network.name("kafka", BROKER_HOST)
    network.fail_name("kafka")
    harness.recorder.fault("a name is unknown")
    port = next(iter(harness.broker.nodes.values())).port
    lookups: list[float] = []
    resolve = network.resolve

    async def count(host: str, name: str, port: int) -> list[Address]:
        lookups.append(harness.now())
        return await resolve(host, name, port)

    network.resolve = count  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:

        async def heal() -> None:
            await anyio.sleep(3)
            if len(lookups) > MOST_LOOKUPS:
                harness.violated(12, f"{len(lookups)} lookups in 3 s of an unknown name")
            network.heal_name("kafka")
            harness.recorder.healed()

        tasks.start_soon(heal)
        options = {**MEMBER, "client_id": "reader", "auto_offset_reset": "earliest"}
        options |= {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 10}
        consumer = Consumer(TOPIC, bootstrap_servers=f"kafka:{port}", **options)
        consumer = with_runtime(consumer, harness.runtime(HOST))
        async with harness.recorder.consumer(consumer, "reader") as reader:
            await fill(harness, 2)
            await harness.bounded("reading", 10, take(reader, 2))


CORNERS: Mapping[str, CornerCase] = {
    "rejoin before late responses": CornerCase(rejoin_before_late_responses, draw_late),
    "close while joining": CornerCase(close_while_joining, draw_late),
    "close without coordinator": CornerCase(close_without_coordinator),
    "unsubscribe without permission": CornerCase(unsubscribe_without_permission),
    "assignment after unsubscribing": CornerCase(assignment_after_unsubscribing, topics={TOPIC: 2}),
    "stale epoch in offset fetch": CornerCase(stale_epoch_in_offset_fetch, draw_late),
    "stale epoch in commit": CornerCase(stale_epoch_in_commit, draw_late),
    "epoch changes while leaving": CornerCase(
        epoch_changes_while_leaving, broker={"as_of": "4.0"}, topics={TOPIC: 1, OTHER: 1}
    ),
    "fenced during revocation": CornerCase(fenced_during_revocation, topics={TOPIC: 1, OTHER: 1}),
    "offsets without subscription": CornerCase(
        fetch_of_offsets_without_subscription, draw_late, topics={TOPIC: 1, OTHER: 1}
    ),
    "smaller subscription": CornerCase(
        smaller_subscription, draw_late, topics={TOPIC: 1, OTHER: 1}
    ),
    "positions during revocation": CornerCase(
        positions_during_revocation, topics={TOPIC: 1, OTHER: 1}
    ),
    "commit after revocation": CornerCase(commit_after_revocation, topics={TOPIC: 1, OTHER: 1}),
    "lag after failed lookup": CornerCase(lag_after_failed_lookup, draw_late),
    "callback that is cancelled": CornerCase(callback_that_is_cancelled),
    "bootstrap without names": CornerCase(bootstrap_without_names),
}
"""Corner cases by name."""


def draw(rng: random.Random) -> Plan:
    name = rng.choice(list(CORNERS))
    corner = CORNERS[name]
    return Plan(
        broker={**BROKER, **corner.broker},
        network=draw_network(rng),
        topics=corner.topics,
        options={"corner": name, **corner.draw(rng)},
    )


async def run(harness: Harness) -> None:
    await harness.make_topics()
    await CORNERS[harness.plan.options["corner"]].run(harness)


def guarantees(plan: Plan) -> Guarantees:
    return Guarantees(resets=CORNERS[plan.options["corner"]].resets)


SCENARIO = Scenario("protocol_corners", draw, run, guarantees, share=60, limit_s=600.0)
