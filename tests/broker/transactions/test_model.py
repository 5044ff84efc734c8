"""Two transactional ids, their zombies, dying nodes and passing time, against a plain model.

Whatever happens, a reader of committed records sees the records of committed transactions and no
others, in the order in which they were written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.log import sequenced_batch
from aiokafkawire.broker.topics import NO_LEADER, Partition
from aiokafkawire.broker.transactions.events import (
    AddToTransaction,
    EndTransaction,
    TransactionContents,
    TransactionState,
)
from aiokafkawire.records import DecodeOptions, IsolationLevel, decode_fetch
from aiokafkawire.records.batch import iter_batches
from aiokafkawire.records.broker_records import assign_offsets
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from aiokafkawire.wire import ErrorCode

from ..raw_client import batch
from .test_transaction_coordinator import Given

NAMES = ("a", "b")
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
NODES = (1, 2)

Written = tuple[int, bytes]
"""Offset and value of a record."""


@dataclass
class Producer:
    """One process; another one may have replaced it without its knowledge."""

    name: str
    me: ProducerIdAndEpoch
    bumps: bool
    sequences: dict[TopicPartition, int] = field(default_factory=dict)


class Model(RuleBasedStateMachine):
    producers = Bundle("producers")

    def __init__(self) -> None:
        super().__init__()
        self.given = Given()
        self.written = 0
        self.newest: dict[str, Producer] = {}
        self.open: dict[str, dict[TopicPartition, list[Written]]] = {}
        self.committed: dict[TopicPartition, list[Written]] = {tp: [] for tp in PARTITIONS}

    @rule(target=producers, name=st.sampled_from(NAMES), bumps=st.booleans())
    def start(self, name: str, bumps: bool) -> Producer:
        answer = self.given.transactions.init(name, 60_000)
        if answer.code:
            # It aborts the open transaction; the next attempt is another step.
            assert answer.code is ErrorCode.CONCURRENT_TRANSACTIONS
            self.open.pop(name, None)
        made = Producer(name, answer.producer, bumps)
        if not answer.code:
            self.newest[name] = made
        return made

    @rule(producer=producers, tp=st.sampled_from(PARTITIONS))
    def write(self, producer: Producer, tp: TopicPartition) -> None:
        if self.partition(tp).leader == NO_LEADER:
            return
        value = b"%d" % self.written
        sequence = producer.sequences.get(tp, 0)
        (view,) = iter_batches(
            batch(
                value,
                transactional=True,
                producer_id=max(producer.me.producer_id, 0),
                producer_epoch=max(producer.me.epoch, 0),
                base_sequence=sequence,
            )
        )
        log = self.given.log(tp)
        if not log.producers.has_open_transaction(producer.me.producer_id, producer.me.epoch):
            added = AddToTransaction(producer=producer.me, scope=TransactionContents((tp,)))
            if self.given.transactions.handle(producer.name, added).code:
                return
        known = sequenced_batch(view)
        assert known is not None
        try:
            if log.producers.check(known) is not None:
                return
        except ApiError:
            return
        assert producer is self.newest[producer.name]
        data = assign_offsets(view, log.end_offset, 0)
        self.open.setdefault(producer.name, {}).setdefault(tp, []).append((log.end_offset, value))
        log.append(data, next(iter_batches(data)))
        producer.sequences[tp] = sequence + 1
        self.written += 1

    @rule(producer=producers, commit=st.booleans())
    def end(self, producer: Producer, commit: bool) -> None:
        found = self.given.transactions.get(producer.name)
        ends = found is not None and found.state is TransactionState.ONGOING
        event = EndTransaction(producer=producer.me, commit=commit, bumps_epoch=producer.bumps)
        answer = self.given.transactions.handle(producer.name, event)
        if answer.code:
            return
        assert answer.producer.epoch >= producer.me.epoch
        if ends:
            assert producer is self.newest[producer.name]
            for tp, values in self.open.pop(producer.name, {}).items():
                if commit:
                    self.committed[tp] += values
        if answer.producer != producer.me:
            producer.me = answer.producer
            producer.sequences = {}

    @rule(seconds=st.sampled_from((1, 61)))
    def wait(self, seconds: int) -> None:
        self.given.clock.seconds += seconds
        self.given.transactions.tick()
        for found in self.given.transactions:
            if found.state is not TransactionState.ONGOING:
                self.open.pop(found.transactional_id, None)

    @rule(node=st.sampled_from(NODES))
    def die(self, node: int) -> None:
        if node in self.given.cluster.live:
            self.given.cluster.on_node_failure(node)

    @rule(node=st.sampled_from(NODES))
    def come(self, node: int) -> None:
        if node not in self.given.cluster.live:
            self.given.cluster.on_node_startup(node)
            self.given.transactions.tick()

    def partition(self, tp: TopicPartition) -> Partition:
        return self.given.cluster.topics[tp.topic].partitions[tp.partition]

    def visible(self, tp: TopicPartition) -> list[bytes | None]:
        partition = self.partition(tp)
        end = partition.last_stable_offset
        data = partition.log.read(0, 2**20, end)
        aborted = [
            (each.producer_id, each.first_offset)
            for each in partition.log.producers.aborted_transactions(0, max(end, 1))
        ]
        batches = decode_fetch(
            tp.topic,
            tp.partition,
            data,
            0,
            DecodeOptions(isolation=IsolationLevel.READ_COMMITTED),
            aborted=aborted,
        )
        return [record.value for records in batches for record in records]

    @invariant()
    def nothing_else_is_visible(self) -> None:
        for tp in PARTITIONS:
            expected: list[Any] = [value for _, value in sorted(self.committed[tp])]
            found = self.visible(tp)
            assert found == expected[: len(found)]

    def teardown(self) -> None:
        for node in NODES:
            self.come(node)
        self.wait(61)
        for tp in PARTITIONS:
            assert self.visible(tp) == [value for _, value in sorted(self.committed[tp])]
            log = self.given.log(tp)
            assert log.first_unstable_offset is None


Model.TestCase.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
TestTransactions = Model.TestCase
