"""Transactions: committed ones are visible at once and completely, aborted ones never (KIP-98).

On the embedded broker each test runs with both protocols, of KIP-98 and of KIP-890.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import aiokafkawire
from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import (
    CommitFailed,
    KafkaError,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
)
from aiokafkawire.producer import Producer
from aiokafkawire.types import GroupMetadata, TopicPartition
from tests.behaviour.client_options import both_protocols
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs, without
from tests.behaviour.support import (
    MEMBER,
    WITHIN_S,
    committed,
    fill,
    numbered,
    partitions_of,
    poll_until,
    reading,
    settle,
    spread,
    spread_values,
    take,
)

COMMITTED = "read_committed"
UNCOMMITTED = "read_uncommitted"


@pytest.fixture(
    autouse=True,
    params=[
        pytest.param("KIP-98", marks=without("transactions of KIP-890", as_of="2.8")),
        pytest.param("KIP-890", marks=needs("transactions of KIP-890")),
    ],
)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


pytestmark = [pytest.mark.slow, needs("transactions")]


@pytest.fixture
def transactional_id(group_id: str) -> str:
    return group_id.replace("group", "transactions")


def transactional_producer(
    bootstrap_servers: str, transactional_id: str, **options: Any
) -> Producer:
    return Producer(
        bootstrap_servers=bootstrap_servers, transactional_id=transactional_id, **options
    )


async def ends(
    bootstrap_servers: str, topic: str, level: str, partitions: int = 1
) -> dict[TopicPartition, int]:
    async with reading(bootstrap_servers, topic, partitions, isolation_level=level) as consumer:
        return await consumer.end_offsets(*partitions_of(topic, partitions))


async def transactions_ended(bootstrap_servers: str, topic: str, partitions: int = 1) -> None:
    """Wait until no transaction is open: markers are written after the commit is acknowledged."""
    with anyio.fail_after(WITHIN_S):
        while True:
            stable = await ends(bootstrap_servers, topic, COMMITTED, partitions)
            if stable == await ends(bootstrap_servers, topic, UNCOMMITTED, partitions):
                return


async def read_all(
    bootstrap_servers: str, topic: str, partitions: int = 1, *, level: str = COMMITTED
) -> list[bytes | None]:
    """Return the values that an isolation level shows up to its end, partition by partition."""
    tps = partitions_of(topic, partitions)
    async with reading(bootstrap_servers, topic, partitions, isolation_level=level) as consumer:
        upto = await consumer.end_offsets(*tps)
        records = []
        with anyio.fail_after(WITHIN_S):
            while {tp: await consumer.position(tp) for tp in tps} != upto:
                for some in (await consumer.getmany(timeout_ms=50)).values():
                    records.extend(some)
    return [r.value for r in sorted(records, key=lambda r: (r.partition, r.offset))]


# --- commit and abort ---------------------------------------------------------------------------


async def test_a_committed_transaction_is_seen_whole(
    bootstrap_servers: str, new_topic: NewTopic, transactional_id: str
):
    one, two = await new_topic(2), await new_topic()
    async with transactional_producer(bootstrap_servers, transactional_id) as producer:
        async with producer.transaction():
            deliveries = [
                await producer.send(one, value, partition=number % 2)
                for number, value in enumerate(numbered(10))
            ]
            await producer.send_and_wait(two, b"other")
            assert (await deliveries[0]).offset == 0
            await producer.flush()
            assert await read_all(bootstrap_servers, one, 2) == []
            assert await read_all(bootstrap_servers, two, level=UNCOMMITTED) == [b"other"]
        assert [(await each).partition for each in deliveries] == [0, 1] * 5
        await transactions_ended(bootstrap_servers, one, 2)
        await transactions_ended(bootstrap_servers, two)
        assert await read_all(bootstrap_servers, one, 2) == numbered(10)[::2] + numbered(10)[1::2]
        assert await read_all(bootstrap_servers, two) == [b"other"]


async def test_what_a_transaction_raises_comes_through_and_aborts_it(
    bootstrap_servers: str, topic: str, transactional_id: str
):
    async with transactional_producer(bootstrap_servers, transactional_id) as producer:
        waiting = []

        async def fail() -> None:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"no")
                waiting.append(await producer.send(topic, b"nor this"))
                raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            await fail()
        with pytest.raises(TransactionAborted):
            await waiting[0]
        async with producer.transaction():
            await producer.send(topic, b"yes")
        await transactions_ended(bootstrap_servers, topic)
        assert await read_all(bootstrap_servers, topic) == [b"yes"]
        assert b"no" in await read_all(bootstrap_servers, topic, level=UNCOMMITTED)


async def test_transactions_by_hand(bootstrap_servers: str, topic: str, transactional_id: str):
    async with transactional_producer(bootstrap_servers, transactional_id) as producer:
        for number, value in enumerate(numbered(6)):
            await producer.begin_transaction()
            await producer.send(topic, value)
            if number % 3:
                await producer.commit_transaction()
            else:
                await producer.flush()
                await producer.abort_transaction()
        await transactions_ended(bootstrap_servers, topic)
        kept = [value for number, value in enumerate(numbered(6)) if number % 3]
        assert await read_all(bootstrap_servers, topic) == kept


async def test_a_transaction_of_nothing(bootstrap_servers: str, topic: str, transactional_id: str):
    async with transactional_producer(bootstrap_servers, transactional_id) as producer:
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"something")
        await transactions_ended(bootstrap_servers, topic)
    assert await read_all(bootstrap_servers, topic) == [b"something"]


async def test_a_cancelled_transaction_is_aborted(
    bootstrap_servers: str, topic: str, transactional_id: str
):
    async with transactional_producer(bootstrap_servers, transactional_id) as producer:
        with anyio.CancelScope() as scope:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"no")
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        async with producer.transaction():
            await producer.send(topic, b"yes")
        await transactions_ended(bootstrap_servers, topic)
    assert await read_all(bootstrap_servers, topic) == [b"yes"]


async def test_an_application_that_died_in_a_transaction_recovers(
    bootstrap_servers: str, topic: str, transactional_id: str
):
    gone = transactional_producer(bootstrap_servers, transactional_id)
    await gone.start()
    await gone.begin_transaction()
    await gone.send_and_wait(topic, b"no")
    gone._lifecycle.abort()
    async with transactional_producer(bootstrap_servers, transactional_id) as producer:
        async with producer.transaction():
            await producer.send(topic, b"yes")
        await transactions_ended(bootstrap_servers, topic)
    assert await read_all(bootstrap_servers, topic) == [b"yes"]


# --- fencing ------------------------------------------------------------------------------------


async def test_the_older_of_two_producers_is_fenced_and_nothing_of_it_is_seen(
    bootstrap_servers: str, topic: str, transactional_id: str
):
    async with two_producers_with_one_id(bootstrap_servers, transactional_id) as (older, newer):
        await older.start()
        await older.begin_transaction()
        await older.send_and_wait(topic, b"no")
        await newer.start()
        async with newer.transaction():
            await newer.send(topic, b"yes")

        async def go_on() -> None:
            await older.send(topic, b"nor this")
            await older.commit_transaction()

        # An old epoch alone does not mean that another producer took over.
        with pytest.raises((TransactionFailed, ProducerFenced)):
            await go_on()
        with pytest.raises(ProducerFenced, match=transactional_id) as raised:
            await older.abort_transaction()
        assert raised.value.transactional_id == transactional_id
        assert not raised.value.retriable
        for call in (older.begin_transaction, older.commit_transaction):
            with pytest.raises(ProducerFenced):
                await call()
        async with newer.transaction():
            await newer.send(topic, b"yes, again")
        await transactions_ended(bootstrap_servers, topic)
    assert await read_all(bootstrap_servers, topic) == [b"yes", b"yes, again"]


@asynccontextmanager
async def two_producers_with_one_id(
    bootstrap_servers: str, transactional_id: str
) -> AsyncIterator[tuple[Producer, Producer]]:
    """Two producers with one transactional id, started by the test and always stopped."""
    pair = [transactional_producer(bootstrap_servers, transactional_id) for _ in range(2)]
    try:
        yield pair[0], pair[1]
    finally:
        for producer in pair:
            with contextlib.suppress(KafkaError):
                await producer.stop()


# --- reading ------------------------------------------------------------------------------------


async def test_a_reader_of_committed_records_stops_before_what_is_open(
    bootstrap_servers: str, topic: str, transactional_id: str
):
    [partition] = partitions_of(topic, 1)
    await fill(bootstrap_servers, topic, numbered(3))
    async with (
        transactional_producer(bootstrap_servers, transactional_id) as producer,
        reading(bootstrap_servers, topic, isolation_level=COMMITTED) as careful,
        reading(bootstrap_servers, topic) as other,
    ):
        async with producer.transaction():
            await producer.send_and_wait(topic, b"open")
            await fill(bootstrap_servers, topic, [b"after"])
            assert [r.value for r in await take(other, 5)] == [*numbered(3), b"open", b"after"]
            assert [r.value for r in await take(careful, 3)] == numbered(3)
            assert await careful.getmany(timeout_ms=200) == {}
            assert await careful.position(partition) == 3
            assert await careful.end_offsets(partition) == {partition: 3}
            assert await other.end_offsets(partition) == {partition: 5}
            assert (careful.lag(partition), other.lag(partition)) == (0, 0)
            assert careful.last_stable_offset(partition) == 3
            assert careful.highwater(partition) == 5
        assert [r.value for r in await take(careful, 2)] == [b"open", b"after"]
        await poll_until(careful, lambda: careful.last_stable_offset(partition) == 6)
        assert careful.lag(partition) == 0
        assert await careful.end_offsets(partition) == {partition: 6}
        assert await careful.position(partition) == 6


async def test_positions_pass_over_markers_and_aborted_records(
    bootstrap_servers: str, topic: str, transactional_id: str, group_id: str
):
    [partition] = partitions_of(topic, 1)
    async with transactional_producer(bootstrap_servers, transactional_id) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"yes")
        for _ in range(3):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"no")
            await producer.abort_transaction()
        await transactions_ended(bootstrap_servers, topic)
    async with reading(
        bootstrap_servers,
        topic,
        isolation_level=COMMITTED,
        group_id=group_id,
        enable_auto_commit=False,
    ) as consumer:
        assert [record.value for record in await take(consumer, 1)] == [b"yes"]
        end = (await consumer.end_offsets(partition))[partition]
        with anyio.fail_after(WITHIN_S):
            while await consumer.position(partition) < end:
                assert await consumer.getmany(timeout_ms=50) == {}
        assert consumer.lag(partition) == 0
        assert consumer.positions()[partition].offset == end
        await consumer.commit()
        assert await committed(consumer, partition) == end
        # A position within an aborted transaction, as another client may have committed it.
        for offset in range(1, end):
            consumer.seek(partition, offset)
            assert await consumer.getmany(timeout_ms=20) == {}


async def test_many_transactions_one_after_the_other_and_beside_each_other(
    bootstrap_servers: str, topic: str, transactional_id: str
):
    async with (
        transactional_producer(bootstrap_servers, f"{transactional_id}-a") as one,
        transactional_producer(bootstrap_servers, f"{transactional_id}-b") as two,
    ):
        for number in range(6):
            await one.begin_transaction()
            await two.begin_transaction()
            for producer, name in ((one, b"a"), (two, b"b")):
                for part in range(3):
                    await producer.send(topic, b"%s%d.%d" % (name, number, part))
                await producer.flush()
            await (one.abort_transaction if number % 2 else one.commit_transaction)()
            await (two.abort_transaction if number % 3 else two.commit_transaction)()
        await transactions_ended(bootstrap_servers, topic)
    found = await read_all(bootstrap_servers, topic)
    for name, kept in ((b"a", (0, 2, 4)), (b"b", (0, 3))):
        mine = [value for value in found if value is not None and value.startswith(name)]
        assert mine == [b"%s%d.%d" % (name, n, part) for n in kept for part in range(3)]


# --- offsets ------------------------------------------------------------------------------------


@needs("fencing by group")
@both_protocols
async def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    bootstrap_servers: str, new_topic: NewTopic, transactional_id: str, group_id: str
):
    source, target = await new_topic(), await new_topic()
    [partition] = partitions_of(source, 1)
    await fill(bootstrap_servers, source, numbered(9))
    async with (
        Consumer(
            source, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
        ) as consumer,
        transactional_producer(bootstrap_servers, transactional_id) as producer,
    ):
        await copy_up_to(consumer, 4)

        async def fail() -> None:
            async with producer.transaction():
                await producer.send(target, b"no")
                await producer.send_offsets_to_transaction(consumer)
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        assert await committed(consumer, partition) is None
        await consumer.seek_to_committed()
        first = await copy_up_to(consumer, 4)
        assert first == numbered(4)
        async with producer.transaction():
            await producer.send(target, b"yes")
            await producer.send_offsets_to_transaction(consumer)
            # Records read meanwhile are not part of it.
            await copy_up_to(consumer, 2)
        await transactions_ended(bootstrap_servers, target)
        assert await committed(consumer, partition) == 4
        assert consumer.positions()[partition].offset == 6
        async with producer.transaction():
            await producer.send_offsets_to_transaction({partition: 9}, consumer.group_metadata())
        with anyio.fail_after(WITHIN_S):
            # It is committed once the transaction's marker is written.
            while (await committed(consumer, partition)) != 9:
                await consumer.getmany(timeout_ms=20)
    assert await read_all(bootstrap_servers, target) == [b"yes"]


async def copy_up_to(consumer: Consumer, count: int) -> list[bytes | None]:
    """Return the values of exactly this number of records, which must be there."""
    values: list[bytes | None] = []
    with anyio.fail_after(WITHIN_S):
        while len(values) < count:
            left = count - len(values)
            for some in (await consumer.getmany(timeout_ms=100, max_records=left)).values():
                values.extend(some.values())
    return values


@needs("stable committed offsets")
async def test_the_next_owner_waits_for_offsets_of_an_open_transaction(
    bootstrap_servers: str, new_topic: NewTopic, transactional_id: str, group_id: str
):
    source = await new_topic()
    [partition] = partitions_of(source, 1)
    await fill(bootstrap_servers, source, numbered(5))
    async with (
        transactional_producer(bootstrap_servers, transactional_id) as producer,
        reading(bootstrap_servers, source, group_id=group_id, enable_auto_commit=False) as next_one,
    ):
        found: list[int] = []
        async with anyio.create_task_group() as tasks, producer.transaction():
            await producer.send_offsets_to_transaction({partition: 3}, GroupMetadata(group_id))
            next_one.unsubscribe()
            next_one.assign(partition)

            async def follow() -> None:
                found.append(await next_one.position(partition))

            tasks.start_soon(follow)
            assert await next_one.getmany(timeout_ms=200) == {}
            assert found == []
        assert found == [3]


@needs("fencing by group")
@both_protocols
async def test_the_offsets_of_a_member_that_the_group_went_on_without_are_refused(
    bootstrap_servers: str, new_topic: NewTopic, transactional_id: str, group_id: str
):
    source, target = await new_topic(), await new_topic()
    [partition] = partitions_of(source, 1)
    await fill(bootstrap_servers, source, numbered(3))
    async with (
        Consumer(
            source, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
        ) as consumer,
        transactional_producer(bootstrap_servers, transactional_id) as producer,
    ):
        await copy_up_to(consumer, 3)
        now = consumer.group_metadata()
        for stale in (
            GroupMetadata(group_id, now.generation_id - 1, now.member_id),
            GroupMetadata(group_id, now.generation_id, "somebody else"),
        ):
            with pytest.raises(TransactionFailed) as raised:
                await send_with_offsets(producer, target, {partition: 3}, stale)
            assert group_id in str(raised.value) or group_id in str(raised.value.__cause__)
        async with producer.transaction():
            await producer.send(target, b"yes")
            await producer.send_offsets_to_transaction(consumer)
        await transactions_ended(bootstrap_servers, target)
        assert await committed(consumer, partition) == 3
    assert await read_all(bootstrap_servers, target) == [b"yes"]


class LossListener(RebalanceListener):
    def __init__(self) -> None:
        self.notified = anyio.Event()

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.notified.set()


@needs("fencing by group")
@both_protocols
async def test_a_worker_that_takes_too_long_commits_nothing(
    bootstrap_servers: str, new_topic: NewTopic, transactional_id: str, group_id: str
):
    source, target = await new_topic(), await new_topic()
    [partition] = partitions_of(source, 1)
    await fill(bootstrap_servers, source, numbered(3))
    options: dict[str, Any] = MEMBER | {
        "session_timeout_ms": 500,
        "max_poll_interval_ms": 500,
    }
    losses = LossListener()
    async with (
        Consumer(bootstrap_servers=bootstrap_servers, group_id=group_id, **options) as consumer,
        transactional_producer(bootstrap_servers, transactional_id) as producer,
    ):
        consumer.subscribe([source], listener=losses)
        await copy_up_to(consumer, 3)

        async def work_too_long() -> None:
            async with producer.transaction():
                await producer.send(target, b"no")
                await losses.notified.wait()
                await producer.send_offsets_to_transaction(consumer)

        with anyio.fail_after(WITHIN_S):
            with pytest.raises(CommitFailed, match=source):
                await work_too_long()
        # Explicitly given offsets are rejected by the coordinator.
        with pytest.raises(TransactionFailed) as raised:
            await send_with_offsets(producer, target, {partition: 3}, consumer.group_metadata())
        assert isinstance(raised.value.__cause__, CommitFailed)
        assert await copy_up_to(consumer, 3) == numbered(3)
        async with producer.transaction():
            await producer.send(target, b"yes")
            await producer.send_offsets_to_transaction(consumer)
        await transactions_ended(bootstrap_servers, target)
        assert await committed(consumer, partition) == 3
    assert await read_all(bootstrap_servers, target) == [b"yes"]


async def send_with_offsets(
    producer: Producer,
    target: str,
    offsets: dict[TopicPartition, int],
    group_metadata: GroupMetadata,
) -> None:
    async with producer.transaction():
        await producer.send(target, b"no")
        await producer.send_offsets_to_transaction(offsets, group_metadata)


async def test_auto_commit_and_offsets_in_a_transaction_do_not_go_together(
    bootstrap_servers: str, topic: str, transactional_id: str, group_id: str
):
    async with (
        Consumer(topic, bootstrap_servers=bootstrap_servers, group_id=group_id) as consumer,
        transactional_producer(bootstrap_servers, transactional_id) as producer,
    ):
        with pytest.raises(ValueError, match="enable_auto_commit"):
            async with producer.transaction():
                await producer.send_offsets_to_transaction(consumer)


# --- ended from elsewhere -----------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
async def test_a_detached_transaction_is_ended_from_elsewhere(
    bootstrap_servers: str, topic: str, transactional_id: str, commit: bool
):
    async with transactional_producer(bootstrap_servers, transactional_id) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"detached")
        detached = await producer.detach_transaction()
    text = detached.to_json()
    assert await read_all(bootstrap_servers, topic) == []
    elsewhere = type(detached).from_json(text)
    assert elsewhere == detached
    for _ in range(2):
        # With an unknown outcome, do it again.
        await aiokafkawire.end_detached_transaction(
            elsewhere, commit=commit, bootstrap_servers=bootstrap_servers
        )
    await transactions_ended(bootstrap_servers, topic)
    assert await read_all(bootstrap_servers, topic) == ([b"detached"] if commit else [])


# --- the loop -----------------------------------------------------------------------------------


class StreamWorker:
    """Copies records from a topic to another, exactly once; can be made to fail now and then."""

    def __init__(self, bootstrap_servers: str, source: str, target: str, name: str) -> None:
        self.consumer = Consumer(
            source,
            bootstrap_servers=bootstrap_servers,
            group_id=f"{source}-copiers",
            isolation_level=COMMITTED,
            **(MEMBER | {"session_timeout_ms": 30_000}),
        )
        self.producer = transactional_producer(bootstrap_servers, name)
        self.copied = 0
        self.aborted = 0
        self.fail_at: Sequence[int] = ()
        self._target = target
        self._turns = 0

    async def turn(self) -> None:
        """One round of the loop of docs/transactions.md."""
        batches = await self.consumer.getmany(timeout_ms=20, max_records=7)
        if not batches:
            return
        self._turns += 1
        try:
            async with self.producer.transaction():
                for (_, partition), batch in batches.items():
                    for record in batch:
                        await self.producer.send(self._target, record.value, partition=partition)
                if self._turns in self.fail_at:
                    raise LookupError
                await self.producer.send_offsets_to_transaction(self.consumer)
        except (TransactionFailed, CommitFailed, LookupError):
            self.aborted += 1
            await self.consumer.seek_to_committed()
        else:
            self.copied += sum(map(len, batches.values()))


@needs("fencing by group")
async def test_the_loop_of_stream_workers_gives_each_record_once(
    bootstrap_servers: str, new_topic: NewTopic, transactional_id: str
):
    partitions, each = 4, 30
    source, target = await new_topic(partitions), await new_topic(partitions)
    await spread(bootstrap_servers, source, each, partitions)
    one, two = (
        StreamWorker(bootstrap_servers, source, target, f"{transactional_id}-{name}")
        for name in "ab"
    )
    one.fail_at, two.fail_at = (2, 4), (1, 3)
    async with one.consumer, one.producer:
        with anyio.fail_after(WITHIN_S):
            while one.copied < 3 * 7:
                await one.turn()
        async with two.consumer, two.producer:
            with anyio.fail_after(WITHIN_S):
                # The second one joins while the first one works, and leaves before it ends.
                while two.copied < 3 * 7 and one.copied + two.copied < each * partitions:
                    await one.turn()
                    await two.turn()
        with anyio.fail_after(WITHIN_S):
            while one.copied + two.copied < each * partitions:
                await one.turn()
    await transactions_ended(bootstrap_servers, target, partitions)
    found = await read_all(bootstrap_servers, target, partitions)
    assert len(found) == each * partitions
    assert set(found) == spread_values(each, partitions)
    assert found == sorted(found, key=lambda v: [int(n) for n in (v or b"").split(b"/")])
    assert one.aborted + two.aborted >= 3


@needs("fencing by group")
@both_protocols
async def test_partitions_that_go_in_the_middle_of_a_transaction_fail_it(
    bootstrap_servers: str, new_topic: NewTopic, transactional_id: str, group_id: str
):
    source, target = await new_topic(2), await new_topic()
    await spread(bootstrap_servers, source, 3, 2)
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    async with (
        Consumer(source, **options, **MEMBER) as one,
        transactional_producer(bootstrap_servers, transactional_id) as producer,
    ):
        await copy_up_to(one, 6)
        async with Consumer(source, **options, **MEMBER) as two:

            async def settle_inside() -> None:
                async with producer.transaction():
                    await producer.send(target, b"no")
                    # Polling here lets the other one get its share.
                    await settle(one, two, partitions=2)
                    await producer.send_offsets_to_transaction(one)

            with pytest.raises(CommitFailed, match=source):
                await settle_inside()
            await one.seek_to_committed()
            assert {**await one.committed(), **await two.committed()} == dict.fromkeys(
                partitions_of(source, 2)
            )
            async with producer.transaction():
                await producer.send(target, b"yes")
                await producer.send_offsets_to_transaction(one)
        await transactions_ended(bootstrap_servers, target)
    assert await read_all(bootstrap_servers, target) == [b"yes"]
