"""Share groups: members share partitions, and acknowledge each record (KIP-932)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiokafkawire.admin import Admin, ConfigResource, ConfigResourceType
from aiokafkawire.errors import AcknowledgementFailed, IllegalState
from aiokafkawire.share import AcknowledgeType, ShareConsumer, ShareRecord
from aiokafkawire.types import TopicPartition
from tests.behaviour.conftest import NewTopic
from tests.behaviour.features import needs
from tests.behaviour.support import POLL_MS, WITHIN_S, fill, numbered

pytestmark = [pytest.mark.slow, needs("share groups")]

LOCK_MS = 4_000
EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}

OpenMember = Callable[..., ShareConsumer]


@pytest.fixture
async def member(
    bootstrap_servers: str, admin: Admin, group_id: str, topic: str
) -> Callable[..., ShareConsumer]:
    """Make a member of a group that reads `topic` from its start: `member(**options)`."""
    await configure(admin, group_id, {"share.auto.offset.reset": "earliest"})

    def make(*topics: str, **options: Any) -> ShareConsumer:
        options = {"group_id": group_id, "fetch_max_wait_ms": 100} | options
        return ShareConsumer(*(topics or (topic,)), bootstrap_servers=bootstrap_servers, **options)

    return make


async def configure(admin: Admin, group_id: str, configs: Mapping[str, str | None]) -> None:
    group = ConfigResource(ConfigResourceType.GROUP, group_id)
    await admin.incremental_alter_configs({group: configs})


async def take(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Read exactly `count` records; fail if they do not arrive."""
    records: list[ShareRecord] = []
    with anyio.fail_after(WITHIN_S):
        while len(records) < count:
            wanted = count - len(records)
            found = await consumer.getmany(timeout_ms=POLL_MS, max_records=wanted)
            for some in found.values():
                records.extend(some)
    return records


def values(records: Sequence[ShareRecord]) -> list[bytes | None]:
    return [record.value for record in records]


async def no_more(consumer: ShareConsumer) -> bool:
    return not await consumer.getmany(timeout_ms=1_000)


# --- implicit mode ------------------------------------------------------------------------------


async def test_records_are_accepted_when_their_task_calls_again(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(20))
    async with member() as consumer:
        seen = []
        with anyio.fail_after(WITHIN_S):
            async for record in consumer:
                seen.append(record.value)
                assert record.delivery_count == 1
                if len(seen) == 20:
                    break
    assert seen == numbered(20)
    async with member() as consumer:
        assert await no_more(consumer)


async def test_a_lock_that_ended_before_the_next_call_is_reported(
    bootstrap_servers: str, admin: Admin, group_id: str, topic: str, member: OpenMember
) -> None:
    await configure(admin, group_id, {"share.record.lock.duration.ms": str(LOCK_MS)})
    await fill(bootstrap_servers, topic, numbered(2))
    reported: list[tuple[list[int], bool]] = []
    async with member() as consumer:
        consumer.set_acknowledgement_commit_callback(
            lambda _, offsets, error: reported.append((list(offsets), error is None))
        )
        await take(consumer, 2)
        await anyio.sleep(LOCK_MS / 1000 * 1.5)
        [error] = (await consumer.commit()).values()
        assert isinstance(error, AcknowledgementFailed)
        assert reported == [([0, 1], False)]
        again = await take(consumer, 2)
        assert [record.delivery_count for record in again] == [2, 2]
        assert [*(await consumer.commit()).values()] == [None]


async def test_a_failed_body_releases_its_records(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(2))

    async def fail() -> None:
        async with member() as consumer:
            await take(consumer, 1)
            await take(consumer, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with member() as consumer:
        [record] = await take(consumer, 1)
        assert (record.value, record.delivery_count) == (b"00001", 2)


async def test_a_cancelled_task_releases_its_records(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(1))
    async with member() as consumer, anyio.create_task_group() as tasks:
        delivered = anyio.Event()

        async def handle() -> None:
            async for _ in consumer:
                delivered.set()
                await anyio.sleep_forever()

        tasks.start_soon(handle)
        with anyio.fail_after(WITHIN_S):
            await delivered.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(WITHIN_S):
            await anyio.lowlevel.checkpoint()
    async with member() as consumer:
        [record] = await take(consumer, 1)
        assert (record.value, record.delivery_count) == (b"00000", 2)


async def test_records_of_an_ended_task_come_to_another_task(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(1))
    async with member() as consumer:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take, consumer, 1)
        [record] = await take(consumer, 1)
        assert record.delivery_count == 2


async def test_a_record_may_be_acknowledged_otherwise(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(3))
    async with member() as consumer:
        first, second, third = await take(consumer, 3)
        second.release()
        third.reject()
        [again] = await take(consumer, 1)
        assert (again.value, again.delivery_count) == (second.value, 2)
        assert first.lock_expires_at is None
        assert await no_more(consumer)


# --- explicit mode ------------------------------------------------------------------------------


async def test_acknowledgements_are_confirmed(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(4))
    async with member(**EXPLICIT) as consumer:
        accepted, released, rejected, left = await take(consumer, 4)
        await accepted.accept()
        await released.release()
        await rejected.reject()
        with pytest.raises(AcknowledgementFailed):
            accepted.accept()
        [again] = await take(consumer, 1)
        assert (again.value, again.delivery_count) == (released.value, 2)
        await again.accept()
        assert left.lock_expires_at is not None
    async with member(**EXPLICIT) as consumer:
        assert values(await take(consumer, 1)) == [left.value]
        assert await no_more(consumer)


async def test_a_record_is_a_context_manager(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(3))
    async with member(**EXPLICIT) as consumer:
        first, second, third = await take(consumer, 3)
        async with first:
            pass
        with pytest.raises(ZeroDivisionError):
            async with second:
                raise ZeroDivisionError
        with anyio.move_on_after(0.01):
            async with third:
                await anyio.sleep_forever()
        again = await take(consumer, 2)
        assert sorted(record.offset for record in again) == [1, 2]
        assert [record.delivery_count for record in again] == [2, 2]


async def test_commit_returns_the_result_of_each_partition(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(5))
    results: list[tuple[TopicPartition, Sequence[int], AcknowledgementFailed | None]] = []
    async with member(**EXPLICIT) as consumer:
        consumer.set_acknowledgement_commit_callback(lambda *result: results.append(result))
        for record in await take(consumer, 5):
            record.accept()
        tp = TopicPartition(topic, 0)
        assert await consumer.commit() == {tp: None}
        assert await consumer.commit() == {}
        metrics = consumer.metrics()
        assert metrics['acknowledgements_total{type="accept"}'] == 5
        assert metrics["records_consumed_total"] == 5
        assert metrics["acknowledgement_failures_total"] == 0
        assert metrics["fetches_total"] >= 2
    assert results == [(tp, [0, 1, 2, 3, 4], None)]


async def test_a_lock_expires_and_can_be_renewed(
    bootstrap_servers: str, admin: Admin, group_id: str, topic: str, member: OpenMember
) -> None:
    await configure(admin, group_id, {"share.record.lock.duration.ms": str(LOCK_MS)})
    await fill(bootstrap_servers, topic, numbered(2))
    async with member(**EXPLICIT) as consumer, member(**EXPLICIT) as other:
        assert consumer.acquisition_lock_timeout_ms is None
        kept, expired = await take(consumer, 2)
        assert consumer.acquisition_lock_timeout_ms == LOCK_MS
        until = kept.lock_expires_at
        await anyio.sleep(LOCK_MS / 2000)
        await kept.renew()
        assert until is not None
        assert kept.lock_expires_at is not None
        assert kept.lock_expires_at > until
        [again] = await take(other, 1)
        assert (again.value, again.delivery_count) == (expired.value, 2)
        with pytest.raises(AcknowledgementFailed):
            expired.accept()
        await kept.accept()
        await again.accept()


async def test_locks_are_renewed_while_the_application_works(
    bootstrap_servers: str, admin: Admin, group_id: str, topic: str, member: OpenMember
) -> None:
    await configure(admin, group_id, {"share.record.lock.duration.ms": str(LOCK_MS)})
    renewing = {"share_renewal_limit_ms": 60_000}
    for options in (EXPLICIT | renewing, renewing):
        # One after the other: a fetch of the first could acquire the record of the second.
        async with member(**options) as consumer:
            await fill(bootstrap_servers, topic, numbered(1))
            [record] = await take(consumer, 1)
            await anyio.sleep(LOCK_MS / 1000 * 1.6)
            await record.accept()
            assert await no_more(consumer)


async def test_a_record_is_acknowledged_by_its_offset(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(2))
    async with member(**EXPLICIT) as consumer:
        await take(consumer, 2)
        await consumer.acknowledge(topic, 0, 0, AcknowledgeType.ACCEPT)
        with pytest.raises(AcknowledgementFailed):
            consumer.acknowledge(topic, 0, 0, AcknowledgeType.ACCEPT)
        with pytest.raises(AcknowledgementFailed):
            consumer.acknowledge(topic, 0, 99, AcknowledgeType.ACCEPT)
    async with member() as consumer:
        assert values(await take(consumer, 1)) == [b"00001"]


# --- members ------------------------------------------------------------------------------------


async def test_members_share_a_partition(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    wanted = numbered(300)
    seen: Counter[bytes] = Counter()
    limited = {"share_acquire_mode": "record_limit", "max_poll_records": 10}
    async with member(**limited) as one, member(**limited) as two:
        await fill(bootstrap_servers, topic, wanted)
        counts = [0, 0]
        with anyio.fail_after(WITHIN_S):
            while seen.keys() < set(wanted):
                for number, consumer in enumerate((one, two)):
                    for some in (await consumer.getmany(timeout_ms=50)).values():
                        counts[number] += len(some)
                        seen.update(record.value for record in some if record.value is not None)
        assert set(seen.values()) == {1}
        assert all(counts)


async def test_several_partitions_and_topics_are_read(
    bootstrap_servers: str, new_topic: NewTopic, member: OpenMember
) -> None:
    topics = [await new_topic(partitions=3), await new_topic(partitions=2)]
    for number, name in enumerate(topics):
        for partition in range(3 - number):
            await fill(bootstrap_servers, name, numbered(5), partition)
    async with member(*topics) as consumer:
        records = await take(consumer, 25)
        assert len({(record.topic, record.partition) for record in records}) == 5
        assert len(consumer.assignment()) == 5
        assert await no_more(consumer)


async def test_the_subscription_changes(
    bootstrap_servers: str, topic: str, new_topic: NewTopic, member: OpenMember
) -> None:
    other = await new_topic()
    await fill(bootstrap_servers, topic, numbered(1))
    await fill(bootstrap_servers, other, numbered(1, start=5))
    async with member() as consumer:
        assert values(await take(consumer, 1)) == [b"00000"]
        consumer.subscribe(other)
        assert values(await take(consumer, 1)) == [b"00005"]
        consumer.subscribe([topic, other])
        assert consumer.subscription() == {topic, other}
        consumer.unsubscribe()
        assert consumer.subscription() == frozenset()
        with pytest.raises(IllegalState, match="subscribe"):
            await consumer.getone()


async def test_closing_releases_records_that_were_not_delivered(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(10))
    async with member(**EXPLICIT) as consumer:
        [record] = await take(consumer, 1)
        record.accept()
    async with member(**EXPLICIT) as consumer:
        assert values(await take(consumer, 9)) == numbered(9, start=1)


async def test_unsubscribing_releases_the_records_that_are_not_delivered(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(10))
    async with member(**EXPLICIT) as consumer, member(**EXPLICIT) as other:
        [first] = await take(consumer, 1)
        consumer.unsubscribe()
        rest = await take(other, 9)
        assert sorted(values([first, *rest])) == numbered(10)  # type: ignore[type-var]
        await first.accept()


async def test_another_subscription_releases_the_records_that_are_not_delivered(
    bootstrap_servers: str, topic: str, new_topic: NewTopic, member: OpenMember
) -> None:
    other = await new_topic()
    await fill(bootstrap_servers, topic, numbered(10))
    async with member(**EXPLICIT) as consumer, member(**EXPLICIT) as reader:
        [first] = await take(consumer, 1)
        consumer.subscribe([other])
        assert consumer.assignment() == frozenset()
        assert await consumer.getmany() == {}
        rest = await take(reader, 9)
        assert sorted(values([first, *rest])) == numbered(10)  # type: ignore[type-var]
        consumer.subscribe([topic])
        with anyio.fail_after(WITHIN_S):
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=POLL_MS)


async def test_no_more_records_are_acquired_than_wanted(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(10))
    limited = {"share_acquire_mode": "record_limit", "max_poll_records": 3}
    async with member(**EXPLICIT, **limited) as consumer, member(**EXPLICIT) as other:
        first = await take(consumer, 3)
        rest = await take(other, 7)
        assert sorted(values([*first, *rest])) == numbered(10)  # type: ignore[type-var]


async def test_a_cancelled_call_loses_no_record(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    async with member() as consumer:
        with anyio.move_on_after(0.3):
            await consumer.getone()
        await fill(bootstrap_servers, topic, numbered(3))
        records: list[ShareRecord] = []
        with anyio.fail_after(WITHIN_S):
            while len(records) < 3:
                with anyio.move_on_after(0.02):
                    records.append(await consumer.getone())
        assert values(records) == numbered(3)


async def test_calls_that_do_not_wait_get_records(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(3))
    async with member() as consumer:
        seen: list[bytes | None] = []
        with anyio.fail_after(WITHIN_S):
            while len(seen) < 3:
                for records in (await consumer.getmany()).values():
                    seen += values(records)
                await anyio.sleep(0.01)
        assert seen == numbered(3)


async def test_batches_have_records_of_one_partition(
    bootstrap_servers: str, topic: str, member: OpenMember
) -> None:
    await fill(bootstrap_servers, topic, numbered(6))
    async with member(max_poll_records=4) as consumer:
        seen: list[bytes | None] = []
        with anyio.fail_after(WITHIN_S):
            async for batch in consumer.batches():
                assert len(batch) <= 4
                seen += values(batch)
                if len(seen) == 6:
                    break
    assert seen == numbered(6)
