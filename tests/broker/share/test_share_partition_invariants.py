"""A share partition beside a model that keeps one entry per record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiokafkawire.broker.api_error import ApiError, StorageError
from aiokafkawire.broker.share.acquisition import AcquirableBatches, AcquireLimits
from aiokafkawire.broker.share.in_flight import AcknowledgeType, RecordState
from aiokafkawire.broker.share.persister import SharePartitionKey, SharePersister
from aiokafkawire.broker.share.share_partition import (
    AcknowledgedRange,
    SharePartition,
    SharePartitionSettings,
    StateUpdate,
)
from aiokafkawire.broker.storage import MemoryStore
from tests.broker.storage_faults import Clock

MEMBERS = st.sampled_from(("alpha", "beta", "gamma"))
LOCK_S = 10.0
KEY = SharePartitionKey("g", UUID(int=1), 0)

A, AVAILABLE = RecordState.ACQUIRED, RecordState.AVAILABLE
DONE = {RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}
AFTER = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


@dataclass
class Record:
    """A record of the model. `persisted` is the state that a new leader reads."""

    state: RecordState = AVAILABLE
    count: int = 0
    member: str = ""
    deadline: float = 0.0
    persisted: tuple[RecordState, int] = (AVAILABLE, 0)

    def end_lock(self, state: RecordState, limit: int) -> None:
        if state is AVAILABLE and self.count >= limit:
            state = RecordState.ARCHIVED
        self.state, self.member = state, ""
        self.persisted = (state, self.count)


class SharePartitions(RuleBasedStateMachine):
    """Members acquire, acknowledge and lose records while the log grows and leaders move."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.settings = SharePartitionSettings(LOCK_S, delivery_count_limit=3, max_record_locks=30)
        self.persister = SharePersister(MemoryStore(), Clock())
        self.persister.initialize(KEY, -1, 0)
        self.batches: list[tuple[int, int]] = [(0, 4), (5, 9)]
        self.records: dict[int, Record] = {}
        self.fails = False
        self.log_start = 0
        self.ever_finished: set[int] = set()
        self.partition = SharePartition(0, self.write, settings=self.settings)

    def write(self, update: StateUpdate) -> None:
        if self.fails:
            raise StorageError
        self.persister.write(KEY, update, 0)

    @property
    def acquired(self) -> list[int]:
        return [number for number, record in self.records.items() if record.state is A]

    def is_acquired(self, number: int, member: str) -> bool:
        record = self.records.get(number)
        return record is not None and record.state is A and record.member == member

    @property
    def end(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else 0

    @rule(size=st.integers(1, 8))
    def append(self, size: int) -> None:
        self.batches.append((self.end, self.end + size - 1))

    @rule(
        member=MEMBERS,
        records=st.integers(1, 20),
        size=st.integers(1, 10),
        is_exact=st.booleans(),
        count=st.integers(1, 6),
    )
    def acquire(self, member: str, records: int, size: int, is_exact: bool, count: int) -> None:
        offset = self.partition.next_fetch_offset
        fetched = [each for each in self.batches if each[1] >= offset][:count]
        if not self.partition.can_acquire:
            assert offset == self.partition.end
            return
        acquired = self.partition.acquire(
            member,
            AcquirableBatches(offset, fetched),
            AcquireLimits(records, size, is_exact),
            self.now,
        )
        total = 0
        for each in acquired:
            for number in range(each.first, each.last + 1):
                record = self.records.setdefault(number, Record())
                assert record.state is AVAILABLE, "a record is acquired by two members"
                assert number >= self.log_start
                record.state, record.member = A, member
                record.count, record.deadline = record.count + 1, self.now + LOCK_S
                assert each.delivery_count == record.count <= self.settings.delivery_count_limit
                total += 1
        if is_exact:
            assert total <= records
        if fetched:
            assert acquired, "an available record was not acquired"

    @precondition(lambda self: self.acquired)
    @rule(
        other=st.sampled_from((None, None, None, "alpha", "beta")),
        place=st.integers(0, 100),
        before=st.integers(0, 3),
        length=st.integers(1, 6),
        types=st.lists(st.sampled_from(AcknowledgeType), min_size=10, max_size=10),
        is_uniform=st.booleans(),
        fails=st.sampled_from((False, False, True)),
    )
    def acknowledge(
        self,
        *,
        other: str | None,
        place: int,
        before: int,
        length: int,
        types: Any,
        is_uniform: bool,
        fails: bool,
    ) -> None:
        chosen = self.acquired[place % len(self.acquired)]
        member = other or self.records[chosen].member
        first, last = max(chosen - before, 0), chosen + length - 1
        while last > chosen and not self.is_acquired(last, member):
            last -= 1
        length = last - first + 1
        kinds = (types[0],) if is_uniform else tuple(types[:length])
        acknowledged = AcknowledgedRange(first, last, kinds)
        affected = [n for n in range(first, last + 1) if n >= self.partition.start]
        is_owner = all(self.is_acquired(number, member) for number in affected)
        changes = any(acknowledged.type_of(n) is not AcknowledgeType.RENEW for n in affected)
        self.fails = fails
        try:
            self.partition.acknowledge(member, [acknowledged], self.now)
        except StorageError:
            assert is_owner
            assert changes
            assert fails
            self.renew(acknowledged, affected)
            return
        except ApiError:
            assert not is_owner
            # Renewals before the record that failed are kept, as in Kafka.
            self.renew(acknowledged, affected, member)
            return
        finally:
            self.fails = False
        assert is_owner
        for number in affected:
            kind = acknowledged.type_of(number)
            record = self.records[number]
            if kind is AcknowledgeType.RENEW:
                record.deadline = self.now + LOCK_S
            else:
                record.end_lock(AFTER[kind], self.settings.delivery_count_limit)

    def renew(
        self, acknowledged: AcknowledgedRange, affected: list[int], member: str | None = None
    ) -> None:
        """Take over locks that a failed acknowledgement has renewed."""
        locks = {
            n: delivery.deadline
            for batch in self.partition.window.batches
            for first, last, delivery in batch.deliveries()
            for n in range(first, last + 1)
            if delivery.state is A
        }
        for number in affected:
            is_renewal = acknowledged.type_of(number) is AcknowledgeType.RENEW
            record = self.records.get(number)
            if is_renewal and record is not None and member in {None, record.member}:
                record.deadline = locks.get(number, record.deadline)

    @rule(member=MEMBERS)
    def close_session(self, member: str) -> None:
        self.partition.release(member, self.now)
        for record in self.records.values():
            if record.state is A and record.member == member:
                record.end_lock(AVAILABLE, self.settings.delivery_count_limit)

    @rule(seconds=st.sampled_from((1.0, 4.0, 9.0, 10.0, 11.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.partition.expire(self.now)
        for record in self.records.values():
            if record.state is A and record.deadline <= self.now:
                record.end_lock(AVAILABLE, self.settings.delivery_count_limit)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def delete_records(self, data: Any) -> None:
        self.log_start = data.draw(st.integers(self.log_start, self.end))
        self.partition.advance_log_start(self.log_start)
        for number, record in self.records.items():
            if number < self.log_start and record.state not in DONE:
                record.state, record.member = RecordState.ARCHIVED, ""

    @rule()
    def move_leader(self) -> None:
        state = self.persister.read(KEY)
        assert state is not None
        # A group without acknowledgements starts at the earliest record.
        start = state.start_offset if state.start_offset >= 0 else self.log_start
        assume(start >= 0)
        self.partition = SharePartition(start, self.write, state.batches, self.settings)
        self.partition.advance_log_start(self.log_start)
        for number, record in self.records.items():
            record.state, record.count = record.persisted
            record.member = ""
            if number < self.log_start:
                record.state = RecordState.ARCHIVED

    # --- invariants --------------------------------------------------------------------------

    @invariant()
    def every_record_has_the_state_of_the_model(self) -> None:
        window = self.partition.window
        known = {
            number: delivery
            for batch in window.batches
            for first, last, delivery in batch.deliveries()
            for number in range(first, last + 1)
        }
        for number, record in self.records.items():
            if number < window.start:
                assert record.state in DONE, number
            elif number in known:
                found = known[number]
                assert (found.state, found.count) == (record.state, record.count), number
                assert found.member_id == record.member, number
            else:
                assert record.state is AVAILABLE, number

    @invariant()
    def finished_records_stay_finished(self) -> None:
        finished = {n for n, record in self.records.items() if record.state in DONE}
        assert self.ever_finished <= finished
        self.ever_finished = finished

    @invariant()
    def the_window_begins_with_an_unfinished_record(self) -> None:
        window = self.partition.window
        if window.batches:
            first = next(window.batches[0].deliveries())
            assert window.batches[0].last >= window.start
            assert first[2].state not in DONE or window.batches[0].whole is None
        complete = sum(
            window.count(first, last)
            for batch in window.batches
            for first, last, delivery in batch.deliveries()
            if delivery.state in DONE
        )
        assert window.complete == complete

    @invariant()
    def no_lock_is_without_a_deadline(self) -> None:
        deadlines = [record.deadline for record in self.records.values() if record.state is A]
        if deadlines:
            assert self.partition.next_deadline <= min(deadlines)

    def teardown(self) -> None:
        self.now += LOCK_S + 1
        self.partition.expire(self.now)
        for batch in self.partition.window.batches:
            for _, _, delivery in batch.deliveries():
                assert delivery.state is not A, "a lock is left without a holder"


SharePartitions.TestCase.settings = settings(
    max_examples=300, stateful_step_count=40, deadline=None
)
TestSharePartitions = SharePartitions.TestCase
