"""The transaction coordinator: markers, timeouts, and stored state. Without a network."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokafkawire.broker import json_lines
from aiokafkawire.broker.cluster_state import ClusterState
from aiokafkawire.broker.groups import offsets
from aiokafkawire.broker.groups.offsets import CommittedOffset, OffsetStore
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.broker.storage import DirectoryStore, MemoryStore, Store
from aiokafkawire.broker.topics import Partition
from aiokafkawire.broker.transactions import TransactionCoordinator, events, transaction_coordinator
from aiokafkawire.records.batch import BatchView, iter_batches
from aiokafkawire.records.broker_records import assign_offsets
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode

from ..raw_client import batch

E = ErrorCode
S = events.TransactionState
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.step_s = 0.0  # time between two looks at the wall clock

    def now(self) -> float:
        return self.seconds - 900

    def wall_ms(self) -> int:
        self.seconds += self.step_s
        return int(self.seconds * 1000)

    async def sleep_until(self, deadline: float) -> None:
        raise AssertionError("nothing here sleeps")


class Given:
    """A cluster of two nodes with a topic of two partitions, one on each node."""

    def __init__(self, store: Store | None = None, **options: Any) -> None:
        self.clock = Clock()
        self.leading: dict[int, Partition] = {}
        self.options = BrokerConfig(**options)
        self.store = store or MemoryStore()
        self.cluster = ClusterState([1, 2], self.store, self.options, random.Random(1))
        if "t" not in self.cluster.topics:
            self.cluster.create_topic("t", 2, 1)
        self.offsets = OffsetStore(self.store)
        self.transactions = TransactionCoordinator(
            self.options,
            self.clock,
            self.cluster,
            self.offsets,
            self.store,
            bumps_epoch=lambda: True,
            leader_replica=lambda partition: self.leading.get(partition.index, partition),
        )

    def begun(self, name: str = "tx", *partitions: TopicPartition) -> ProducerIdAndEpoch:
        me = self.transactions.init(name, 60_000).producer
        self.add(me, name, *partitions or (T0, T1))
        return me

    def add(self, me: ProducerIdAndEpoch, name: str, *partitions: TopicPartition) -> None:
        scope = events.TransactionContents(partitions, ("g",))
        assert (
            self.transactions.handle(name, events.AddToTransaction(producer=me, scope=scope)).code
            == E.NONE
        )
        for tp in partitions:
            log = self.log(tp)
            fields = {"producer_id": me.producer_id, "producer_epoch": me.epoch, "base_sequence": 0}
            (view,) = iter_batches(batch(b"v", transactional=True, **fields))
            data = assign_offsets(view, log.end_offset, 0)
            log.append(data, next(iter_batches(data)))

    def commit_offsets(self, me: ProducerIdAndEpoch, *offsets: int, name: str = "tx") -> None:
        event = events.CommitTxnOffsets(
            producer=me,
            group="g",
            offsets={
                TopicPartition("t", index): CommittedOffset(offset, -1, "")
                for index, offset in enumerate(offsets)
            },
        )
        assert self.transactions.handle(name, event).code == E.NONE

    def end(self, me: ProducerIdAndEpoch, *, commit: bool = True, name: str = "tx") -> ErrorCode:
        event = events.EndTransaction(producer=me, commit=commit, bumps_epoch=True)
        return self.transactions.handle(name, event).code

    def log(self, tp: TopicPartition) -> Any:
        return self.cluster.topics[tp.topic].partitions[tp.partition].log

    def markers(self, tp: TopicPartition) -> list[BatchView]:
        found = iter_batches(self.log(tp).read(0, 10_000))
        return [view for view in found if view.is_control]

    def state(self, name: str = "tx") -> events.TransactionState:
        found = self.transactions.get(name)
        assert found is not None
        return found.state


def test_markers_go_into_every_partition() -> None:
    given = Given()
    me = given.begun()
    given.transactions.on_coordinator_changed()
    assert given.end(me) == E.NONE
    assert given.state() is S.COMPLETE_COMMIT
    for tp in (T0, T1):
        (marker,) = given.markers(tp)
        assert (marker.producer_id, marker.producer_epoch) == (me.producer_id, me.epoch + 1)
        assert marker.is_transactional
        assert marker.max_timestamp == given.clock.wall_ms()
        (producer,) = given.log(tp).producers.active_producers()
        assert (producer.coordinator_epoch, producer.transaction_start) == (1, -1)
        assert given.log(tp).producers.aborted_transactions(0, 10) == []


@pytest.mark.parametrize("early_ms", range(1, 7))
async def test_markers_that_become_due_while_the_deadline_is_computed_are_written(
    early_ms: int,
) -> None:
    given = Given(transaction_marker_delay_ms=60)
    me = given.begun()
    async with anyio.create_task_group() as group:
        group.start_soon(given.transactions.run)
        await anyio.sleep(0.01)
        assert given.end(me) == E.NONE
        given.clock.seconds += (60 - early_ms) / 1000
        given.clock.step_s = 0.001
        with anyio.fail_after(10):
            while not given.markers(T1):  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert given.state() is S.COMPLETE_COMMIT


def test_a_marker_waits_for_a_leader() -> None:
    given = Given()
    me = given.begun()
    given.commit_offsets(me, 5)
    (alone,) = given.cluster.topics["t"].partitions[0].replicas
    given.cluster.on_node_failure(alone)
    assert given.end(me, commit=False) == E.NONE
    assert (given.markers(T0), len(given.markers(T1))) == ([], 1)
    assert given.state() is S.PREPARE_ABORT
    assert given.transactions.init("tx", 60_000).code == E.CONCURRENT_TRANSACTIONS
    assert given.transactions.unstable_partitions("g") == set()
    given.transactions.tick()
    assert given.state() is S.PREPARE_ABORT
    given.cluster.on_node_startup(alone)
    given.transactions.tick()
    assert (len(given.markers(T0)), len(given.markers(T1))) == (1, 1)
    assert given.state() is S.COMPLETE_ABORT


class Led(Partition):
    """A partition whose replicas have all records before `replicated`."""

    replicated = 0

    @property
    def high_watermark(self) -> int:
        return self.replicated


def led(given: Given, index: int = 0) -> Led:
    """Make a partition count as replicated by its leader's log."""
    shared = given.cluster.topics["t"].partitions[index]
    one = Led("t", index, [1, 2], shared.log, leader=1, leader_epoch=0, isr=[1, 2])
    given.leading[index] = one
    return one


def test_a_marker_waits_until_it_is_everywhere() -> None:
    given = Given()
    me = given.begun("tx", T0)
    leader = led(given)
    leader.replicated = 1
    assert given.end(me) == E.NONE
    assert len(given.markers(T0)) == 1
    assert given.state() is S.PREPARE_COMMIT
    given.transactions.tick()
    assert len(given.markers(T0)) == 1, "it is there, and is waited for"
    leader.replicated = 2
    given.transactions.tick()
    assert given.state() is S.COMPLETE_COMMIT
    assert len(leader.on_change) == 0


def test_two_transactions_wait_for_the_replicas_of_one_partition() -> None:
    given = Given()
    leader = led(given)
    for name in ("first", "second"):
        assert given.end(given.begun(name, T0), name=name) == E.NONE
    leader.replicated = given.log(T0).end_offset - 1
    given.transactions.tick()
    assert given.state("first") is S.COMPLETE_COMMIT
    assert given.state("second") is S.PREPARE_COMMIT
    assert len(leader.on_change) == 1, "the second waits still"
    leader.replicated += 1
    given.transactions.tick()
    assert given.state("second") is S.COMPLETE_COMMIT
    assert len(leader.on_change) == 0


def test_a_marker_that_the_next_leader_does_not_have_is_written_again() -> None:
    given = Given()
    me = given.begun("tx", T0)
    first = led(given)
    assert given.end(me, commit=False) == E.NONE
    given.log(T0).truncate(1)
    second = led(given)
    second.leader_epoch = 1
    given.transactions.tick()
    assert len(given.markers(T0)) == 1
    assert given.state() is S.PREPARE_ABORT
    assert len(first.on_change) == 0
    second.replicated = 2
    given.transactions.tick()
    assert given.state() is S.COMPLETE_ABORT


def test_a_marker_waits_for_enough_replicas() -> None:
    given = Given(min_insync_replicas=2)
    me = given.begun("tx", T0)
    leader = led(given)
    leader.isr = [1]
    leader.replicated = 9
    assert given.end(me) == E.NONE
    assert given.markers(T0) == []
    leader.isr = [1, 2]
    given.transactions.tick()
    assert given.state() is S.COMPLETE_COMMIT


def test_a_marker_of_what_was_deleted_meanwhile_is_not_waited_for() -> None:
    given = Given()
    me = given.begun("tx", T0)
    led(given)
    assert given.end(me) == E.NONE
    given.cluster.delete_topic(given.cluster.topics["t"])
    given.transactions.tick()
    assert given.state() is S.COMPLETE_COMMIT


def test_an_unused_id_expires() -> None:
    given = Given(transactional_id_expiration_ms=60_000)
    used, open_one = given.begun("used", T0), given.begun("open", T1)
    assert given.end(used, name="used") == E.NONE
    given.clock.seconds += 59
    assert given.transactions.get("used") is not None
    given.clock.seconds += 1
    assert [each.transactional_id for each in given.transactions.list_all()] == ["open"]
    event = events.EndTransaction(producer=used, commit=True)
    code = given.transactions.handle("used", event).code
    assert code == E.INVALID_PRODUCER_ID_MAPPING
    assert given.transactions.init("used", 1_000).producer.producer_id != used.producer_id
    assert given.end(open_one, name="open") == E.NONE, "it is in use, however long that takes"


def test_what_was_deleted_needs_no_marker() -> None:
    given = Given()
    me = given.begun()
    given.commit_offsets(me, 5)
    given.cluster.delete_topic(given.cluster.topics["t"])
    assert given.end(me) == E.NONE
    assert given.state() is S.COMPLETE_COMMIT
    assert given.offsets.committed("g") == {}


def test_markers_may_be_delayed() -> None:
    given = Given(transaction_marker_delay_ms=50)
    me = given.begun()
    assert given.end(me) == E.NONE
    given.transactions.tick()
    assert given.markers(T0) == []
    given.clock.seconds += 0.051
    given.transactions.tick()
    assert len(given.markers(T0)) == 1
    assert given.state() is S.COMPLETE_COMMIT


def test_what_takes_too_long_is_aborted() -> None:
    given = Given()
    me = given.begun()
    given.commit_offsets(me, 5)
    given.clock.seconds += 59
    given.transactions.tick()
    assert given.state() is S.ONGOING
    given.clock.seconds += 1
    given.transactions.tick()
    assert given.state() is S.COMPLETE_ABORT
    assert given.offsets.committed("g") == {}
    (aborted,) = given.log(T0).producers.aborted_transactions(0, 10)
    assert aborted.producer_id == me.producer_id
    (marker,) = given.markers(T0)
    assert marker.producer_epoch == me.epoch + 1


def test_offsets_are_kept_when_the_transaction_commits() -> None:
    given = Given()
    me = given.begun()
    given.commit_offsets(me, 5, 6)
    given.commit_offsets(me, 7)
    assert given.transactions.unstable_partitions("g") == {T0, T1}
    assert given.transactions.unstable_partitions("h") == set()
    assert given.offsets.committed("g") == {}
    given.end(me)
    assert {tp: entry.offset for tp, entry in given.offsets.committed("g").items()} == {
        T0: 7,
        T1: 6,
    }
    assert given.transactions.unstable_partitions("g") == set()


def test_an_id_that_is_not_known_has_no_transaction() -> None:
    given = Given()
    me = ProducerIdAndEpoch(0, 0)
    assert given.end(me, name="") == E.INVALID_REQUEST
    assert given.end(me, name="other") == E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_has_bounds(timeout_ms: int) -> None:
    given = Given()
    answer = given.transactions.init("tx", timeout_ms)
    assert answer.code == E.INVALID_TRANSACTION_TIMEOUT
    assert given.transactions.get("tx") is None
    assert given.transactions.init("tx", 900_000).code == E.NONE


def test_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator, "MAX_TRANSACTIONAL_IDS", 2)
    given = Given()
    given.begun("a")
    for name in ("b", "c"):
        given.clock.seconds += 1
        assert given.transactions.init(name, 60_000).code == E.NONE
    assert [each.transactional_id for each in given.transactions] == ["a", "c"]
    given.begun("c")
    assert given.transactions.init("d", 60_000).code == E.COORDINATOR_NOT_AVAILABLE
    assert given.transactions.get("d") is None


def restarted(given: Given, **options: Any) -> Given:
    given.cluster.save()
    store = DirectoryStore(given.store._directory)  # type: ignore[attr-defined]
    again = Given(store, **options)
    again.clock.seconds = given.clock.seconds
    return again


def test_a_transaction_outlives_the_broker(tmp_path: Path) -> None:
    before = Given(DirectoryStore(tmp_path))
    me = before.begun()
    before.commit_offsets(me, 5)
    given = restarted(before)
    assert given.log(T0).first_unstable_offset == 0
    assert given.transactions.unstable_partitions("g") == {T0}
    given.clock.seconds += 1
    given.add(me, "tx", T1)
    assert given.end(me) == E.NONE
    assert (len(given.markers(T0)), len(given.markers(T1))) == (1, 1)
    again = restarted(given)
    assert again.state() is S.COMPLETE_COMMIT
    assert again.offsets.committed("g")[T0].offset == 5
    assert again.end(me) == E.NONE
    assert len(again.markers(T0)) == 1


def test_an_end_that_was_answered_is_carried_out_by_the_next_broker(tmp_path: Path) -> None:
    before = Given(DirectoryStore(tmp_path), transaction_marker_delay_ms=50)
    me = before.begun()
    before.commit_offsets(me, 5)
    assert before.end(me) == E.NONE
    given = restarted(before)
    assert given.state() is S.PREPARE_COMMIT
    given.transactions.tick()
    assert given.state() is S.COMPLETE_COMMIT
    assert len(given.markers(T0)) == 1
    assert given.offsets.committed("g")[T0].offset == 5


def test_a_forgotten_id_stays_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator, "MAX_TRANSACTIONAL_IDS", 1)
    given = Given(DirectoryStore(tmp_path))
    given.transactions.init("a", 60_000)
    given.transactions.init("b", 60_000)
    assert [each.transactional_id for each in restarted(given).transactions] == ["b"]


def test_lines_that_say_nothing_new_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "COMPACT_AFTER_LINES", 20)
    given = Given(DirectoryStore(tmp_path))
    for _ in range(30):
        given.transactions.init("tx", 60_000)
    lines = (tmp_path / "transactions.jsonl").read_text("utf-8").splitlines()
    assert len(lines) < 20
    (found,) = restarted(given).transactions
    assert found.producer.epoch == 29


def test_offsets_of_too_many_groups_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(offsets, "MAX_KEYS", 0)
    given = Given()
    me = given.begun()
    given.commit_offsets(me, 5)
    assert given.end(me) == E.NONE
    assert "group g: committing offsets failed" in caplog.text
    assert given.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize(("partitions", "left"), [([T0], {T1: 6}), (None, {})])
def test_offsets_that_were_deleted_are_not_committed(
    partitions: list[TopicPartition] | None, left: dict[TopicPartition, int]
) -> None:
    given = Given()
    me = given.begun()
    given.commit_offsets(me, 5, 6)
    given.transactions.delete_offsets("other")
    given.transactions.delete_offsets("g", partitions)
    assert given.transactions.unstable_partitions("g") == set(left)
    assert given.end(me) == E.NONE
    assert {tp: entry.offset for tp, entry in given.offsets.committed("g").items()} == left
