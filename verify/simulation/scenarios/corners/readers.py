"""Corner cases of one consumer: buffered records, positions and requests."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio

from aiokafkawire.broker import Delay, SeenRequest
from aiokafkawire.wire import ApiKey, ErrorCode, Response
from verify.simulation.harness import Harness
from verify.simulation.scenarios.corners.corner_case import (
    GROUP,
    HOST,
    OTHER_HOST,
    P0,
    TOPIC,
    ChangedResponse,
    CornerCase,
    RequestLog,
    committed_offsets,
    fill,
)
from verify.simulation.scenarios.group_workers import make_consumer, make_producer

__all__ = ("CORNERS",)

COUNT = 40


async def several_fetches_in_one_poll(harness: Harness) -> None:
    """One poll returns the records of several fetches; commits happen during the work."""
    await fill(harness, COUNT, payload_bytes=100)
    options = {"max_partition_fetch_bytes": 600, "auto_commit_interval_ms": 100}
    async with make_consumer(harness, "reader", HOST, TOPIC, group_id=GROUP, **options) as reader:
        given = calls = 0
        while given < COUNT:
            # The rest of one poll comes with the records of the next fetch.
            calls += 1
            found = await reader.getmany(timeout_ms=500, max_records=1 if calls % 2 else COUNT)
            given += sum(map(len, found.values()))
            await anyio.sleep(harness.plan.options["work_s"])


def draw_work(rng: random.Random) -> dict[str, Any]:
    return {"work_s": round(rng.uniform(0.3, 1), 3)}


async def seek_back_and_leave(harness: Harness) -> None:
    """A member with auto-commit seeks back and leaves: the next owner starts there."""
    await fill(harness, 10)
    to = harness.plan.options["to"]
    options = {"auto_commit_interval_ms": 200}
    async with make_consumer(harness, "reader", HOST, TOPIC, group_id=GROUP, **options) as reader:
        while committed_offsets(harness).get(P0) != 10:
            await reader.getmany(timeout_ms=200)
        reader.seek(P0, to)
        await anyio.sleep(harness.plan.options["after_s"])
    if committed_offsets(harness)[P0] != to:
        harness.violated(
            6, f"{committed_offsets(harness)[P0]} is committed though the application went to {to}"
        )


def draw_back(rng: random.Random) -> dict[str, Any]:
    return {"to": rng.randint(0, 9), "after_s": rng.choice((0.0, 0.0, 0.6))}


# --- seeks ---

BEGINNING, MIDDLE, END = 2, 5, 10


async def concurrent_seeks(harness: Harness) -> None:
    """Seeks of all kinds, most of them cancelled before their response: the last one counts."""
    await fill(harness, END)
    harness.broker.delete_records(TOPIC, 0, BEGINNING)
    rng = harness.rng("seeks")
    places = {"beginning": BEGINNING, "end": END, "middle": MIDDLE}
    async with make_consumer(harness, "reader", HOST) as reader:
        reader.assign(P0)
        await reader.getmany(timeout_ms=1_000)
        late = harness.broker.on(ApiKey.LIST_OFFSETS, Delay(0.1))
        for _ in range(harness.plan.options["rounds"]):
            for _ in range(rng.randint(1, 3)):
                where = rng.choice(("beginning", "end", "beyond"))
                with anyio.move_on_after(rng.uniform(0, 0.15)):
                    if where == "beyond":
                        reader.seek(P0, 1_000)
                        await anyio.sleep(1)
                    else:
                        await getattr(reader, f"seek_to_{where}")(P0)
            where = rng.choice(list(places))
            if where == "middle":
                reader.seek(P0, MIDDLE)
            else:
                await getattr(reader, f"seek_to_{where}")(P0)
            await anyio.sleep(rng.uniform(0, 0.3))
            at = await reader.position(P0)
            if at != places[where]:
                harness.violated(5, f"at {at} after a seek to {where}")
        late.remove()


def draw_rounds(rng: random.Random) -> dict[str, Any]:
    return {"rounds": rng.randint(3, 6)}


BATCH = 10


async def seek_into_a_batch(harness: Harness) -> None:
    """Reading starts within a batch, and continues in any manner."""
    for number, compression in enumerate(("gzip", "none", "gzip")):
        options = {"linger_ms": 50, "compression_type": compression}
        async with make_producer(harness, f"sender.{number}", OTHER_HOST, **options) as sender:
            await sender.send_many(TOPIC, [sender.value() for _ in range(BATCH)])
            await sender.flush()
    rng = harness.rng("seeks")
    async with make_consumer(harness, "reader", HOST) as reader:
        reader.assign(P0)
        on = aiter(reader)
        for _ in range(8):
            to = rng.randrange(3 * BATCH)
            reader.seek(P0, to)
            for _ in range(rng.choice((0, 1, 3))):
                if to == 3 * BATCH:
                    break
                record = await (anext(on) if rng.random() < 0.5 else reader.getone())
                if record.offset != to:
                    harness.violated(5, f"{record.offset} was returned, not {to}")
                to += 1
            for most in (rng.randint(1, BATCH), 3 * BATCH):
                if to == 3 * BATCH:
                    break
                (records,) = (await reader.getmany(timeout_ms=2_000, max_records=most)).values()
                if records.first_offset != to:
                    harness.violated(5, f"{records.first_offset} was returned, not {to}")
                to = records.next_offset


# --- logs whose beginning moves, and followers ---


CUT_BYTES = 200
"""A fetch may end with a truncated batch, which is fetched again."""


async def retention_passes_the_position(harness: Harness) -> None:
    """Retention overtakes a slow reader: its buffered records are returned before the reset."""
    await fill(harness, COUNT, payload_bytes=100)
    options = {"max_partition_fetch_bytes": 700, "max_poll_records": 1}
    async with make_consumer(harness, "reader", HOST, TOPIC, **options) as reader:
        following, held, gone = 0, False, False
        for number in range(COUNT):
            for records in (await reader.getmany(timeout_ms=500)).values():
                first = records.first_offset
                if held and first != following:
                    text = f"offset {first} was returned instead of the buffered {following}"
                    harness.violated(5, text)
                following = records.next_offset
                held = reader.metrics()["buffered_bytes"] > CUT_BYTES
            if number == harness.plan.options["after"] and not gone:
                gone = True
                harness.broker.delete_records(TOPIC, 0, COUNT - 3)
            await anyio.sleep(0.2)
            if following == COUNT:
                return


def draw_loss(rng: random.Random) -> dict[str, Any]:
    return {"after": rng.randint(2, 9)}


@dataclass(frozen=True, slots=True)
class OutOfRange(ChangedResponse):
    """OFFSET_NOT_AVAILABLE of a follower."""

    def response(self, response: Response) -> Response:
        changed: Any = response
        code = ErrorCode.OFFSET_OUT_OF_RANGE
        topics = [
            replace(
                topic,
                partitions=[
                    replace(each, error_code=code, records=b"") for each in topic.partitions
                ],
            )
            for topic in changed.responses
        ]
        return replace(changed, responses=topics)  # type: ignore[no-any-return]


RACKS = ("north", "south", "east")


async def follower_lacks_the_offset(harness: Harness) -> None:
    """A reader is sent to the follower in its rack, which lags behind the leader."""
    broker = harness.broker
    leader = broker.leader(TOPIC, 0)
    near = leader % 3 + 1
    asked: list[int] = []

    def answer(seen: SeenRequest) -> OutOfRange | None:
        if seen.client_id != "reader" or not seen.message.topics:  # type: ignore[attr-defined]
            return None
        asked.append(seen.node_id)
        return OutOfRange() if len(asked) % 4 == 3 else None

    broker.on(ApiKey.FETCH, answer, node=near)
    options = {"client_rack": RACKS[near - 1], "fetch_max_wait_ms": 100}
    async with make_consumer(harness, "reader", HOST, TOPIC, **options) as reader:
        following = 0
        for _ in range(harness.plan.options["rounds"]):
            await fill(harness, 4)
            end = following + 4
            while following < end:
                for records in (await reader.getmany(timeout_ms=500)).values():
                    if records.first_offset != following:
                        harness.violated(5, f"{records.first_offset} was returned, not {following}")
                        return
                    following = records.next_offset


# --- fetches ---

FETCHES_AT_MOST = 30


async def paused_partition_with_records(harness: Harness) -> None:
    """A paused partition is not fetched, its records are not returned, and no call is shortened
    because of it."""
    broker = harness.broker
    broker.move_leader(TOPIC, 1, broker.leader(TOPIC, 0))
    wanted = given = 0

    async def come(count: int, partition: int) -> None:
        nonlocal wanted
        wanted += count
        await fill(harness, count, partition)

    async with make_consumer(harness, "reader", HOST, TOPIC) as reader:

        async def all_given() -> None:
            nonlocal given
            while given < wanted:
                given += sum(map(len, (await reader.getmany(timeout_ms=500)).values()))

        for held in harness.chance.sample((False, True), 2):
            await come(3, 0)
            await come(3, 1)
            await all_given()
            paused, goes_on = harness.chance.sample((0, 1), 2)
            if held:
                # It is fetched, and not returned.
                await come(2, paused)
                await anyio.sleep(1)
            reader.pause((TOPIC, paused))
            if await reader.getmany(timeout_ms=700):
                harness.violated(5, "records of a paused partition were returned")
            await come(5, paused)
            fetches = RequestLog(harness, ApiKey.FETCH, "reader")
            if await reader.getmany(timeout_ms=5_000):
                harness.violated(5, "records of a paused partition were returned")
            if len(fetches) > FETCHES_AT_MOST:
                harness.violated(12, f"{len(fetches)} empty fetches in 5 s")
            await come(1, goes_on)
            reader.resume((TOPIC, paused))
            await all_given()


CORNERS: Mapping[str, CornerCase] = {
    "several fetches in one poll": CornerCase(several_fetches_in_one_poll, draw_work),
    "seek back and leave": CornerCase(seek_back_and_leave, draw_back),
    "concurrent seeks": CornerCase(concurrent_seeks, draw_rounds, resets=True),
    "seek into a batch": CornerCase(seek_into_a_batch),
    "retention passes the position": CornerCase(
        retention_passes_the_position, draw_loss, resets=True
    ),
    "follower lacks the offset": CornerCase(
        follower_lacks_the_offset, draw_rounds, broker={"racks": RACKS}
    ),
    "paused partition with records": CornerCase(paused_partition_with_records, topics={TOPIC: 2}),
}
