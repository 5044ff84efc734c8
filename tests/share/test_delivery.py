"""Which task has which records, and what becomes of them."""

from __future__ import annotations

import gc
import weakref
from typing import Any
from uuid import UUID

import anyio
import pytest

from aiokafkawire.errors import AcknowledgementFailed, CorruptRecord
from aiokafkawire.group.topic_id_partition import TopicIdPartition
from aiokafkawire.runtime import current_task
from aiokafkawire.share.acknowledgements import AcknowledgeType, PartitionAcknowledgements
from aiokafkawire.share.corrupt_batches import CorruptBatches
from aiokafkawire.share.delivery import DELIVERY_MARGIN_S, ShareDelivery
from aiokafkawire.share.locks import AcquisitionLock
from aiokafkawire.share.offset_ranges import OffsetRanges
from aiokafkawire.share.record import HeldRecords
from aiokafkawire.share.records import ShareRecords
from tests.consumer.record_data import fetched, log

ORDERS = TopicIdPartition(UUID(int=1), "orders", 0)
BILLS = TopicIdPartition(UUID(int=2), "bills", 0)
LOCK_S = 30.0
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


class Node:
    """Notes acknowledgements, in place of `ShareNode`."""

    def __init__(self, count: int, lock: AcquisitionLock) -> None:
        self.acknowledged: dict[int, int] = {}
        self.held: OffsetRanges[AcquisitionLock] = OffsetRanges()
        self.held.set(0, count - 1, lock)
        self.lock = lock
        self.lost: list[int] = []
        self.hooks: list[object] = []

    def end_locks(self, first: int, last: int) -> None:
        self.held.remove(first, last)
        self.lock.lost.set(first, last, True)

    def complete(
        self, partition: TopicIdPartition, acknowledgements: PartitionAcknowledgements
    ) -> None:
        self.lost += sorted(offset for offset, _ in acknowledgements.expired)

    def locks(self, partition: TopicIdPartition) -> OffsetRanges[AcquisitionLock]:
        return self.held

    def undecided(
        self, partition: TopicIdPartition, first: int, last: int, lock: AcquisitionLock
    ) -> list[tuple[int, int]]:
        return [
            (offset, offset)
            for offset in range(first, last + 1)
            if self.held.get(offset) is not None and self.acknowledged.get(offset, RENEW) == RENEW
        ]

    def acknowledge(
        self, partition: TopicIdPartition, offsets: range, type: int, lock: Any, **options: Any
    ) -> None:
        self.acknowledged.update(dict.fromkeys(offsets, type))


def filled(count: int, **options: Any) -> tuple[ShareDelivery, Node, Clock]:
    clock = Clock()
    options = {"implicit": True, "renewal_limit_s": 0.0, "max_poll_records": 1} | options
    delivery = ShareDelivery(clock, **options)  # type: ignore[arg-type]
    return delivery, add(delivery, ORDERS, count), clock


def add(delivery: ShareDelivery, partition: TopicIdPartition, count: int) -> Node:
    """Buffer records behind those that are there."""
    lock = AcquisitionLock(0.0, LOCK_S)
    node = Node(count, lock)
    held = HeldRecords(node, partition, lock, 1)  # type: ignore[arg-type]
    records = fetched(log(count), tp=partition.topic_partition).take(count)
    delivery.add(ShareRecords.hold(records, held), held)
    return node


def add_bills(delivery: ShareDelivery, count: int) -> Node:
    return add(delivery, BILLS, count)


def iterated(delivery: ShareDelivery, caller: object, count: int) -> list[int]:
    """Take records as an iteration does."""
    records = []
    for _ in range(count):
        cursor = delivery.cursor
        record = None if cursor is None or cursor.owner != caller else cursor.next()
        if record is None:
            delivery.mark_processed(caller)
            record = delivery.next_record(caller, caller)
        assert record is not None
        records.append(record.offset)
    return records


def taken(delivery: ShareDelivery, caller: object, count: int) -> list[int]:
    return [r.offset for records in delivery.take(caller, count).values() for r in records]


def test_records_are_delivered_once_in_order() -> None:
    delivery, _, _ = filled(5)
    assert taken(delivery, "a", 2) == [0, 1]
    assert taken(delivery, "b", 9) == [2, 3, 4]
    assert (delivery.buffered_count, delivery.delivered_count) == (0, 5)


def test_a_batch_has_the_records_of_one_partition() -> None:
    delivery, _, _ = filled(2)
    add_bills(delivery, 3)
    batches = [delivery.take("a", 9, single_partition=True) for _ in range(3)]
    assert [{tp.topic: len(records) for tp, records in batch.items()} for batch in batches] == [
        {"orders": 2},
        {"bills": 3},
        {},
    ]


def test_a_call_accepts_the_records_of_its_task_alone() -> None:
    delivery, node, _ = filled(4)
    taken(delivery, "a", 2)
    taken(delivery, "b", 2)
    delivery.mark_processed("a")
    assert node.acknowledged == {}
    delivery.accept_processed()
    assert node.acknowledged == {0: ACCEPT, 1: ACCEPT}


async def test_an_iteration_accepts_all_records_but_the_last() -> None:
    delivery, node, _ = filled(4)
    task = current_task()
    assert iterated(delivery, task, 3) == [0, 1, 2]
    assert (delivery.buffered_count, delivery.delivered_count) == (1, 3)
    assert node.acknowledged == {}
    delivery.maintain()
    assert node.acknowledged == {0: ACCEPT, 1: ACCEPT}
    assert iterated(delivery, task, 1) == [3]
    delivery.maintain()
    assert node.acknowledged == dict.fromkeys(range(3), ACCEPT)


def test_records_of_an_iteration_come_to_another_call() -> None:
    delivery, node, _ = filled(6)
    assert iterated(delivery, "a", 2) == [0, 1]
    assert taken(delivery, "b", 3) == [2, 3, 4]
    assert iterated(delivery, "a", 1) == [5]
    delivery.accept_processed()
    assert node.acknowledged == {0: ACCEPT, 1: ACCEPT}
    delivery.mark_processed("b")
    delivery.accept_processed()
    assert node.acknowledged == dict.fromkeys(range(5), ACCEPT)


def test_a_cursor_ends_where_more_records_are_acquired() -> None:
    delivery, _, _ = filled(10, max_poll_records=10)
    iterated(delivery, "a", 6)
    assert delivery.cursor is not None
    assert len(delivery.cursor.records) == 6
    iterated(delivery, "a", 1)
    assert len(delivery.cursor.records) == 4


def test_a_cursor_ends_before_its_locks_expire() -> None:
    delivery, _, _ = filled(2)
    iterated(delivery, "a", 1)
    assert delivery.cursor is not None
    assert delivery.cursor.deliver_before == LOCK_S - DELIVERY_MARGIN_S


async def test_the_records_of_an_ended_task_are_released_but_for_the_processed_ones() -> None:
    delivery, node, _ = filled(5)

    async def work() -> None:
        iterated(delivery, current_task(), 3)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
    delivery.maintain()
    assert node.acknowledged == {0: ACCEPT, 1: ACCEPT, 2: RELEASE}


async def test_no_record_of_the_last_call_is_processed() -> None:
    """Whatever the number of partitions: the task fails with the first record."""
    delivery, orders, _ = filled(2)
    bills = add_bills(delivery, 2)

    async def work() -> None:
        delivery.take(current_task(), 4)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
    delivery.maintain()
    assert orders.acknowledged == bills.acknowledged == {0: RELEASE, 1: RELEASE}


async def test_the_next_call_of_an_iteration_has_processed_all_partitions() -> None:
    delivery, orders, _ = filled(2)
    bills = add_bills(delivery, 2)

    async def work() -> None:
        delivery.take(current_task(), 3)
        iterated(delivery, current_task(), 1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
    delivery.maintain()
    assert orders.acknowledged == {0: ACCEPT, 1: ACCEPT}
    assert bills.acknowledged == {0: ACCEPT, 1: RELEASE}


async def test_processed_records_of_a_slow_task_are_accepted() -> None:
    """They do not wait for the record that the task still processes."""
    delivery, node, _ = filled(4)
    iterated(delivery, current_task(), 3)
    delivery.maintain()
    assert node.acknowledged == {0: ACCEPT, 1: ACCEPT}
    iterated(delivery, current_task(), 1)
    delivery.maintain()
    assert node.acknowledged == dict.fromkeys(range(3), ACCEPT)


def test_closing_accepts_the_processed_records_of_all_tasks() -> None:
    """A body that raises, or another task that calls `stop`, has processed all but the last."""
    delivery, node, _ = filled(5)
    iterated(delivery, "a", 2)
    iterated(delivery, "b", 2)
    delivery.clear()
    assert node.acknowledged == {0: ACCEPT, 2: ACCEPT}
    assert delivery.buffered_count == 0


def test_undelivered_records_of_other_partitions_are_released() -> None:
    delivery, orders, _ = filled(4)
    bills = add_bills(delivery, 2)
    assert taken(delivery, "a", 2) == [0, 1]
    delivery.release_all_but({BILLS})
    assert orders.acknowledged == {2: RELEASE, 3: RELEASE}
    assert bills.acknowledged == {}
    assert delivery.buffered_count == 2
    assert taken(delivery, "a", 9) == [0, 1]


def test_corrupt_batches_of_a_partition_not_read_any_more_are_released() -> None:
    delivery, orders, _ = filled(6)
    held = HeldRecords(orders, ORDERS, orders.lock, 1)  # type: ignore[arg-type]
    raised, kept = CorruptRecord("checksum", offset=0), CorruptRecord("checksum", offset=4)
    delivery.clear()
    delivery.add_corrupt(ORDERS, CorruptBatches(raised, [(held, 0, 1)]))
    assert delivery.take_corrupt_error() is raised
    delivery.add_corrupt(ORDERS, CorruptBatches(kept, [(held, 4, 5)]))
    delivery.release_all_but({ORDERS})
    assert orders.acknowledged == {}
    delivery.release_all_but({BILLS})
    assert orders.acknowledged == {4: RELEASE, 5: RELEASE}
    assert delivery.take_corrupt_error() is None
    assert [record.offset for record in delivery.corrupt_records(raised)] == [0, 1]


def test_records_whose_lock_ends_soon_are_not_delivered() -> None:
    delivery, _, clock = filled(3)
    clock.time = LOCK_S - DELIVERY_MARGIN_S
    assert taken(delivery, "a", 3) == []
    assert delivery.buffered_count == 0


def test_records_of_a_lost_session_are_not_delivered() -> None:
    delivery, node, _ = filled(3)
    node.held.remove(0, 0)
    node.held.remove(2, 2)
    assert taken(delivery, "a", 3) == [1]


def test_locks_are_renewed_after_half_of_their_time_up_to_the_limit() -> None:
    delivery, node, clock = filled(2, implicit=False, renewal_limit_s=20.0)
    taken(delivery, "a", 2)
    node.acknowledged = {1: ACCEPT}
    clock.time = LOCK_S / 2 - 1
    delivery.maintain()
    assert node.acknowledged == {1: ACCEPT}
    clock.time = LOCK_S / 2
    delivery.maintain()
    assert node.acknowledged == {0: RENEW, 1: ACCEPT}
    node.acknowledged = {1: ACCEPT}
    clock.time = 20.0
    delivery.maintain()
    assert node.acknowledged == {1: ACCEPT}


@pytest.mark.parametrize("implicit", [True, False])
async def test_the_limit_of_renewals_counts_from_the_delivery(implicit: bool) -> None:
    """A cursor delivers the records of one fetch at different times."""
    delivery, node, clock = filled(2, implicit=implicit, renewal_limit_s=20.0)
    task = current_task()
    iterated(delivery, task, 1)
    delivery.maintain()
    clock.time = 15.0
    iterated(delivery, task, 1)
    delivery.maintain()
    node.acknowledged.clear()
    clock.time = 34.0
    delivery.maintain()
    assert node.acknowledged == {1: RENEW}
    node.acknowledged.clear()
    clock.time = 35.0
    delivery.maintain()
    assert node.acknowledged == {}


async def test_processed_records_whose_lock_ended_are_reported() -> None:
    """A call must not count them as accepted."""
    delivery, node, _ = filled(4)
    task = current_task()
    assert taken(delivery, task, 4) == [0, 1, 2, 3]
    node.end_locks(1, 2)
    delivery.mark_processed(task)
    assert delivery.accept_processed() == {ORDERS.topic_partition}
    assert node.lost == [1, 2]
    assert delivery.accept_processed() == set()


async def test_a_slow_task_reports_each_lost_record_once() -> None:
    delivery, node, _ = filled(4)
    task = current_task()
    iterated(delivery, task, 3)
    node.end_locks(0, 3)
    delivery.maintain()
    assert node.lost == [0, 1]
    delivery.mark_processed(task)
    assert delivery.accept_processed() == {ORDERS.topic_partition}
    assert node.lost == [0, 1, 2]


def test_in_the_explicit_mode_nothing_is_acknowledged() -> None:
    delivery, node, _ = filled(2, implicit=False)
    taken(delivery, "a", 2)
    delivery.mark_processed("a")
    delivery.maintain()
    assert node.acknowledged == {}
    assert not delivery.has_delivered


def test_corrupt_batches_of_one_partition_before_a_call_have_one_error() -> None:
    delivery, node, _ = filled(6)
    held = HeldRecords(node, ORDERS, node.lock, 1)  # type: ignore[arg-type]
    errors = [CorruptRecord("checksum", offset=offset) for offset in (0, 2, 4)]
    for error in errors:
        assert error.offset is not None
        part = held, error.offset, error.offset + 1
        delivery.add_corrupt(ORDERS, CorruptBatches(error, [part]))
        node.end_locks(0, 1)
    assert delivery.take_corrupt_error() is errors[0]
    assert delivery.take_corrupt_error() is None
    assert [record.offset for record in delivery.corrupt_records(errors[0])] == [2, 3, 4, 5]
    assert delivery.corrupt_records(errors[1]) == []


def test_a_record_to_which_the_hooks_of_its_consumer_refer_is_freed_with_it():
    delivery, node, _ = filled(1)
    ((record,),) = delivery.take(None, 1).values()
    node.hooks = [record]
    freed = weakref.ref(node)
    del delivery, node, record
    gc.collect()
    assert freed() is None


def test_a_record_whose_consumer_is_freed_is_not_held():
    delivery, node, _ = filled(1)
    ((record,),) = delivery.take(None, 1).values()
    del delivery, node
    gc.collect()
    assert record.lock_expires_at is None
    with pytest.raises(AcknowledgementFailed, match="not held"):
        record.accept()
