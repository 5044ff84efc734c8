"""Corner cases of groups: commits, coordinators, membership and transactions."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from aiokafkawire.broker import Answer, Delay, SeenRequest
from aiokafkawire.errors import KafkaError
from aiokafkawire.wire import ApiKey, ErrorCode
from verify.simulation.harness import Harness
from verify.simulation.scenarios.corners.corner_case import (
    GROUP,
    HOST,
    OTHER_HOST,
    P0,
    P1,
    TOPIC,
    CornerCase,
    RequestLog,
    Throttled,
    committed_offsets,
    fill,
)
from verify.simulation.scenarios.group_workers import make_consumer, make_producer

__all__ = ("CORNERS",)

COPIES = "copies"
BY_HAND: Mapping[str, Any] = {"group_id": GROUP, "enable_auto_commit": False}


async def until(reader: Any, done: Callable[[], bool]) -> None:
    """Keep polling."""
    while not done():
        await reader.getmany(timeout_ms=100)


# --- commits ---


async def overlapping_commits(harness: Harness) -> None:
    """A commit is requested while an older one is in flight: each returns when it is stored."""
    await fill(harness, 12)
    async with make_consumer(harness, "reader", HOST, TOPIC, **BY_HAND) as reader:
        given = 0
        while given < 12:
            given += sum(map(len, (await reader.getmany(timeout_ms=500)).values()))
        harness.broker.on(ApiKey.OFFSET_COMMIT, Delay(harness.plan.options["by_s"]), times=2)

        async def commit(offset: int) -> None:
            await reader.commit({P0: offset})
            found = committed_offsets(harness).get(P0, -1)
            if found < offset:
                harness.violated(6, f"{offset} was acknowledged, but {found} is stored")

        async with anyio.create_task_group() as commits:
            for offset in harness.plan.options["offsets"]:
                commits.start_soon(commit, offset)
                await anyio.sleep(0.1)
    if committed_offsets(harness)[P0] != harness.plan.options["offsets"][-1]:
        harness.violated(6, f"{committed_offsets(harness)[P0]} is stored at the end")


def draw_commits(rng: random.Random) -> dict[str, Any]:
    count = rng.randint(2, 4)
    return {
        "by_s": round(rng.uniform(0.3, 1.5), 3),
        "offsets": sorted(rng.sample(range(1, 13), count)),
    }


async def offset_fetch_during_coordinator_move(harness: Harness) -> None:
    """A client outside the group requests its offsets while its coordinator moves."""
    await fill(harness, 3)
    async with make_consumer(harness, "reader", HOST, **BY_HAND) as reader:
        reader.assign(P0)
        await reader.commit({P0: 1})
        for node in harness.plan.options["to"]:
            harness.broker.move_coordinator(GROUP, node)
            began = harness.now()
            if harness.plan.options["commits"]:
                await reader.commit({P0: 2})
            else:
                await reader.committed(P0)
            if harness.now() > began + 4:
                harness.violated(
                    11,
                    f"{harness.now() - began:.1f} s until a response after the coordinator moved",
                )


def draw_moves(rng: random.Random) -> dict[str, Any]:
    return {"to": [rng.randint(1, 3) for _ in range(5)], "commits": rng.random() < 0.4}


# --- places ---


async def coordinator_moves_while_idle(harness: Harness) -> None:
    """Members can learn it from heartbeats only: they find the coordinator, and stay in the
    group."""
    names = ("member-0", "member-1")
    asked = [RequestLog(harness, ApiKey.HEARTBEAT, name) for name in names]
    joined = [RequestLog(harness, ApiKey.JOIN_GROUP, name) for name in names]
    async with (
        make_consumer(harness, names[0], HOST, TOPIC, **BY_HAND) as one,
        make_consumer(harness, names[1], OTHER_HOST, TOPIC, **BY_HAND) as two,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(read_on, one)
        tasks.start_soon(read_on, two)
        await harness.until(lambda: bool(one.assignment() and two.assignment()), "two members")
        await anyio.sleep(1)
        joins = sum(map(len, joined))
        others = [
            node for node in harness.broker.nodes if node != harness.broker.coordinator(GROUP)
        ]
        harness.broker.move_coordinator(GROUP, harness.chance.choice(others))
        await anyio.sleep(8)
        if sum(map(len, joined)) > joins:
            harness.violated(8, "members rejoined because their coordinator moved")
        for each in asked:
            wrong = [seen for seen in each.seen if wait_for_coordinator_move(seen)]
            if len(wrong) > 3:
                harness.violated(12, f"{len(wrong)} heartbeats went to the former coordinator")
        tasks.cancel_scope.cancel()


def wait_for_coordinator_move(seen: SeenRequest) -> bool:
    return getattr(seen.response, "error_code", 0) == ErrorCode.NOT_COORDINATOR


async def read_on(reader: Any) -> None:
    while True:
        await reader.getmany(timeout_ms=300)


async def static_member_restarts(harness: Harness) -> None:
    """A static member restarts: its partitions wait for it, and the others see no rebalance."""
    options = {**BY_HAND, "session_timeout_ms": 12_000}
    joined = RequestLog(harness, ApiKey.JOIN_GROUP, "stays")
    left = RequestLog(harness, ApiKey.LEAVE_GROUP, "restarted.1")

    async def live(number: int, done: Callable[[], Awaitable[None]]) -> None:
        name = f"restarted.{number}"
        static = {**options, "group_instance_id": "restarted"}
        async with make_consumer(harness, name, OTHER_HOST, TOPIC, **static) as reader:
            await until(reader, lambda: bool(reader.assignment()))
            await done()

    async with (
        make_consumer(harness, "stays", HOST, TOPIC, **options, group_instance_id="stays") as stays,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(read_on, stays)
        await harness.until(lambda: bool(stays.assignment()), "one member")

        async def settle() -> None:
            await harness.until(lambda: len(stays.assignment()) == 1, "two members")
            await anyio.sleep(1)

        await live(1, settle)
        joins = len(joined)
        await anyio.sleep(harness.plan.options["for_s"])
        await live(2, settle)
        if len(left) or len(joined) > joins:
            harness.violated(8, "the group rebalanced because a static member restarted")
        tasks.cancel_scope.cancel()


def draw_restart(rng: random.Random) -> dict[str, Any]:
    return {"for_s": round(rng.uniform(0.1, 5), 3)}


ASKS_AFTER_S = 1.5


async def rebalance_waits_for_busy_member(harness: Harness) -> None:
    """A member works for longer than the request timeout: a joining member waits, while its other
    requests to the coordinator are answered.

    Its JoinGroup may have waited because of a throttle in the response with its member id.
    """
    options = {**BY_HAND, "max_poll_interval_ms": 30_000, "request_timeout_ms": 1_000}
    await fill(harness, 3)
    silence = Throttled(for_ms=harness.plan.options["silence_ms"])

    def throttled(seen: SeenRequest) -> Throttled | None:
        return silence if seen.client_id == "comes" and silence.for_ms else None

    harness.broker.on(ApiKey.JOIN_GROUP, throttled, times=1)
    async with make_consumer(harness, "works", HOST, TOPIC, **options) as works:
        await until(works, lambda: bool(works.assignment()))
        async with anyio.create_task_group() as tasks:

            async def come() -> None:
                async with (
                    make_consumer(harness, "comes", OTHER_HOST, TOPIC, **options) as comes,
                    anyio.create_task_group() as reading,
                ):
                    reading.start_soon(until, comes, lambda: bool(comes.assignment()))
                    await anyio.sleep(ASKS_AFTER_S)
                    began = harness.now()
                    await comes.committed(P0)
                    if harness.now() > began + 1:
                        text = f"a call waited {harness.now() - began:.1f} s behind a JoinGroup"
                        harness.violated(9, text)
                    await harness.until(lambda: bool(comes.assignment()), "two members")
                    lost = comes.metrics()["connections_lost_total"]
                    if lost:
                        harness.violated(12, f"{lost} connections were lost without a fault")

            tasks.start_soon(come)
            await anyio.sleep(harness.plan.options["works_s"])
            await until(works, lambda: len(works.assignment()) == 1)
    # Answered or not: cancelled ones are not.
    asked = harness.broker.requests.of(ApiKey.JOIN_GROUP)
    joins = [seen for seen in asked if seen.client_id == "comes"]
    if len(joins) > 3:
        harness.violated(12, f"{len(joins)} JoinGroup requests for one rebalance")


def draw_busy(rng: random.Random) -> dict[str, Any]:
    return {"works_s": round(rng.uniform(5, 12), 3), "silence_ms": rng.choice((0, 300))}


async def buffered_records_last_for_long(harness: Harness) -> None:
    """A member is given fetched records one by one, for longer than the poll interval: each call
    counts as a poll."""
    joined = RequestLog(harness, ApiKey.JOIN_GROUP, "reader")
    async with make_producer(harness, "sender", OTHER_HOST, linger_ms=50) as sender:
        await sender.send_many(TOPIC, [sender.value() for _ in range(2 * HELD)])
    options = {**BY_HAND, "max_poll_interval_ms": 1_000, "session_timeout_ms": 1_000}
    async with make_consumer(harness, "reader", HOST, TOPIC, **options) as reader:
        rng = harness.rng("work")
        await reader.getone()
        joins = len(joined)
        for _ in range(HELD):
            await reader.getone()
            await anyio.sleep(rng.uniform(0.1, 0.3))
        given = 1 + HELD
        async for _ in reader:
            given += 1
            if given == 2 * HELD:
                break
            await anyio.sleep(rng.uniform(0.1, 0.3))
    if len(joined) > joins:
        harness.violated(8, "a member that was given records was removed from the group")


HELD = 20
"""Records of half a batch; the member works on them for twice the poll interval."""


async def commit_during_rebalance(harness: Harness) -> None:
    """A member commits all its records while the group completes a generation without it,
    because another member joins before it learned of its generation. In the next generation it
    does not own its partitions of the first."""
    for partition in (0, 1):
        await fill(harness, 3, partition)
    options = {**BY_HAND, "partition_assignment_strategy": [harness.plan.options["strategy"]]}
    async with make_consumer(harness, "has", HOST, TOPIC, **options) as has:
        given = 0
        while given < 6:
            given += sum(map(len, (await has.getmany(timeout_ms=500)).values()))
        async with anyio.create_task_group() as tasks:

            async def come_too() -> None:
                """As soon as there is a generation that no member knows of."""
                await anyio.sleep(harness.plan.options["joins_s"] + harness.plan.options["after_s"])
                await come("comes too")

            async def come(name: str) -> None:
                async with make_consumer(harness, name, OTHER_HOST, TOPIC, **options) as comes:
                    await until(comes, lambda: bool(comes.assignment()))
                    await until(comes, lambda: len(has.assignment()) < 3)

            def late(seen: SeenRequest) -> Delay | None:
                return Delay(harness.plan.options["joins_s"]) if seen.client_id == "has" else None

            harness.broker.on(ApiKey.JOIN_GROUP, late, times=1)
            harness.broker.on(ApiKey.SYNC_GROUP, Delay(harness.plan.options["by_s"]), times=3)
            tasks.start_soon(come, "comes")
            tasks.start_soon(until, has, lambda: len(has.assignment()) < 3)
            # It joined with its second JoinGroup.
            await harness.broker.wait_for_request(
                ApiKey.JOIN_GROUP, count=3, matching=is_from_first_member
            )
            harness.broker.on(
                ApiKey.OFFSET_COMMIT, Answer(ErrorCode.REBALANCE_IN_PROGRESS), times=1
            )
            tasks.start_soon(come_too)
            generation = has.group_metadata().generation_id
            try:
                await has.commit({P0: 3, P1: 3})
            except KafkaError as error:
                harness.note(f"has: {error}")
            else:
                # The response may come in the next generation again.
                sent = filter(
                    is_from_first_member, harness.broker.requests.of(ApiKey.OFFSET_COMMIT)
                )
                last = max(seen.message.generation_id_or_member_epoch for seen in sent)
                if last > generation + 1:
                    harness.violated(7, f"a commit of generation {generation} was sent in {last}")


def is_from_first_member(seen: SeenRequest) -> bool:
    return seen.client_id == "has"


def draw_crossing(rng: random.Random) -> dict[str, Any]:
    return {
        "strategy": rng.choice(("range", "cooperative-sticky", "cooperative-sticky")),
        "by_s": round(rng.uniform(0.5, 1.5), 3),
        "after_s": round(rng.uniform(0, 0.3), 3),
        "joins_s": round(rng.uniform(0.3, 0.8), 3),
    }


# --- subscriptions ---

OTHER = "refunds"
BOTH = (TOPIC, OTHER)


async def subscriptions_change(harness: Harness) -> None:
    """Members switch between both topics, one and none, at any moment of each other's
    rebalances. In the end they subscribe to all, and get everything."""
    turns = harness.plan.options["turns"]
    options = {
        "group_id": GROUP,
        "enable_auto_commit": harness.plan.options["automatic"],
        "partition_assignment_strategy": [harness.plan.options["strategy"]],
    }

    async def turn(number: int) -> None:
        rng = harness.rng(f"member-{number}")
        name, host = f"member-{number}", f"10.0.2.{number + 1}"
        async with make_consumer(
            harness, name, host, *rng.choice(((TOPIC,), BOTH)), **options
        ) as reader:
            for _ in range(turns):
                until_s = harness.now() + rng.choice((0.0, 0.1, 0.5, 2.0)) * rng.random()
                while True:
                    try:
                        with anyio.move_on_after(until_s - harness.now()):
                            await serve(reader)
                    except KafkaError as error:
                        harness.note(f"{name}: {error}")
                    if harness.now() >= until_s:
                        break
                wanted = rng.choice(((), (TOPIC,), (OTHER,), BOTH))
                if wanted:
                    reader.subscribe(wanted)
                else:
                    reader.unsubscribe()
                    await anyio.sleep(rng.choice((0.0, 0.3)))
                    reader.subscribe(rng.choice(((TOPIC,), (OTHER,))))
            reader.subscribe(BOTH)
            while True:
                await serve(reader)

    async def serve(reader: Any) -> None:
        for batch in (await reader.getmany(timeout_ms=300)).values():
            if not options["enable_auto_commit"]:
                try:
                    await reader.commit(batch)
                except KafkaError as error:
                    harness.note(f"{reader.name}: {error}")

    async with anyio.create_task_group() as members:
        for number in range(harness.plan.options["members"]):
            members.start_soon(turn, number)
        async with make_producer(harness, "sender", HOST) as sender:
            for number in range(30):
                await sender.send(BOTH[number % 2], sender.value())
                await anyio.sleep(harness.chance.uniform(0, 0.1 * turns))
        await anyio.sleep(2 * turns)
        await harness.until_consumed(*BOTH, group=GROUP)
        await harness.until_settled()
        members.cancel_scope.cancel()


def draw_subscriptions(rng: random.Random) -> dict[str, Any]:
    return {
        "turns": rng.randint(1, 5),
        "members": rng.randint(1, 3),
        "automatic": rng.random() < 0.5,
        "strategy": rng.choice(("range", "cooperative-sticky", "cooperative-sticky")),
    }


# --- offsets in transactions ---


async def copy(
    harness: Harness, reader: Any, sender: Any, before_offsets: Callable[[], Any]
) -> int:
    """Copy the records of one poll in a transaction with its offsets; return their number."""
    batches = await reader.getmany(timeout_ms=1_000)
    count = 0
    if not batches:
        return count
    try:
        async with sender.transaction():
            for records in batches.values():
                for record in records:
                    await sender.send(COPIES, sender.value(record.value))
                    count += 1
            await before_offsets()
            offsets = {tp: records.next_offset for tp, records in batches.items()}
            await sender.send_offsets_to_transaction(offsets, reader.group_metadata())
    except KafkaError:
        await reader.seek_to_committed()
        return 0
    return count


async def at_once() -> None:
    """Do nothing before."""


async def membership_lost_in_transaction(harness: Harness) -> None:
    """The coordinator forgets a member, which joins again during a transaction: it must not
    commit the records of its former membership."""
    await fill(harness, 4)
    synced = RequestLog(harness, ApiKey.SYNC_GROUP, "reader")
    options = {**BY_HAND, "isolation_level": "read_committed"}

    async def lose_place() -> None:
        places = len(synced)
        harness.recorder.fault("the coordinator forgets a member")
        harness.broker.on(ApiKey.HEARTBEAT, Answer(ErrorCode.UNKNOWN_MEMBER_ID), times=1)
        await harness.until(lambda: len(synced) > places, "another place")
        await anyio.sleep(harness.plan.options["after_s"])

    async with (
        make_producer(harness, "sender", HOST, transactional_id="copier") as sender,
        make_consumer(harness, "reader", HOST, TOPIC, **options) as reader,
    ):
        while not reader.assignment():
            first = await copy(harness, reader, sender, lose_place)
        copied = first
        while copied < 4:
            copied += await copy(harness, reader, sender, at_once)
        again = await copy(harness, reader, sender, at_once)
    if again or first:
        harness.violated(14, f"{first} records of the lost membership were copied, {again} again")


def draw_after(rng: random.Random) -> dict[str, Any]:
    return {"after_s": round(rng.uniform(0.2, 1), 3)}


async def copier_follows_copier(harness: Harness) -> None:
    """A copier leaves after its commit, whose markers are not in the logs yet: the next one must
    not start at the earlier offset."""
    await fill(harness, 4)
    options = {**BY_HAND, "isolation_level": "read_committed"}
    copied = [0, 0]
    for number in range(2):
        name, copier = f"reader.{number}", f"copier.{number}"
        async with (
            make_producer(harness, copier, HOST, transactional_id=copier) as sender,
            make_consumer(harness, name, HOST, TOPIC, **options) as reader,
        ):
            # Records that the second one finds, it finds at once.
            while not reader.assignment() or copied[0] < 4:
                copied[number] += await copy(harness, reader, sender, at_once)
            copied[number] += await copy(harness, reader, sender, at_once)
    if copied[1]:
        harness.violated(14, f"{copied[1]} records were copied again by the next copier")


CORNERS: Mapping[str, CornerCase] = {
    "overlapping commits": CornerCase(overlapping_commits, draw_commits),
    "offset fetch during coordinator move": CornerCase(
        offset_fetch_during_coordinator_move, draw_moves
    ),
    "coordinator moves while idle": CornerCase(coordinator_moves_while_idle, topics={TOPIC: 2}),
    "static member restarts": CornerCase(static_member_restarts, draw_restart, topics={TOPIC: 2}),
    "rebalance waits for busy member": CornerCase(
        rebalance_waits_for_busy_member, draw_busy, topics={TOPIC: 2}
    ),
    "buffered records last for long": CornerCase(buffered_records_last_for_long),
    "commit during rebalance": CornerCase(
        commit_during_rebalance, draw_crossing, topics={TOPIC: 3}
    ),
    "subscriptions change": CornerCase(
        subscriptions_change, draw_subscriptions, topics={TOPIC: 2, OTHER: 2}
    ),
    "membership lost in transaction": CornerCase(
        membership_lost_in_transaction, draw_after, topics={TOPIC: 1, COPIES: 1}
    ),
    "copier follows copier": CornerCase(
        copier_follows_copier,
        broker={"transaction_marker_delay_ms": 1_500},
        topics={TOPIC: 1, COPIES: 1},
    ),
}
