"""Commits, and reading on from the committed offsets."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from aiokafkawire.consumer import Consumer, RebalanceListener
from aiokafkawire.errors import ClientClosed, CommitFailed
from aiokafkawire.types import OffsetAndMetadata
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
    settle,
    spread,
    take,
)


def member(bootstrap_servers: str, topic: str, group_id: str, **options: Any) -> Consumer:
    return Consumer(
        topic, bootstrap_servers=bootstrap_servers, group_id=group_id, **(MEMBER | options)
    )


@needs("groups")
@both_protocols
async def test_commit_and_resume(bootstrap_servers: str, topic: str, group_id: str):
    await fill(bootstrap_servers, topic, numbered(10))
    [partition] = partitions_of(topic, 1)
    async with member(bootstrap_servers, topic, group_id, max_poll_records=4) as consumer:
        assert await committed(consumer, partition) is None
        await take(consumer, 4)
        await consumer.commit()
        assert await committed(consumer, partition) == 4
        await take(consumer, 4)
    async with member(bootstrap_servers, topic, group_id) as consumer:
        assert [record.value for record in await take(consumer, 6)] == numbered(6, start=4)


@needs("groups")
@both_protocols
async def test_commit_of_given_offsets_with_a_note(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 5, 2)
    zero, one = partitions_of(topic, 2)
    async with member(bootstrap_servers, topic, group_id) as consumer:
        await take(consumer, 10)
        await consumer.commit({zero: 2, one: OffsetAndMetadata(3, "a note")})
        found = await consumer.committed(zero, one)
        assert found[zero] is not None
        assert found[one] is not None
        assert (found[zero].offset, found[zero].metadata) == (2, "")
        assert (found[one].offset, found[one].metadata) == (3, "a note")
    async with member(bootstrap_servers, topic, group_id) as consumer:
        values = {record.value for record in await take(consumer, 5)}
    assert values == {b"0/2", b"0/3", b"0/4", b"1/3", b"1/4"}


@needs("groups")
@both_protocols
async def test_commit_of_a_batch(bootstrap_servers: str, topic: str, group_id: str):
    await fill(bootstrap_servers, topic, numbered(10))
    [partition] = partitions_of(topic, 1)
    async with member(bootstrap_servers, topic, group_id, max_poll_records=3) as consumer:
        with anyio.fail_after(WITHIN_S):
            async for batch in consumer.batches():
                await consumer.commit(batch)
                assert await committed(consumer, partition) == batch.next_offset
                if batch.next_offset >= 6:
                    break
    async with member(bootstrap_servers, topic, group_id) as consumer:
        first = (await take(consumer, 1))[0]
        assert first.offset == batch.next_offset


@needs("offsets in Kafka")
@both_protocols
async def test_a_consumer_with_assigned_partitions_may_commit(
    bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(6))
    [partition] = partitions_of(topic, 1)
    options = MEMBER | {"bootstrap_servers": bootstrap_servers, "group_id": group_id}
    async with Consumer(**options) as consumer:
        consumer.assign([partition])
        await take(consumer, 6)
        await consumer.commit({partition: 4})
    async with Consumer(**options) as consumer:
        consumer.assign([partition])
        assert [record.value for record in await take(consumer, 2)] == numbered(2, start=4)


async def test_a_commit_without_a_group_is_refused(bootstrap_servers: str, topic: str):
    [partition] = partitions_of(topic, 1)
    async with Consumer(bootstrap_servers=bootstrap_servers, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        with pytest.raises(Exception, match="group_id"):
            await consumer.commit({partition: 1})
        with pytest.raises(Exception, match="group_id"):
            await consumer.committed(partition)


@needs("groups")
@both_protocols
async def test_leaving_commits_with_auto_commit(bootstrap_servers: str, topic: str, group_id: str):
    await fill(bootstrap_servers, topic, numbered(5))
    async with member(bootstrap_servers, topic, group_id, enable_auto_commit=True) as consumer:
        await take(consumer, 5)
    await fill(bootstrap_servers, topic, [b"later"])
    async with member(bootstrap_servers, topic, group_id) as consumer:
        assert [record.value for record in await take(consumer, 1)] == [b"later"]


@needs("groups")
@both_protocols
async def test_leaving_commits_nothing_without_auto_commit(
    bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(5))
    async with member(bootstrap_servers, topic, group_id) as consumer:
        await take(consumer, 5)
    async with member(bootstrap_servers, topic, group_id) as consumer:
        assert [record.value for record in await take(consumer, 5)] == numbered(5)


@needs("groups")
@both_protocols
async def test_auto_commit_works_while_the_application_reads(
    bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(5))
    [partition] = partitions_of(topic, 1)
    async with (
        Consumer(bootstrap_servers=bootstrap_servers, group_id=group_id) as watcher,
        member(
            bootstrap_servers,
            topic,
            group_id,
            enable_auto_commit=True,
            auto_commit_interval_ms=50,
        ) as consumer,
    ):
        await take(consumer, 5)
        with anyio.fail_after(WITHIN_S):
            while await committed(watcher, partition) != 5:
                assert await consumer.getmany(timeout_ms=50) == {}


@needs("groups")
@both_protocols
async def test_auto_commit_never_passes_what_is_still_worked_on(
    bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(6))
    [partition] = partitions_of(topic, 1)
    async with member(
        bootstrap_servers,
        topic,
        group_id,
        enable_auto_commit=True,
        auto_commit_interval_ms=20,
        max_poll_records=3,
    ) as consumer:
        await take(consumer, 3)
        await consumer.getmany(timeout_ms=20_000)
        async with Consumer(bootstrap_servers=bootstrap_servers, group_id=group_id) as watcher:
            with anyio.fail_after(WITHIN_S):
                while await committed(watcher, partition) != 3:
                    pass
            for _ in range(20):
                assert await committed(watcher, partition) == 3


@needs("groups")
@both_protocols
async def test_work_that_raised_is_not_committed(bootstrap_servers: str, topic: str, group_id: str):
    await fill(bootstrap_servers, topic, numbered(6))

    async def fail_at_the_fourth() -> None:
        async with member(bootstrap_servers, topic, group_id, enable_auto_commit=True) as consumer:
            async for record in consumer:
                if record.offset == 3:
                    raise ArithmeticError(record.value)

    with pytest.raises(ArithmeticError), anyio.fail_after(WITHIN_S):
        await fail_at_the_fourth()
    async with member(bootstrap_servers, topic, group_id) as consumer:
        assert [record.value for record in await take(consumer, 3)] == numbered(3, start=3)


@needs("groups")
@both_protocols
async def test_seek_to_committed_reads_again_what_was_not_committed(
    bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(6))
    async with member(bootstrap_servers, topic, group_id) as consumer:
        await take(consumer, 6)
        await consumer.commit({(topic, 0): 2})
        await consumer.seek_to_committed()
        assert [record.value for record in await take(consumer, 4)] == numbered(4, start=2)


@needs("groups")
@both_protocols
async def test_two_groups_have_positions_of_their_own(
    bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(4))
    async with member(bootstrap_servers, topic, group_id) as consumer:
        await take(consumer, 4)
        await consumer.commit()
    async with member(bootstrap_servers, topic, f"{group_id}-other") as consumer:
        assert [record.value for record in await take(consumer, 4)] == numbered(4)


@needs("groups")
@both_protocols
async def test_a_partition_of_another_member_is_not_committed(
    bootstrap_servers: str, new_topic: NewTopic, group_id: str
):
    topic = await new_topic(partitions=2)
    await spread(bootstrap_servers, topic, 3, 2)
    async with (
        member(bootstrap_servers, topic, group_id) as one,
        member(bootstrap_servers, topic, group_id) as other,
    ):
        await settle(one, other, partitions=2)
        [not_mine] = other.assignment()
        with pytest.raises(CommitFailed) as caught:
            await one.commit({not_mine: 1})
        assert (caught.value.topic, caught.value.partition) == not_mine
        assert await committed(other, not_mine) is None


@needs("groups")
@both_protocols
async def test_invalid_offsets_are_rejected_at_the_call(
    bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(3))
    [partition] = partitions_of(topic, 1)
    async with member(bootstrap_servers, topic, group_id) as consumer:
        await take(consumer, 3)
        for wrong in ("2", 2.0, None, True, OffsetAndMetadata(2, b"bytes")):
            with pytest.raises(TypeError):
                await consumer.commit({partition: wrong})
        for wrong in (-1, 2**63):
            with pytest.raises(ValueError, match=str(wrong)):
                await consumer.commit({partition: wrong})
        assert await committed(consumer, partition) is None
        await consumer.commit({partition: 2})
        assert await committed(consumer, partition) == 2


@needs("groups")
@both_protocols
async def test_a_listener_commits_what_goes_when_the_consumer_is_closed(
    bootstrap_servers: str, topic: str, group_id: str
):
    await fill(bootstrap_servers, topic, numbered(3))
    [partition] = partitions_of(topic, 1)

    class Cellar(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Any) -> None:
            position = await consumer.position(partition)
            await consumer.commit({partition: position - 1})

    async with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group_id, **MEMBER
    ) as consumer:
        consumer.subscribe([topic], listener=Cellar())
        await take(consumer, 3)
    with pytest.raises(ClientClosed):
        await consumer.position(partition)
    async with member(bootstrap_servers, topic, group_id) as after:
        assert await committed(after, partition) == 2
