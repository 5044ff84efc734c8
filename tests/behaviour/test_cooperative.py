"""Members that keep their partitions during a rebalance (KIP-429)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import CommitFailed
from aiokafkawire.types import TopicPartition
from tests.behaviour.client_options import both_protocols
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs
from tests.behaviour.support import (
    MEMBER,
    committed,
    fill,
    numbered,
    partitions_of,
    poll_until,
    settle,
    spread,
    spread_values,
    take,
)
from tests.behaviour.workers import Source, Worker, at_work, until

pytestmark = [needs("groups"), pytest.mark.slow]

COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}
BRIDGE: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky", "range"]}
EAGER: dict[str, Any] = {"partition_assignment_strategy": ["range"]}


class ListenerLog(RebalanceListener):
    """Callbacks of a listener in order; empty rebalances are left out.

    `assigned` has the partitions that callbacks have added so far.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []
        self.assigned: set[TopicPartition] = set()
        self.rebalances = 0

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.rebalances += 1
        self.assigned.update(partitions)
        if partitions:
            self.calls.append(("assigned", frozenset(partitions)))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", frozenset(partitions)))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("lost", frozenset(partitions)))


@asynccontextmanager
async def member(
    bootstrap_servers: str, group_id: str, *topics: str, **options: Any
) -> AsyncIterator[tuple[Consumer, ListenerLog]]:
    notes = ListenerLog()
    async with Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        **(MEMBER | COOPERATIVE | options),
    ) as consumer:
        if topics:
            consumer.subscribe(topics, listener=notes)
        yield consumer, notes


@both_protocols
async def test_members_share_evenly_and_each_record_comes_once(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=6)
    workers = [Worker(bootstrap_servers, topic, group_id, **COOPERATIVE) for _ in range(3)]
    async with at_work(*workers):
        await until(workers, lambda: [worker.owned for worker in workers] == [2, 2, 2])
        owned = [tp for worker in workers for tp in worker.consumer.assignment()]
        assert sorted(owned) == partitions_of(topic, 6)
        await spread(bootstrap_servers, topic, 10, 6)
        everything = spread_values(10, 6)
        await until(workers, lambda: set.union(*(w.values for w in workers)) == everything)
    assert sum(len(worker.seen) for worker in workers) == len(everything)


@both_protocols
async def test_only_the_difference_is_revoked_and_assigned(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=4)
    everything = frozenset(partitions_of(topic, 4))
    async with member(bootstrap_servers, group_id, topic) as (one, ones):
        await settle(one, partitions=4)
        async with member(bootstrap_servers, group_id, topic) as (two, twos):
            await settle(one, two, partitions=4)
            await poll_until(two, lambda: len(twos.calls) > 0)
            kept = frozenset(one.assignment())
            assert len(kept) == 2
            assert ones.calls == [("assigned", everything), ("revoked", everything - kept)]
            assert twos.calls == [("assigned", everything - kept)]
        await settle(one, partitions=4)
        await poll_until(one, lambda: len(ones.calls) > 2)
        assert ones.calls[2:] == [("assigned", everything - kept)]
        assert twos.calls[1:] == [("revoked", everything - kept)]
    assert ones.calls[-1] == ("revoked", everything)


@both_protocols
async def test_what_is_kept_is_read_on_from_where_it_was_though_nothing_was_committed(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=4)
    await spread(bootstrap_servers, topic, 5, 4)
    async with member(bootstrap_servers, group_id, topic) as (one, _):
        await take(one, 20)
        async with member(bootstrap_servers, group_id, topic) as (two, _):
            again = await settle(one, two, partitions=4)
            kept, moved = one.assignment(), two.assignment()
            for tp in kept:
                assert await one.position(tp) == 5
            again += await poll_until(two, lambda: all(two.lag(tp) == 0 for tp in moved))
    # Of the moved partitions nothing was committed: the new owner starts at the beginning.
    assert {record.topic_partition for record in again} == moved
    assert len(again) == 10


@both_protocols
async def test_reading_goes_on_while_members_come_and_go(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=6)
    workers = [Worker(bootstrap_servers, topic, group_id, **COOPERATIVE) for _ in range(3)]
    source = Source(bootstrap_servers, topic, 6)
    async with at_work(workers[0]) as group:
        group.start_soon(source.work)
        await until(workers[:1], lambda: len(workers[0].seen) > 30)
        group.start_soon(workers[1].work)
        await until(workers[:2], lambda: len(workers[1].seen) > 30)
        group.start_soon(workers[2].work)
        await until(workers, lambda: len(workers[2].seen) > 30)
        await workers[1].leave()
        so_far = len(workers[2].seen)
        await until(workers, lambda: len(workers[2].seen) > so_far + 30)
        await source.stop()
        await until(workers, lambda: set.union(*(w.values for w in workers)) == source.sent)
        await workers[2].leave()
    assert sum(len(worker.seen) for worker in workers) == len(source.sent)
    for worker in workers:
        offsets: dict[int, int] = {}
        for record in worker.seen:
            assert record.offset > offsets.get(record.partition, -1)
            offsets[record.partition] = record.offset


@both_protocols
async def test_auto_commit_hands_over_exactly_what_was_processed(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=4)
    await spread(bootstrap_servers, topic, 20, 4)
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
    async with member(bootstrap_servers, group_id, topic, **options) as (one, _):
        records = await take(one, 40)
        async with member(bootstrap_servers, group_id, topic, **options) as (two, _):
            records += await settle(one, two, partitions=4)
            while len(records) < 80:
                for consumer in (one, two):
                    for some in (await consumer.getmany(timeout_ms=20)).values():
                        records.extend(some)
    assert sorted(record.value or b"" for record in records) == sorted(spread_values(20, 4))


@both_protocols
async def test_what_is_kept_can_be_committed_all_the_time(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 5, 2)
    worker = Worker(bootstrap_servers, topic, group_id, **COOPERATIVE)
    async with member(bootstrap_servers, group_id, topic) as (one, notes):
        await take(one, 10)
        async with at_work(worker):
            offset = 0
            refused: list[int | None] = []
            while worker.owned == 0:
                offset = min(offset + 1, 5)
                await one.getmany(timeout_ms=5)
                for tp in one.assignment():
                    # Commits for partitions being revoked are rejected; no others.
                    try:
                        await one.commit({tp: offset})
                    except CommitFailed as error:
                        refused.append(error.partition)
            (kept,) = one.assignment()
            await one.commit({kept: 5})
            assert await committed(one, kept) == 5
            (gone,) = set(partitions_of(topic, 2)) - {kept}
            assert set(refused) <= {gone.partition}
            with pytest.raises(CommitFailed, match=group_id):
                await one.commit({gone: 1})
    assert ("revoked", frozenset({gone})) in notes.calls


async def test_an_upgrade_from_eager_to_cooperative_one_member_at_a_time(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=4)

    def worker(options: dict[str, Any]) -> Worker:
        return Worker(bootstrap_servers, topic, group_id, **options)

    source = Source(bootstrap_servers, topic, 4)
    old = [worker(EAGER), worker(EAGER)]
    every = list(old)
    async with at_work(*old) as group:
        group.start_soon(source.work)
        await until(every, lambda: [each.owned for each in old] == [2, 2])
        for options in (BRIDGE, COOPERATIVE):
            for index in range(2):
                await old[index].leave()
                new = old[index] = worker(options)
                every.append(new)
                group.start_soon(new.work)
                await until(every, lambda: [each.owned for each in old] == [2, 2])
                so_far = len(new.seen)
                await until(every, lambda new=new, so_far=so_far: len(new.seen) > so_far + 5)
        await source.stop()
        await until(old, lambda: set.union(*(each.values for each in every)) == source.sent)
        for each in old:
            await each.leave()
    assert sum(len(each.seen) for each in every) == len(source.sent)


@both_protocols
async def test_a_topic_less_in_the_subscription_takes_nothing_else(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    first, second = await new_topic(partitions=2), await new_topic(partitions=2)
    async with member(bootstrap_servers, group_id, first, second) as (one, notes):
        await settle(one, partitions=4)
        # The callback follows the assignment. A coordinator that did not know both topics yet has
        # assigned them one after the other.
        await poll_until(one, lambda: notes.assigned == one.assignment())
        rebalances, calls = notes.rebalances, len(notes.calls)
        await fill(bootstrap_servers, second, numbered(5))
        one.subscribe([first], listener=notes)
        assert await poll_until(one, lambda: len(one.assignment()) == 2) == []
        await poll_until(one, lambda: notes.rebalances > rebalances)
        assert notes.calls[calls:] == [("revoked", frozenset(partitions_of(second, 2)))]
        one.subscribe([first, second], listener=notes)
        assert len(await take(one, 5)) == 5
        assert notes.calls[calls + 1 :] == [("assigned", frozenset(partitions_of(second, 2)))]


@both_protocols
async def test_a_topic_more_by_pattern_takes_nothing(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    first = await new_topic()
    await fill(bootstrap_servers, first, numbered(5))
    later = f"later-{group_id}"
    notes = ListenerLog()
    async with member(bootstrap_servers, group_id, metadata_max_age_ms=100) as (one, _):
        one.subscribe(pattern=re.compile(f"{first}|{later}"), listener=notes)
        await take(one, 5)
        await fill(bootstrap_servers, later, [b"later"])
        assert [record.value for record in await take(one, 1)] == [b"later"]
        assert await one.position(TopicPartition(first, 0)) == 5
    assert [name for name, _ in notes.calls] == ["assigned", "assigned", "revoked"]


@both_protocols
async def test_a_member_past_max_poll_interval_loses_its_partitions_and_gets_an_error(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 5, 2)
    worker = Worker(bootstrap_servers, topic, group_id, **COOPERATIVE)
    async with member(bootstrap_servers, group_id, topic, max_poll_interval_ms=500) as (one, notes):
        await take(one, 10)
        async with at_work(worker):
            await until([worker], lambda: worker.owned == 2)
            with pytest.raises(CommitFailed):
                await one.commit()
            await poll_until(one, lambda: bool(one.assignment()))
    # One of them would have been revoked anyway, but nobody polled: it is lost like the other.
    assert notes.calls[1] == ("lost", frozenset(partitions_of(topic, 2)))
    assert [name for name, _ in notes.calls] == ["assigned", "lost", "assigned", "revoked"]


@both_protocols
async def test_unsubscribing_hands_over_at_once(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=2)
    worker = Worker(bootstrap_servers, topic, group_id, **COOPERATIVE)
    async with member(bootstrap_servers, group_id, topic) as (one, notes):
        async with at_work(worker):
            await poll_until(one, lambda: worker.owned == len(one.assignment()) == 1)
            one.unsubscribe()
            await until([worker], lambda: worker.owned == 2)
        assert notes.calls[-1][0] == "revoked"
        assert one.assignment() == frozenset()


@pytest.mark.parametrize("strategy", ["roundrobin", "sticky"])
async def test_other_assignors_divide_evenly_too(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str, strategy: str
):
    topic = await new_topic(partitions=4)
    options = {"partition_assignment_strategy": [strategy]}
    workers = [Worker(bootstrap_servers, topic, group_id, **options) for _ in range(2)]
    async with at_work(*workers):
        await until(workers, lambda: [worker.owned for worker in workers] == [2, 2])
        await spread(bootstrap_servers, topic, 5, 4)
        await until(workers, lambda: sum(len(worker.seen) for worker in workers) == 20)
