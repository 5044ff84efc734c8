"""Checks of what brokers store about the records that workers of a share group handle."""

from __future__ import annotations

from collections import Counter
from typing import Any

from aiokafkawire.broker.share.in_flight import RecordState
from aiokafkawire.broker.share.persister import SharePartitionKey
from aiokafkawire.broker.share.share_partition import StateUpdate
from aiokafkawire.types import TopicPartition
from verify.invariants.events import ShareDecided, ShareReceived
from verify.invariants.observed import ShareAcquired
from verify.simulation.harness import Harness
from verify.simulation.worker_ledger import DEAD_KINDS, kind_of

__all__ = ("ShareWorkerLedger",)

COMPLETE, DELIVERED, FINISHED, LOCKED = 11, 15, 16, 18
"""Numbers of the invariants that are checked here."""


class ShareWorkerLedger:
    """Checks each final state of a record when a broker stores it.

    Args:
        harness: Has the logs, and takes the violations.
        topic: The topic that the workers read.
        dead: The dead letter topic of the workers.
        attempts: Attempts of a record, its earlier deliveries included.
        rejects: Whether the workers reject records without attempts left.
        lock_s: Duration of a lock.
        is_quiet: Whether no worker ends and no fault happens.

    Attributes:
        processed: Values whose handler returned, or dropped them.
        failed: Failed attempts of records that fail once.
        rejected: Values that were rejected.
        given_up: Values that a broker archived at the limit of deliveries.
    """

    def __init__(
        self,
        harness: Harness,
        topic: str,
        dead: str,
        *,
        attempts: int,
        rejects: bool,
        lock_s: float,
        is_quiet: bool,
    ) -> None:
        self.processed: set[bytes] = set()
        self.failed: Counter[bytes] = Counter()
        self.rejected: set[bytes] = set()
        self.given_up: set[bytes] = set()
        self._harness = harness
        self._topic = topic
        self._dead = dead
        self._attempts = attempts
        self._rejects = rejects
        self._lock_s = lock_s
        self._is_quiet = is_quiet
        self._deliveries: dict[int, tuple[Any, int]] = {}  # the record, so that its id is unique
        self._last_attempt: Counter[bytes] = Counter()

    def watch(self) -> None:
        """Check the states that the brokers store from now on."""
        persister: Any = self._harness.broker._running.share_partitions.persister
        write = persister.write

        def persist(key: SharePartitionKey, update: StateUpdate, leader_epoch: int) -> None:
            write(key, update, leader_epoch)
            self._stored(key, update)

        persister.write = persist

    # --- handlers ---

    def begin(self, worker: str, record: Any) -> None:
        """Check the delivery and the attempt as a handler is called with a record."""
        inner, value = record.record, record.record.value
        _, attempts = self._deliveries.get(id(inner), (inner, 0))
        self._deliveries[id(inner)] = (inner, attempts + 1)
        self._last_attempt[value] = max(self._last_attempt[value], record.attempt)
        if not attempts:
            delivery = ((record.offset, value),), (inner.delivery_count,)
            place = record.topic, record.partition
            self._harness.recorder.note(
                ShareReceived(self._harness.now(), worker, *place, *delivery)
            )
        if inner.lock_expires_at is None:
            self._violated(LOCKED, f"{worker} processes {record!r}, which is not locked for it")
        if record.attempt != inner.delivery_count + attempts:
            text = f"{record!r} has attempt {record.attempt} in delivery {inner.delivery_count}"
            self._violated(DELIVERED, f"{text} after {attempts} attempts in it")

    def end(self, worker: str, record: Any) -> None:
        """Do nothing: a share group has no order."""

    # --- states ---

    def _stored(self, key: SharePartitionKey, update: StateUpdate) -> None:
        topics = self._harness.broker._running.cluster.topics
        if key.topic_id != topics[self._topic].topic_id:
            return
        log = self._harness.log(self._topic, key.partition)
        values = {record.offset: record.value for record in log.records}
        for batch in update.batches:
            for offset in range(batch.first, batch.last + 1):
                tp = TopicPartition(self._topic, key.partition)
                if batch.state is RecordState.ACKNOWLEDGED:
                    self._accepted(tp, offset, values[offset])
                elif batch.state is RecordState.ARCHIVED:
                    self._archived(tp, offset, values[offset])
                elif self._is_quiet:
                    self._released(tp, offset, values[offset])

    def _accepted(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        if value in self.processed or value in self.dead_letters:
            self._decided(tp, offset, "accept")
        else:
            self._violated(FINISHED, f"{tp} {offset}, {value!r}, is accepted, but is not done")

    def _archived(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        holder = self._holder(tp, offset)
        if self._rejects and self._may_be_dead(value):
            self.rejected.add(value)
            self._decided(tp, offset, "reject")
        elif holder.delivery_count >= holder.limit:
            self.given_up.add(value)
        else:
            self._violated(FINISHED, f"{tp} {offset}, {value!r}, is archived, but has not failed")

    def _released(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """Check that a record was released, because its partition has moved to another worker."""
        held_s = self._harness.now() - self._holder(tp, offset).at
        if held_s >= self._lock_s:
            self._violated(LOCKED, f"{tp} {offset}, {value!r}: its lock expired without a fault")

    def _decided(self, tp: TopicPartition, offset: int, decision: str) -> None:
        client = self._holder(tp, offset).client
        self._harness.recorder.note(
            ShareDecided(self._harness.now(), client, *tp, (offset,), decision)
        )

    def _holder(self, tp: TopicPartition, offset: int) -> ShareAcquired:
        """Return the last acquisition of a record."""
        for change in reversed(self._harness.share_changes()):
            if (
                isinstance(change, ShareAcquired)
                and (change.topic, change.partition) == tp
                and change.first <= offset <= change.last
            ):
                return change
        raise AssertionError(f"{tp} {offset} has a final state, but was never acquired")

    def _may_be_dead(self, value: bytes) -> bool:
        return kind_of(value).kind in DEAD_KINDS or self._last_attempt[value] >= self._attempts

    # --- the end ---

    @property
    def dead_letters(self) -> set[bytes]:
        """Values in the dead letter topic."""
        return set(self._values(self._dead))

    def _values(self, topic: str) -> list[bytes]:
        return [record.value for record in self._harness.records(topic)]

    def check_records(self) -> None:
        """Check that each record is done, and the dead letters are those that have failed."""
        dead = self.dead_letters
        for value in self._values(self._topic):
            failed = value in dead or value in self.rejected
            if failed and not self._may_be_dead(value):
                self._violated(COMPLETE, f"{value!r} is a dead letter or rejected")
            done = failed if kind_of(value).kind in DEAD_KINDS else value in self.processed | dead
            if not done and value not in self.rejected and value not in self.given_up:
                self._violated(COMPLETE, f"{value!r} is finished, but was not processed")
        if self._rejects and dead:
            self._violated(COMPLETE, f"{self._dead} has {len(dead)} records that were rejected")

    def check_dead_letter_queue(self, topic: str) -> None:
        """Check the dead letters of the brokers: those that are rejected or given up."""
        archived, written = self.rejected | self.given_up, set(self._values(topic))
        for value in self._values(self._topic):
            # Without a leader of its partition, a broker cannot write a dead letter.
            missing = self._is_quiet and value in archived and value not in written
            if missing or (value in written and value not in archived):
                self._violated(COMPLETE, f"{value!r} is {'not ' * missing}in {topic}")

    def _violated(self, invariant: int, text: str) -> None:
        self._harness.violated(invariant, text)
