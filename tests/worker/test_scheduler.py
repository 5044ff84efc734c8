"""The scheduler: examples, and random steps against its invariants."""

from __future__ import annotations

import weakref
from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiokafkawire.records import Record
from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.worker.batch_policy import BatchPolicy
from aiokafkawire.worker.partition_work import Budget, PartitionWork, WorkItem
from aiokafkawire.worker.scheduler import Scheduler
from tests.worker.helpers import handler, record

TP = TopicPartition("t", 0)


def make_scheduler(max_records: int = 1_000, max_bytes: int = 1_000_000) -> Scheduler:
    return Scheduler(max_records=max_records, max_bytes=max_bytes)


def add(scheduler: Scheduler, records: list[Record], order_by: object = "key") -> None:
    work = scheduler.partition(records[0].topic_partition)
    work.offsets.add(records)
    keys = [each.key if order_by == "key" else None for each in records]
    if order_by == "partition":
        scheduler.add(WorkItem(records, work, handler(), True))
    else:
        scheduler.add(WorkItem(records, work, handler(), keys=keys))


def committable(scheduler: Scheduler) -> dict[TopicPartition, int]:
    return {tp: offset.offset for tp, offset in scheduler.offsets_to_commit().items()}


def test_records_of_a_key_run_one_after_the_other():
    scheduler = make_scheduler()
    add(scheduler, [record(0, b"a"), record(1, b"b"), record(2, b"a")])
    first, second = scheduler.take(0), scheduler.take(0)
    assert first is not None
    assert second is not None
    assert scheduler.take(0) is None
    assert [first.record.offset, second.record.offset] == [0, 1]
    assert not scheduler.finish_records(first)
    assert committable(scheduler) == {TP: 1}
    third = scheduler.take(0)
    assert third is not None
    assert third.record.offset == 2
    assert not scheduler.finish_records(third)
    assert not scheduler.finish_records(second)
    assert committable(scheduler) == {TP: 3}


def test_one_task_runs_all_records_if_no_handler_waits():
    scheduler = make_scheduler()
    add(scheduler, [record(0, b"a"), record(1, b"b"), record(2, b"a"), record(3)])
    item = scheduler.take(0)
    assert item is not None
    assert [scheduler.finish_records(item) for _ in range(4)] == [True, True, True, False]
    assert committable(scheduler) == {TP: 4}


def test_a_run_ends_before_a_record_whose_key_runs_elsewhere():
    scheduler = make_scheduler()
    add(scheduler, [record(0, b"a"), record(1, b"b"), record(2, b"a"), record(3, b"c")])
    first, second = scheduler.take(0), scheduler.take(0)
    assert first is not None
    assert second is not None
    assert not scheduler.finish_records(second)
    last = scheduler.take(0)
    assert last is not None
    assert last.record.offset == 3
    assert scheduler.take(0) is None
    assert not scheduler.finish_records(last)
    assert not scheduler.finish_records(first)
    assert committable(scheduler) == {TP: 2}


def test_divided_records_keep_their_bytes():
    scheduler = make_scheduler()
    add(scheduler, [record(n, value=bytes(10**n)) for n in range(4)], order_by=None)
    work, items = scheduler.partition(TP), [scheduler.take(0) for _ in range(4)]
    for item, left in zip(items, (1_110, 1_100, 1_000, 0), strict=True):
        assert item is not None
        assert not scheduler.finish_records(item)
        assert work.size == left


class WatchedRecord(Record):
    """A record that a weak reference can refer to."""


@pytest.mark.parametrize("state", ["running", "waiting", "delayed"])
def test_a_record_that_is_left_keeps_no_other_in_memory(state: str):
    scheduler = make_scheduler()
    records = [WatchedRecord("t", 0, n, key=b"a" if n in {1, 3} else None) for n in range(5)]
    watched = [weakref.ref(each) for each in records]
    add(scheduler, [*records])
    del records
    first = scheduler.take(0)
    assert first is not None
    run = first.next_records(5)
    assert len(run) == 5
    assert scheduler.finish_records(first)
    rest = scheduler.take(0)
    assert rest is not None
    assert scheduler.finish_records(rest) is False  # record 3 waits for record 1
    last = scheduler.take(0)
    assert last is not None
    assert scheduler.finish_records(last) is False
    left = 1
    if state == "waiting":
        assert scheduler.finish_records(first) is False
        left = 3
    elif state == "delayed":
        scheduler.retry(first, 10.0)
    kept = {1, 3} if left == 1 else {3}
    assert {n for n, ref in enumerate(watched) if ref() is not None} == kept
    assert scheduler.partition(TP).size == len(kept) * len(b"a")
    assert committable(scheduler) == {TP: left}


def test_a_failed_record_blocks_its_key_alone():
    scheduler = make_scheduler()
    add(scheduler, [record(0, b"a")])
    add(scheduler, [record(1, b"a"), record(2, b"b")])
    failed = scheduler.take(0)
    assert failed is not None
    scheduler.retry(failed, due=5.0)
    assert scheduler.next_due == 5.0
    other = scheduler.take(1.0)
    assert other is not None
    assert other.record.offset == 2
    assert scheduler.take(4.9) is None
    assert scheduler.take(5.0) is failed
    assert not scheduler.finish_records(failed)
    following = scheduler.take(5.0)
    assert following is not None
    assert following.record.offset == 1


def test_partitions_are_served_in_round_robin_order():
    scheduler = make_scheduler()
    for partition in (0, 1):
        add(scheduler, [record(n, partition=partition) for n in range(3)], order_by=None)
    taken = [scheduler.take(0) for _ in range(6)]
    assert [item.record.partition for item in taken if item] == [0, 1, 0, 1, 0, 1]


def test_draining_starts_nothing_and_waits_for_what_runs():
    scheduler = make_scheduler()
    add(scheduler, [record(0), record(1)])
    running = scheduler.take(0)
    assert running is not None
    scheduler.drain([TP])
    assert not scheduler.is_drained([TP])
    assert scheduler.take(0) is None
    assert not scheduler.finish_records(running)
    assert scheduler.is_drained([TP])
    assert committable(scheduler) == {TP: 1}


def test_the_position_of_a_partition_that_drains_is_not_committed():
    scheduler = make_scheduler()
    add(scheduler, [record(0)])
    item = scheduler.take(0)
    assert item is not None
    assert not scheduler.finish_records(item)
    scheduler.drain([TP])
    scheduler.partition(TP).skip_to(OffsetAndMetadata(9))  # records since then were dropped
    assert committable(scheduler) == {TP: 1}


def test_a_run_of_records_ends_when_its_partition_drains():
    scheduler = make_scheduler()
    add(scheduler, [record(0), record(1)], order_by="partition")
    running = scheduler.take(0)
    assert running is not None
    scheduler.drain([TP])
    assert not scheduler.finish_records(running)
    assert committable(scheduler) == {TP: 1}


def test_the_result_of_a_lost_partition_is_ignored_after_it_came_back():
    scheduler = make_scheduler()
    add(scheduler, [record(0), record(1)], order_by=None)
    finished, failed = scheduler.take(0), scheduler.take(0)
    assert finished is not None
    assert failed is not None
    scheduler.remove([TP])
    add(scheduler, [record(0), record(1)], order_by=None)
    assert not scheduler.finish_records(finished)
    scheduler.retry(failed, due=0.0)
    assert scheduler.lost == 2
    assert committable(scheduler) == {TP: 0}
    assert scheduler.delayed == 0


def test_the_work_of_a_partition_whose_offsets_went_back_is_replaced():
    scheduler = make_scheduler(max_records=1)
    add(scheduler, [record(5)])
    running, old = scheduler.take(0), scheduler.partition(TP)
    assert running is not None
    assert scheduler.update_pauses().pause == [TP]
    assert old.offsets.is_before(6)
    assert not old.offsets.is_before(0)
    new = scheduler.replace(old)
    assert new is scheduler.partition(TP)
    assert new.is_paused  # as the consumer has paused it
    assert old.is_fenced
    assert not scheduler.finish_records(running)
    assert committable(scheduler) == {}
    assert scheduler.update_pauses().resume == [TP]


def test_records_wait_for_those_of_the_former_assignment():
    scheduler = make_scheduler()
    add(scheduler, [record(0)])
    running = scheduler.take(0)
    assert running is not None
    scheduler.remove([TP])
    add(scheduler, [record(0)])
    scheduler.remove([TP])  # lost again, before anything ran
    add(scheduler, [record(0)])
    assert scheduler.take(0) is None
    assert scheduler.count_ready(2) == 0
    assert not scheduler.finish_records(running)
    assert scheduler.count_ready(2) == 1
    again = scheduler.take(0)
    assert again is not None
    assert not scheduler.finish_records(again)
    assert committable(scheduler) == {TP: 1}


def test_records_of_retry_topics_do_not_pause_the_others():
    scheduler = Scheduler(max_records=100, max_bytes=10, retry_topics={"t"})
    other = TopicPartition("other", 0)
    scheduler.partition(other)
    add(scheduler, [record(0, value=bytes(10))])
    assert scheduler.update_pauses().pause == [TP]


def test_a_partition_pauses_at_its_limit_and_resumes_at_half():
    scheduler = make_scheduler(max_records=4)
    add(scheduler, [record(n) for n in range(4)], order_by=None)
    assert scheduler.update_pauses().pause == [TP]
    items = [scheduler.take(0) for _ in range(4)]
    for item in reversed(items[1:]):
        assert item is not None
        scheduler.finish_records(item)
    assert scheduler.update_pauses() == ([], [])  # the oldest record is unfinished
    assert items[0] is not None
    scheduler.finish_records(items[0])
    assert scheduler.may_resume(items[0])
    assert scheduler.update_pauses().resume == [TP]


def test_all_partitions_pause_at_the_limit_of_bytes():
    scheduler = make_scheduler(max_bytes=100)
    scheduler.partition(TopicPartition("t", 1))
    add(scheduler, [record(0, value=bytes(100))])
    assert len(scheduler.update_pauses().pause) == 2
    item = scheduler.take(0)
    assert item is not None
    scheduler.finish_records(item)
    assert scheduler.may_resume(item)
    assert len(scheduler.update_pauses().resume) == 2


KEYS = st.sampled_from([None, b"a", b"b", b"c"])


class SchedulerModel(RuleBasedStateMachine):
    """Random fetches, results, failures, revocations and losses."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = make_scheduler(max_records=8, max_bytes=400)
        self.now = 0.0
        self.next_offset: dict[TopicPartition, int] = defaultdict(int)
        self.done: dict[TopicPartition, set[int]] = defaultdict(set)
        self.last_of_key: dict[tuple[PartitionWork, bytes], int] = {}
        self.running: list[WorkItem] = []

    @rule(partition=st.integers(0, 2), keys=st.lists(KEYS, min_size=1, max_size=6))
    def fetch(self, partition: int, keys: list[bytes | None]) -> None:
        tp = TopicPartition("t", partition)
        records = []
        for key in keys:
            records.append(record(self.next_offset[tp], key, partition=partition))
            self.next_offset[tp] += 2  # logs have gaps
        if self.scheduler.partition(tp).state.value == "active":
            add(self.scheduler, records)

    @rule(seconds=st.floats(0, 3))
    def take(self, seconds: float) -> None:
        self.now += seconds
        item = self.scheduler.take(self.now)
        if item is None:
            return
        self.running.append(item)
        self._check_order(item)

    def _check_order(self, item: WorkItem) -> None:
        key = item.record.key
        if key is not None:
            last = self.last_of_key.get((item.partition, key), -1)
            assert item.record.offset >= last
            self.last_of_key[item.partition, key] = item.record.offset

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.running))
        work, offset = item.partition, item.record.offset
        if not work.is_fenced:
            self.done[work.tp].add(offset)
        if self.scheduler.finish_records(item):
            self._check_order(item)
        else:
            self.running.remove(item)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), delay=st.floats(0, 3))
    def fail(self, data: st.DataObject, delay: float) -> None:
        item = data.draw(st.sampled_from(self.running))
        self.running.remove(item)
        self.scheduler.retry(item, self.now + delay)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.running))
        self.running.remove(item)
        self.scheduler.requeue(item)

    @rule(partition=st.integers(0, 2))
    def drain(self, partition: int) -> None:
        self.scheduler.drain([TopicPartition("t", partition)])

    @rule(partition=st.integers(0, 2))
    def revoke(self, partition: int) -> None:
        tp = TopicPartition("t", partition)
        work = self.scheduler.partition(tp)
        offset = work.offsets.committable
        self.scheduler.remove([tp])
        assert work.is_fenced
        # The next owner starts at the committed offset.
        if offset is not None:
            self.next_offset[tp] = offset.offset + offset.offset % 2
        self.done[tp] = {o for o in self.done[tp] if o < self.next_offset[tp]}

    @invariant()
    def no_unfinished_record_is_committed(self) -> None:
        for tp, offset in self.scheduler.offsets_to_commit().items():
            assert all(o in self.done[tp] for o in range(0, offset.offset, 2))

    @invariant()
    def one_record_of_a_key_runs(self) -> None:
        running = [
            (item.partition, item.record.key)
            for item in self.running
            if item.record.key is not None
        ]
        assert len(running) == len(set(running))

    @invariant()
    def counts_are_those_of_the_items(self) -> None:
        works = self.scheduler.partitions
        assert self.scheduler.count_ready(10**9) == sum(
            work.ready_count for work in works if work.previous is None
        )
        assert self.scheduler._limits._budgets[0].size == sum(work.size for work in works)
        assert all(work.size >= 0 for work in works)
        assert {item for work in works for item in work.running} == {
            item for item in self.running if not item.partition.is_fenced
        }

    def teardown(self) -> None:
        """Every record of an active partition is processed in the end."""
        for item in self.running:
            while self.scheduler.finish_records(item):
                pass
        while (item_ := self.scheduler.take(float("inf"))) is not None:
            while self.scheduler.finish_records(item_):
                pass
        for work in self.scheduler.partitions:
            if work.state.value == "active":
                assert len(work.offsets) == 0
                assert work.size == 0


SchedulerModel.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestSchedulerModel = SchedulerModel.TestCase


def test_headers_count_as_bytes():
    headers = (("trace", b"0123456789"), ("flag", None))
    work = PartitionWork(TopicPartition("t", 0), Budget(100))
    item = WorkItem([record(0, b"k", value=b"v", headers=headers)], work, handler())
    assert item.size == 1 + 1 + 15 + 4


def collect(scheduler: Scheduler, offsets: range, now: float, **limits: int) -> PartitionWork:
    work, records = scheduler.partition(TP), [record(offset) for offset in offsets]
    work.offsets.add(records)
    batch = BatchPolicy(**({"max_records": 3, "max_wait_ms": 1_000} | limits))
    scheduler.collect(work, handler(batch=batch), records, now)
    return work


def test_a_batch_is_ready_when_it_is_full_or_its_wait_is_over():
    scheduler = make_scheduler()
    work = collect(scheduler, range(2), now=5.0)
    assert scheduler.take(5.0) is None
    assert scheduler.next_due == 6.0
    collect(scheduler, range(2, 7), now=5.5)
    first = scheduler.take(5.5)
    assert first is not None
    assert [each.offset for each in first.records] == [0, 1, 2]
    assert scheduler.take(5.5) is None  # batches of a partition run one after the other
    assert not scheduler.finish_records(first, 3)
    second = scheduler.take(5.5)
    assert second is not None
    assert scheduler.next_due == 6.5
    assert not scheduler.finish_records(second, 3)
    scheduler.release_due(6.5)
    third = scheduler.take(6.5)
    assert third is not None
    assert [each.offset for each in third.records] == [6]
    assert not scheduler.finish_records(third, 1)
    assert (work.size, committable(scheduler)) == (0, {TP: 7})


def test_batches_that_became_items_are_not_kept_until_their_wait_is_over():
    scheduler = make_scheduler(max_records=10_000)
    for first in range(0, 3_000, 3):
        collect(scheduler, range(first, first + 3), now=0.0, max_wait_ms=3_600_000)
        item = scheduler.take(0.0)
        assert item is not None
        assert not scheduler.finish_records(item, 3)
    assert len(scheduler._timed._batches) <= 3
    assert not any(batch.records for _, _, batch in scheduler._timed._batches)


def test_collected_records_are_discarded_when_their_partition_drains():
    scheduler = make_scheduler()
    work = collect(scheduler, range(2), now=0.0)
    scheduler.drain([TP])
    scheduler.release_due(10.0)
    assert scheduler.take(10.0) is None
    assert (work.size, scheduler.next_due) == (0, None)


def test_discarded_batches_are_not_kept_until_their_wait_is_over():
    scheduler = make_scheduler()
    collect(scheduler, range(2), now=0.0)
    scheduler.drain([TP])
    assert not any(batch.records for _, _, batch in scheduler._timed._batches)
