"""Consumers that share the partitions of a topic."""

from __future__ import annotations

import re

import anyio
import pytest

from aiokafkawire.consumer import Consumer
from aiokafkawire.errors import CommitFailed
from aiokafkawire.types import TopicPartition
from tests.behaviour.client_options import both_protocols
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs
from tests.behaviour.support import (
    MEMBER,
    WITHIN_S,
    committed,
    fill,
    numbered,
    partitions_of,
    poll_until,
    spread,
    spread_values,
    take,
)
from tests.behaviour.workers import Source, Worker, at_work, until, worker_process
from tests.elapsed import ends_within

pytestmark = [needs("groups"), pytest.mark.slow]

PARTITIONS = 12


@both_protocols
async def test_a_lone_member_gets_every_partition(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=PARTITIONS)
    await spread(bootstrap_servers, topic, 5, PARTITIONS)
    async with Consumer(
        topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
    ) as consumer:
        records = await take(consumer, 5 * PARTITIONS)
        assert set(consumer.assignment()) == set(partitions_of(topic, PARTITIONS))
    assert sorted(record.value for record in records) == sorted(spread_values(5, PARTITIONS))


async def test_two_members_share_the_partitions_by_range(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=PARTITIONS)
    one, other = (Worker(bootstrap_servers, topic, group_id) for _ in range(2))
    async with at_work(one, other):
        await until([one, other], lambda: one.owned == other.owned == 6)
        shares = [set(worker.consumer.assignment()) for worker in (one, other)]
        assert shares[0] | shares[1] == set(partitions_of(topic, PARTITIONS))
        for share in shares:
            numbers = sorted(partition.partition for partition in share)
            assert numbers in ([0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11])
        await spread(bootstrap_servers, topic, 10, PARTITIONS)
        everything = spread_values(10, PARTITIONS)
        await until([one, other], lambda: one.values | other.values == everything)
        assert not one.values & other.values
        assert len(one.seen) + len(other.seen) == len(everything)


@both_protocols
async def test_a_member_that_leaves_is_replaced_at_once(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=PARTITIONS)
    slow = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 100}
    workers = [Worker(bootstrap_servers, topic, group_id, **slow) for _ in range(3)]
    leaving, *staying = workers
    async with at_work(*workers):
        await until(workers, lambda: [worker.owned for worker in workers] == [4, 4, 4])
        await spread(bootstrap_servers, topic, 5, PARTITIONS)
        await until(workers, lambda: sum(len(worker.seen) for worker in workers) == 60)
        with ends_within(10):
            await leaving.leave()
            await until(staying, lambda: [worker.owned for worker in staying] == [6, 6])
        await fill(bootstrap_servers, topic, [b"%d/new" % p for p in range(12)], partition=0)
        wanted = spread_values(5, PARTITIONS) | {b"%d/new" % p for p in range(12)}
        await until(staying, lambda: set.union(*(w.values for w in workers)) == wanted)
    assert sum(len(worker.seen) for worker in workers) == len(wanted)


@both_protocols
async def test_of_three_members_one_is_killed_and_nothing_is_lost(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str, running_backend: str
):
    topic = await new_topic(partitions=PARTITIONS)
    workers = [Worker(bootstrap_servers, topic, group_id) for _ in range(2)]
    async with (
        worker_process(bootstrap_servers, topic, group_id, running_backend) as victim,
        at_work(*workers),
    ):
        await until(workers, lambda: [worker.owned for worker in workers] == [4, 4])
        await spread(bootstrap_servers, topic, 20, PARTITIONS)
        await victim.until_committed(partitions=4, offset=20)
        mine = set(victim.committed)
        assert len(mine) == 4
        await until(workers, lambda: sum(len(worker.seen) for worker in workers) >= 160)
        before = {worker: len(worker.seen) for worker in workers}
        await victim.kill()
        for partition in range(PARTITIONS):
            values = [b"%d/%d" % (partition, number) for number in range(20, 40)]
            await fill(bootstrap_servers, topic, values, partition)
        after = spread_values(40, PARTITIONS) - spread_values(20, PARTITIONS)
        await until(workers, lambda: after <= workers[0].values | workers[1].values)
        assert [worker.owned for worker in workers] == [6, 6]
    # Nothing is skipped, and reading continued at the dead member's commit.
    for partition in mine:
        offsets = [
            record.offset
            for worker in workers
            for record in worker.seen[before[worker] :]
            if record.partition == partition
        ]
        assert sorted(offsets) == list(range(20, 40))
    seen = {value for worker in workers for value in worker.values}
    assert seen | spread_values(20, PARTITIONS) == spread_values(40, PARTITIONS)


@both_protocols
async def test_a_member_killed_at_work_costs_no_record(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str, running_backend: str
):
    topic = await new_topic(partitions=PARTITIONS)
    await spread(bootstrap_servers, topic, 100, PARTITIONS)
    survivor = Worker(bootstrap_servers, topic, group_id)
    async with worker_process(
        bootstrap_servers, topic, group_id, running_backend, pause_s=0.02
    ) as victim:
        await victim.until_committed(partitions=2, offset=10)
        await victim.kill()
    async with Consumer(bootstrap_servers=bootstrap_servers, group_id=group_id) as onlooker:
        partitions = partitions_of(topic, PARTITIONS)
        begins = {each.partition: await committed(onlooker, each) or 0 for each in partitions}
    assert sum(offset >= 10 for offset in begins.values()) >= 2
    async with at_work(survivor):
        last = {b"%d/99" % partition for partition in range(PARTITIONS)}
        await until([survivor], lambda: survivor.values >= last)
    for partition, begin in begins.items():
        # From the dead member's last commit, which it reported if it still could.
        assert begin >= victim.committed.get(partition, 0)
        offsets = [record.offset for record in survivor.seen if record.partition == partition]
        assert offsets == list(range(begin, 100))


@both_protocols
async def test_members_that_come_and_go_lose_and_repeat_nothing(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=PARTITIONS)
    workers = [Worker(bootstrap_servers, topic, group_id) for _ in range(3)]
    source = Source(bootstrap_servers, topic, PARTITIONS)
    async with at_work(workers[0]) as group:
        group.start_soon(source.work)
        await until(workers[:1], lambda: len(workers[0].seen) > 50)
        group.start_soon(workers[1].work)
        await until(workers[:2], lambda: len(workers[1].seen) > 50)
        group.start_soon(workers[2].work)
        await until(workers, lambda: len(workers[2].seen) > 50)
        await workers[1].leave()
        so_far = len(workers[2].seen)
        await until(workers, lambda: len(workers[2].seen) > so_far + 50)
        await source.stop()
        await until(workers, lambda: _all(workers) == source.sent)
        await workers[2].leave()
    assert sum(len(worker.seen) for worker in workers) == len(source.sent)


def _all(workers: list[Worker]) -> set[bytes | None]:
    return set().union(*(worker.values for worker in workers))


@both_protocols
async def test_heartbeats_go_on_while_the_application_works(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 5, 2)
    options = MEMBER | {"session_timeout_ms": 1_500}
    async with (
        Consumer(
            topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **options
        ) as consumer,
        Consumer(bootstrap_servers=bootstrap_servers) as other,
    ):
        await take(consumer, 10)
        other.assign([TopicPartition(topic, 0)])
        assert await other.getmany(timeout_ms=3_000) == {}
        await consumer.commit()
        assert await committed(consumer, TopicPartition(topic, 0)) == 5


@both_protocols
async def test_a_member_that_polls_too_seldom_loses_its_partitions(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 5, 2)
    worker = Worker(bootstrap_servers, topic, group_id)
    async with Consumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        **(MEMBER | {"max_poll_interval_ms": 700}),
    ) as slow:
        read = {record.value for record in await take(slow, 10)}
        async with at_work(worker):
            await until([worker], lambda: worker.values == read)
            with pytest.raises(CommitFailed):
                await slow.commit()
            await poll_until(slow, lambda: bool(slow.assignment()))


async def test_a_listener_hears_what_is_assigned_and_revoked(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=4)
    rebalances: list[tuple[str, frozenset[TopicPartition]]] = []

    class Listener:
        async def on_partitions_assigned(self, partitions: object) -> None:
            rebalances.append(("assigned", frozenset(partitions)))

        async def on_partitions_revoked(self, partitions: object) -> None:
            rebalances.append(("revoked", frozenset(partitions)))

        async def on_partitions_lost(self, partitions: object) -> None:
            rebalances.append(("lost", frozenset(partitions)))

    everything = frozenset(partitions_of(topic, 4))
    worker = Worker(bootstrap_servers, topic, group_id)
    async with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
    ) as consumer:
        consumer.subscribe([topic], listener=Listener())
        # The listener is called soon after the assignment.
        await poll_until(consumer, lambda: len(rebalances) >= 1)
        assert rebalances == [("assigned", everything)]
        async with at_work(worker):
            await poll_until(consumer, lambda: len(rebalances) >= 3)
            kept = frozenset(consumer.assignment())
            assert rebalances[1:] == [("revoked", everything), ("assigned", kept)]
            await poll_until(consumer, lambda: worker.owned == 2)
            assert frozenset(worker.consumer.assignment()) == everything - kept
    assert rebalances[-1][0] == "revoked"


@both_protocols
async def test_offsets_committed_at_revocation_are_where_the_next_owner_begins(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 20, 2)
    options = MEMBER | {
        "enable_auto_commit": True,
        "auto_commit_interval_ms": 60_000,
        "max_poll_records": 10,
    }
    worker = Worker(bootstrap_servers, topic, group_id)
    async with Consumer(
        topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **options
    ) as consumer:
        records = await take(consumer, 10)
        async with at_work(worker):
            consumer.pause(*partitions_of(topic, 2))
            records += await poll_until(consumer, lambda: len(consumer.assignment()) == 1)
            consumer.resume(*consumer.assignment())
            with anyio.fail_after(WITHIN_S):
                while len(records) + len(worker.seen) < 40:
                    for some in (await consumer.getmany(timeout_ms=50)).values():
                        records.extend(some)
    values = [record.value for record in [*records, *worker.seen]]
    assert sorted(values) == sorted(spread_values(20, 2))
    assert worker.seen


@both_protocols
async def test_a_pattern_finds_topics_made_later(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    first = await new_topic()
    await fill(bootstrap_servers, first, [b"first"])
    async with Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        metadata_max_age_ms=200,
        **MEMBER,
    ) as consumer:
        later = f"later-{group_id}"
        consumer.subscribe(pattern=re.compile(f"{first}|{later}"))
        assert [record.value for record in await take(consumer, 1)] == [b"first"]
        await consumer.commit()
        await fill(bootstrap_servers, later, [b"second"])
        assert [record.topic for record in await take(consumer, 1)] == [later]


@both_protocols
async def test_one_member_may_read_several_topics(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topics = [await new_topic(), await new_topic()]
    for topic in topics:
        await fill(bootstrap_servers, topic, numbered(5))
    async with Consumer(
        *topics, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
    ) as consumer:
        records = await take(consumer, 10)
        assert {partition.topic for partition in consumer.assignment()} == set(topics)
    assert {record.topic for record in records} == set(topics)


@both_protocols
async def test_a_changed_subscription_moves_the_assignment(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    first, second = await new_topic(), await new_topic(partitions=2)
    await fill(bootstrap_servers, first, [b"first"])
    await fill(bootstrap_servers, second, [b"second"])
    async with Consumer(
        first, bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
    ) as consumer:
        await take(consumer, 1)
        consumer.subscribe([second])
        assert [record.value for record in await take(consumer, 1)] == [b"second"]
        assert set(consumer.assignment()) == set(partitions_of(second, 2))


@both_protocols
async def test_more_members_than_partitions_leaves_one_idle_but_ready(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=1)
    workers = [Worker(bootstrap_servers, topic, group_id) for _ in range(2)]
    async with at_work(*workers):
        await until(workers, lambda: sorted(worker.owned for worker in workers) == [0, 1])
        await fill(bootstrap_servers, topic, numbered(5))
        await until(workers, lambda: _all(workers) == set(numbered(5)))
        idle, busy = sorted(workers, key=lambda worker: worker.owned)
        assert idle.seen == []
        await busy.leave()
        await until([idle], lambda: idle.owned == 1)
        await fill(bootstrap_servers, topic, [b"for the idle one"])
        await until([idle], lambda: idle.values == {b"for the idle one"})
