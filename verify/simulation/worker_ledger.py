"""Records that the handlers of workers have processed, and checks of what the workers do with them.

The value of a record names its kind, which says how its handler behaves, and its key:
`sender-7|poison,k3`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from aiokafkawire.broker import SeenRequest
from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.finished_records import decode_metadata
from verify.invariants.events import parse_value
from verify.simulation.harness import Harness

__all__ = ("DEAD_KINDS", "KINDS", "RecordKind", "WorkerLedger", "kind_of")

KINDS = ("fine", "once", "base", "slow", "drop", "poison", "letter", "garbage", "later", "hang")
"""Kinds of records: their handler returns; fails once; raises a BaseException once; takes long;
drops the record; always fails; writes a dead letter; fails until the last retry topic; takes longer
than the time limit once. The value of "garbage" cannot be decoded."""

DEAD_KINDS = ("poison", "letter", "garbage")

NO_DUPLICATES, ORDER, COMMITS, COMPLETE = 2, 3, 6, 11
"""Numbers of the invariants that are checked here."""


class RecordKind(NamedTuple):
    """Kind and key of a record, which its value names."""

    kind: str
    key: str


def kind_of(value: bytes) -> RecordKind:
    """Return kind and key of a value of the sender."""
    found = parse_value(value)
    assert found is not None
    return RecordKind(*found.payload.decode().split(","))


class WorkerLedger:
    """Compares the records of topics with what handlers did.

    Args:
        harness: Has the logs, and takes the violations.
        group: Group of the workers.
        stages: The topics that the workers read, the retry topics in their order.
        dead: The dead letter topic.
        order_by: `order_by` of the handlers.
        output: Topic to which transactions write each processed value; None without transactions.
    """

    def __init__(  # noqa: PLR0917
        self,
        harness: Harness,
        group: str,
        stages: Sequence[str],
        dead: str,
        order_by: str | None,
        output: str | None = None,
    ) -> None:
        self.processed: set[bytes] = set()
        self.failed: Counter[bytes] = Counter()
        self._harness = harness
        self._group = group
        self._stages = tuple(stages)
        self._dead = dead
        self._deleted: set[bytes] = set()  # dead letters
        self._order_by = order_by
        self._output = output
        self._offsets: defaultdict[int, list[SeenRequest]] = defaultdict(list)
        self._running: Counter[tuple[str, TopicPartition, str]] = Counter()

    # --- handlers ---

    def begin(self, worker: str, record: Any) -> None:
        """Check the order as a handler is called with a record."""
        if record.topic != self._stages[0] or self._order_by is None:
            return
        key = self._ordering_key(record.record.value)
        place = (worker, record.topic_partition, key)
        self._running[place] += 1
        if self._running[place] > 1:
            self._violated(ORDER, f"{worker} runs two records of {key!r} in {record!r}")
        for before in self._harness.log(record.topic, record.partition).records:
            if before.offset >= record.offset:
                return
            if self._ordering_key(before.value) == key and not self._may_be_past(before.value):
                text = f"{worker} processes {record!r} before offset {before.offset}"
                self._violated(ORDER, text)

    def _may_be_past(self, value: bytes) -> bool:
        """Return whether later records of the first stage may be processed.

        With transactions, the copies of failed records are not in the log at once.
        """
        if self._output is not None and kind_of(value).kind in (*DEAD_KINDS, "later"):
            return True
        return self._is_done(0, value)

    def end(self, worker: str, record: Any) -> None:
        """Note that the attempt has ended."""
        if record.topic == self._stages[0] and self._order_by is not None:
            key = self._ordering_key(record.record.value)
            self._running[worker, record.topic_partition, key] -= 1

    def _ordering_key(self, value: bytes) -> str:
        return "" if self._order_by == "partition" else kind_of(value).key

    # --- commits ---

    def check_commit(self, seen: SeenRequest) -> None:
        """Check that the records that an OffsetCommit request names as finished are done."""
        request: Any = seen.message
        if request.group_id != self._group:
            return
        for tp, offset, metadata in self._offsets_of(request):
            if tp.topic not in self._stages:
                continue
            stage = self._stages.index(tp.topic)
            finished = decode_metadata(offset, metadata)
            for record in self._harness.log(*tp).records:
                if record.fate == "aborted":
                    continue
                is_named = record.offset < offset or (
                    finished is not None and finished.has(record.offset, finished.leader_epoch)
                )
                if is_named and not self._is_done(stage, record.value):
                    text = f"{seen.client_id} commits {tp} {offset}, {record.offset} is not done"
                    self._violated(COMMITS, text)

    def keep_offsets(self, seen: SeenRequest) -> None:
        """Keep a TxnOffsetCommit request until its transaction ends."""
        request: Any = seen.message
        self._offsets[request.producer_id].append(seen)

    def check_transaction(self, seen: SeenRequest) -> None:
        """Check the offsets of a transaction that is committed, when its records are written."""
        request: Any = seen.message
        for commit in self._offsets.pop(request.producer_id, ()):
            if request.committed:
                self.check_commit(commit)

    def _offsets_of(self, request: Any) -> Iterator[tuple[TopicPartition, int, str]]:
        ids = {topic.topic_id: name for name, topic in self._topics().items()}
        for topic in request.topics:
            name = topic.name or ids.get(topic.topic_id, "")
            for partition in topic.partitions:
                yield (
                    TopicPartition(name, partition.partition_index),
                    partition.committed_offset,
                    partition.committed_metadata or "",
                )

    def _topics(self) -> dict[str, Any]:
        return self._harness.broker._running.cluster.topics

    def _is_done(self, stage: int, value: bytes) -> bool:
        """Return whether a record of a stage was processed, or is in a later topic."""
        if value in self.processed or value in self.dead_letters:
            return True
        return any(value in self.values(topic) for topic in self._stages[stage + 1 :])

    # --- dead letters ---

    @property
    def dead_letters(self) -> set[bytes]:
        """Values that were written to the dead letter topic, and are not aborted."""
        return {*self.values(self._dead), *self._deleted}

    def keep_dead_letters(self) -> None:
        """Keep the dead letters, because their topic is deleted next."""
        self._deleted.update(self.values(self._dead))

    # --- the end ---

    def values(self, topic: str, *, only: str | None = None) -> list[bytes]:
        """Return the values of a topic that are not aborted, or those of one fate."""
        return [
            each.value
            for each in self._harness.records(topic)
            if each.fate != "aborted" and only in (None, each.fate)
        ]

    @property
    def _written(self) -> set[bytes]:
        """Values that are processed and, with transactions, written, unless they are dropped."""
        assert self._output is not None
        output = set(self.values(self._output, only="committed"))
        return {
            value for value in self.processed if value in output or kind_of(value).kind == "drop"
        }

    def unfinished(self) -> list[str]:
        """Return the records that are neither processed nor dead, and what is not committed.

        Output of a transaction that a crash has left open counts until the coordinator aborts it.
        """
        dead = self.dead_letters
        done = self.processed if self._output is None else self._written
        found = [
            f"{value!r}"
            for value in self.values(self._stages[0])
            if value not in (dead if kind_of(value).kind in DEAD_KINDS else done)
        ]
        offsets = self._harness.broker._running.group_coordinator.offsets.committed(self._group)
        for topic in self._stages:
            for partition in range(self._harness.broker.topics.get(topic, 0)):
                # Behind the last record there may be markers of transactions.
                end = self._harness.log(topic, partition).end_offset
                kept = offsets.get(TopicPartition(topic, partition))
                if end and (kept is None or kept.offset != end):
                    found.append(f"{topic}-{partition} is not committed up to {end}")
        found += [
            f"{value!r} is in an open transaction"
            for topic in self._written_topics
            for value in self.values(topic, only="open")
        ]
        return found

    @property
    def _written_topics(self) -> tuple[str, ...]:
        """Topics that workers write in transactions, if they do."""
        return () if self._output is None else (self._output, self._dead, *self._stages[1:])

    def check_dead_letters(self) -> None:
        """Check that the dead letters are those that no attempt could process."""
        for value in self.dead_letters:
            if kind_of(value).kind not in DEAD_KINDS:
                self._violated(COMPLETE, f"{value!r} is a dead letter")

    def check_output(self) -> None:
        """Check that transactions have written everything once, and no output of failed records."""
        if self._output is None:
            return
        for topic in self._written_topics:
            for value, count in Counter(self.values(topic)).items():
                if count > 1:
                    self._violated(NO_DUPLICATES, f"{value!r} is in {topic} {count} times")
        for value in self.values(self._output):
            if kind_of(value).kind in (*DEAD_KINDS, "drop"):
                self._violated(COMPLETE, f"{value!r} is in {self._output}, but has failed")

    def _violated(self, invariant: int, text: str) -> None:
        self._harness.violated(invariant, text)
