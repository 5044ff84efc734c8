"""The rebalance handler, with a fake offset manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokafkawire.config import ConsumerConfig, make_config
from aiokafkawire.consumer import RebalanceListener, listener_callbacks
from aiokafkawire.consumer.assignment import ConsumerAssignment
from aiokafkawire.consumer.delivery import RecordDelivery
from aiokafkawire.consumer.fetch_buffer import BufferCursor
from aiokafkawire.consumer.notifier import Notifier
from aiokafkawire.consumer.partition import AssignedPartition
from aiokafkawire.consumer.partition_states import AwaitingCommitted, Seek
from aiokafkawire.consumer.rebalance import RebalanceHandler
from aiokafkawire.errors import CommitFailed
from aiokafkawire.group.membership.states import Generation
from aiokafkawire.runtime import RealRuntime, Supervisor
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

from .record_data import P0, P1, mark_delivered

GENERATION = Generation("me", 3, "range", ("orders",), is_leader=False)


class FakeOffsets:
    """Records the calls of the group's offset manager."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.waiting: dict[TopicPartition, OffsetAndMetadata] = {}
        self.fails = False

    def submit(self, offsets: Any, *, before_revocation: bool = False) -> int:
        assert before_revocation
        self.calls.append(("commit", {tp: offset.offset for tp, offset in offsets.items()}))
        return len(self.calls)

    async def wait_acknowledged(self, commit_ids: Any, deadline: float) -> None:
        assert commit_ids
        if self.fails:
            raise CommitFailed("too late")

    def end_ownership(self, partitions: Any, reason: str, *, lost: bool) -> None:
        self.calls.append(("lost" if lost else "ended", tuple(partitions)))

    def on_rejoined(self, generation: int, owned: Any) -> None:
        self.calls.append(("rejoined", generation, tuple(owned)))

    def pending_offsets(self, partitions: Any) -> dict[TopicPartition, OffsetAndMetadata]:
        return {tp: self.waiting[tp] for tp in partitions if tp in self.waiting}


class Owner:
    def __init__(self, supervisor: Supervisor, **options: Any) -> None:
        config = make_config(ConsumerConfig, {"bootstrap_servers": "b", "group_id": "g"} | options)
        self.offsets: Any = FakeOffsets()
        self.assignment = ConsumerAssignment()
        runtime = RealRuntime()
        self.notifier = Notifier(runtime.clock, supervisor)
        self.delivery = RecordDelivery(self.assignment, runtime, self.notifier)
        self.rebalance = RebalanceHandler(
            runtime,
            supervisor,
            config,
            assignment=self.assignment,
            offsets=self.offsets,
            delivery=self.delivery,
            notifier=self.notifier,
        )

    @property
    def raised(self) -> list[Exception]:
        """The error that the next call would raise."""
        error = self.notifier.take_error()
        return [] if error is None else [error]

    def own(self, tp: TopicPartition, delivered_offsets: int, given: bool = True) -> None:
        partition = self.assignment.get(tp)
        assert partition is not None
        partition.handle(Seek(delivered_offsets))
        if given:
            mark_delivered(partition, 0, delivered_offsets)


@asynccontextmanager
async def owner(**options: Any) -> AsyncIterator[Owner]:
    supervisor = Supervisor("test")
    await supervisor.start()
    try:
        yield Owner(supervisor, **options)
    finally:
        await supervisor.stop()


class Notes(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.go_on = anyio.Event()

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("assigning", partitions))
        await self.go_on.wait()
        self.calls.append(("assigned", partitions))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", partitions))


async def test_unsubscribed_topics_are_not_delivered_until_subscribed_again() -> None:
    async with owner() as it:
        it.rebalance.assign((P0, P1))
        it.rebalance.limit_to_topics(("others",))
        assert all(p.pending_revocation for p in it.assignment.values())
        it.rebalance.limit_to_topics((P0.topic,))
        assert not any(p.pending_revocation for p in it.assignment.values())


async def test_after_leaving_the_group_nothing_is_delivered_until_assigned_again() -> None:
    async with owner() as it:
        it.rebalance.assign((P0, P1))
        it.rebalance.limit_to_topics(())
        it.rebalance.limit_to_topics((P0.topic,))
        assert all(p.pending_revocation for p in it.assignment.values())
        await it.rebalance.revoke((P0, P1))
        it.rebalance.assign((P0,))
        it.rebalance.limit_to_topics((P0.topic,))
        assert [p.pending_revocation for p in it.assignment.values()] == [False]


async def test_added_partitions_wait_for_a_position_and_the_listener() -> None:
    async with owner() as it:
        notes = it.rebalance.listener = Notes()
        it.rebalance.assign((P0, P1))
        assert [type(p.state) for p in it.assignment.values()] == [AwaitingCommitted] * 2
        assert it.delivery.pending_callbacks
        while not notes.calls:
            await anyio.lowlevel.checkpoint()
        notes.go_on.set()
        while it.delivery.pending_callbacks:
            await anyio.lowlevel.checkpoint()
        assert notes.calls[-1] == ("assigned", [P0, P1])


async def test_callbacks_run_one_after_the_other() -> None:
    async with owner() as it:
        notes = it.rebalance.listener = Notes()
        it.rebalance.assign((P0,))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.rebalance.revoke, (P0,))
            while not notes.calls:
                await anyio.lowlevel.checkpoint()
            notes.go_on.set()
        assert [name for name, _ in notes.calls] == ["assigning", "assigned", "revoked"]
        assert not it.delivery.pending_callbacks


async def test_revoked_partitions_are_withdrawn_committed_and_removed() -> None:
    async with owner() as it:
        it.rebalance.assign((P0, P1))
        it.own(P0, 7)
        cursor = it.delivery.cursor = BufferCursor(["a record"], None)  # type: ignore[list-item]
        it.rebalance.prepare_revoke((P0,))
        assert it.delivery.cursor is None
        assert cursor.next() is None
        assert it.assignment.get(P0).pending_revocation  # type: ignore[union-attr]
        await it.rebalance.revoke((P0,))
        assert it.offsets.calls == [("commit", {P0: 7}), ("ended", (P0,))]
        assert it.assignment.topic_partitions == (P1,)


async def test_without_auto_commit_nothing_is_committed() -> None:
    async with owner(enable_auto_commit=False) as it:
        it.rebalance.assign((P0,))
        it.own(P0, 7)
        await it.rebalance.revoke((P0,))
        assert it.offsets.calls == [("ended", (P0,))]


async def test_partitions_revoked_uncommitted_are_kept_for_the_transaction() -> None:
    async with owner(enable_auto_commit=False) as it:
        it.rebalance.assign((P0, P1))
        it.own(P0, 5)
        it.own(P1, 5)
        it.assignment.mark_committed({P1: OffsetAndMetadata(5)})
        await it.rebalance.revoke((P0, P1))
        assert list(it.rebalance.released_uncommitted) == [P0]
        assert it.rebalance.lost_uncommitted == {}
        it.rebalance.assign((P1,))
        it.own(P1, 7)
        it.rebalance.lose((P1,), "gone")
        assert list(it.rebalance.released_uncommitted) == [P0, P1]


async def test_a_failed_commit_does_not_block_the_rebalance() -> None:
    async with owner() as it:
        it.offsets.fails = True
        it.rebalance.assign((P0,))
        it.own(P0, 7)
        await it.rebalance.revoke((P0,))
        assert it.offsets.calls[-1] == ("ended", (P0,))
        assert it.raised == []


async def test_lost_partitions_are_not_committed_and_kept_if_delivered() -> None:
    async with owner() as it:
        notes = it.rebalance.listener = Notes()
        notes.go_on.set()
        it.rebalance.assign((P0, P1))
        it.own(P0, 7)
        it.own(P1, 7)
        it.assignment.mark_committed({P1: OffsetAndMetadata(7)})
        it.rebalance.lose((P0, P1), "the session ended")
        assert it.offsets.calls == [("lost", (P0, P1))]
        assert it.rebalance.lost_uncommitted == {P0: "the session ended"}
        assert len(it.assignment) == 0
        while it.delivery.pending_callbacks:
            await anyio.lowlevel.checkpoint()
        assert notes.calls[-1] == ("revoked", [P0, P1])


async def test_a_cancellation_raised_by_a_callback_does_not_end_the_rebalance() -> None:
    # On trio only trio itself can raise a cancellation.
    on_asyncio = anyio.get_cancelled_exc_class() is asyncio.CancelledError
    let_out = asyncio.CancelledError() if on_asyncio else LookupError("cancellation")

    class Careless(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Any) -> None:
            raise let_out

    async with owner() as it:
        it.rebalance.assign((P0,))
        it.rebalance.listener = Careless()
        await it.rebalance.revoke((P0,))
        assert ["cancellation" in str(error) for error in it.raised] == [True]
        assert len(it.assignment) == 0
        assert not it.delivery.pending_callbacks


async def test_a_panic_of_a_callback_does_not_end_the_rebalance() -> None:
    class Panic(BaseException):
        pass

    class Careless(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Any) -> None:
            raise Panic("out of memory")

    async with owner() as it:
        it.rebalance.assign((P0,))
        it.rebalance.listener = Careless()
        await it.rebalance.revoke((P0,))
        (error,) = it.raised
        assert type(error.__cause__) is Panic
        assert "on_partitions_revoked raised Panic: out of memory" in str(error)
        assert len(it.assignment) == 0
        assert not it.delivery.pending_callbacks


async def test_a_callback_that_takes_too_long_is_cancelled() -> None:
    class Slow(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Any) -> None:
            await anyio.sleep_forever()

    async with owner(rebalance_callback_timeout_ms=1) as it:
        it.rebalance.assign((P0,))
        it.rebalance.listener = Slow()
        with anyio.fail_after(20):
            await it.rebalance.revoke((P0,))
        assert it.raised == []
        assert len(it.assignment) == 0


async def test_partitions_assigned_manually_meanwhile_stay() -> None:
    async with owner() as it:
        it.rebalance.assign((P0, P1))
        it.own(P0, 7)
        it.rebalance.prepare_revoke((P0, P1))
        by_hand = AssignedPartition(P0, "earliest", AwaitingCommitted())
        it.assignment.add(by_hand)
        await it.rebalance.revoke((P0, P1))
        assert it.offsets.calls[0] == ("commit", {P0: 7})
        assert it.assignment.values() == [by_hand]
        assert not by_hand.pending_revocation
        it.rebalance.lose((P0,), "late")
        assert it.assignment.values() == [by_hand]


async def test_a_partition_being_revoked_is_known() -> None:
    async with owner() as it:
        it.rebalance.assign((P0, P1))
        it.rebalance.prepare_revoke((P0,))
        assert it.rebalance.is_any_being_revoked([P1, P0])
        assert not it.rebalance.is_any_being_revoked([P1])


async def test_an_exception_of_a_callback_is_raised_in_the_application() -> None:
    class Angry(RebalanceListener):
        def on_partitions_revoked(self, partitions: Any) -> None:
            raise LookupError("no")

    async with owner() as it:
        it.rebalance.assign((P0,))
        it.rebalance.listener = Angry()
        await it.rebalance.revoke((P0,))
        assert [type(error) for error in it.raised] == [LookupError]
        assert len(it.assignment) == 0


async def test_a_partition_lost_and_assigned_again_during_its_revocation_stays() -> None:
    class Slow(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Any) -> None:
            it.rebalance.listener = None
            it.rebalance.lose((P0, P1), "it was fenced")
            it.rebalance.assign((P0,))
            it.own(P0, 9)

    async with owner() as it:
        it.rebalance.assign((P0, P1))
        it.own(P0, 7)
        it.rebalance.listener = Slow()
        await it.rebalance.revoke((P0, P1))
        assert it.offsets.calls[:1] == [("lost", (P0, P1))]
        assert not any(call[0] == "commit" for call in it.offsets.calls)
        assert it.assignment.topic_partitions == (P0,)
        assert not it.rebalance.is_any_being_revoked([P0])


async def test_the_last_commit_is_not_behind_a_manual_commit() -> None:
    async with owner() as it:
        it.rebalance.assign((P0,))
        it.own(P0, 7)
        partition = it.assignment.get(P0)
        assert partition is not None
        assert partition.buffer is not None
        partition.buffer._mark_unprocessed("at work", 3)
        it.offsets.waiting = {P0: OffsetAndMetadata(7)}
        await it.rebalance.revoke((P0,))
        assert it.offsets.calls[0] == ("commit", {P0: 7})


async def test_a_listener_that_is_far_behind_is_not_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener_callbacks, "MAX_CALLBACKS", 2)
    async with owner() as it:
        notes = it.rebalance.listener = Notes()
        it.rebalance.assign((P0,))
        it.rebalance.lose((P0,), "away")
        it.rebalance.assign((P1,))
        (error,) = it.raised
        assert "2 calls behind" in str(error)
        assert "on_partitions_assigned" in str(error)
        notes.go_on.set()
        while it.delivery.pending_callbacks:
            await anyio.lowlevel.checkpoint()
        assert [name for name, _ in notes.calls] == ["assigning", "assigned", "revoked"]


async def test_a_member_outside_the_group_ends_the_wait_of_commits_for_a_rebalance() -> None:
    async with owner() as it:
        it.rebalance.on_state_changed(outside_group=False, rebalancing=False)
        assert it.offsets.calls == []
        it.rebalance.on_state_changed(outside_group=True, rebalancing=False)
        assert it.offsets.calls == [("rejoined", -1, ())]
