"""The partitions that a consumer owns, and what is given of them to whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from aiokafkawire.errors import CorruptRecords, KafkaError
from aiokafkawire.records import Record, Records
from aiokafkawire.runtime import copy_of
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

from .buffer import MAX_CALLERS, FetchBuffer, Lease
from .counters import Counters
from .partition import Damaged, Partition, Positioned, Refused

__all__ = ("CURSOR_RECORDS", "Assignment", "Cursor", "to_commit")

CURSOR_RECORDS = 256
"""Records that are given one by one before the consumer looks up again."""


class Cursor:
    """Gives the records of one partition, one by one, to one caller.

    `owner` is the iterator that goes on with it.
    """

    __slots__ = ("_buffer", "_counted", "_lease", "_left", "_partition", "owner")

    def __init__(self, partition: Partition, buffer: FetchBuffer, lease: Lease) -> None:
        self._partition = partition
        self._buffer = buffer
        self._lease = lease
        self._left = self._counted = CURSOR_RECORDS
        self.owner: object = None

    def next(self) -> Record | None:
        """The next record; None when it is time to look up."""
        if not self._left:
            return None
        record = self._buffer.next(self._lease)
        if record is not None:
            self._left -= 1
            self._partition.gave(record.offset, self._buffer.position)
        return record

    def take_count(self) -> int:
        """How many records it gave since this was asked last."""
        count, self._counted = self._counted - self._left, self._left
        return count


class Assignment:
    """Owned partitions by name, in an order that gives each its turn."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, Partition] = {}
        self._given: dict[object, dict[FetchBuffer, None]] = {}
        self._cursor: Cursor | None = None
        self._passing_over = False
        self.counters = Counters()

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, tp: object) -> bool:
        return tp in self._partitions

    def get(self, tp: TopicPartition) -> Partition | None:
        """A partition, if it is owned."""
        return self._partitions.get(tp)

    @property
    def names(self) -> tuple[TopicPartition, ...]:
        """The owned partitions, sorted."""
        return tuple(sorted(self._partitions))

    def values(self) -> list[Partition]:
        """The partitions, the one whose turn is next first."""
        return list(self._partitions.values())

    def add(self, partition: Partition) -> None:
        """Own a partition; its turn is the last."""
        self._partitions[partition.tp] = partition

    def remove(self, partitions: Iterable[Partition]) -> None:
        """Take partitions out; one that was replaced by another of its name stays."""
        for partition in partitions:
            if self._partitions.get(partition.tp) is partition:
                del self._partitions[partition.tp]

    # --- giving ---

    def came_back(self, caller: object) -> None:
        """A caller calls again: what it was given is processed."""
        for buffer in self._given.pop(caller, ()):
            buffer.came_back(caller)

    def _note(self, caller: object, buffer: FetchBuffer) -> None:
        buffers = self._given.setdefault(caller, {})
        buffers[buffer] = None
        if len(self._given) > MAX_CALLERS:
            # What the oldest was given is then never taken for processed.
            del self._given[next(iter(self._given))]

    def open(self, caller: object) -> Cursor | None:
        """A cursor over the next records there are; raises what a partition is broken by."""
        self._pass_over(None)
        for partition in self._turns(None):
            buffer = partition.readable
            assert buffer is not None
            try:
                lease = buffer.open(caller)
            except CorruptRecords as error:
                raise self._damaged(partition, error) from None
            if lease is not None:
                self._note(caller, buffer)
                self._had_turn(partition)
                self._count_cursor()
                self._cursor = Cursor(partition, buffer, lease)
                return self._cursor
        return None

    def take(
        self,
        caller: object,
        max_records: int,
        only: Collection[TopicPartition] | None = None,
        *,
        one: bool = False,
    ) -> dict[TopicPartition, Records]:
        """Up to `max_records` records of the partitions whose turn it is, or of `one` of them.

        Raises what a partition is broken by, unless there are records of others to give first.
        """
        given: dict[TopicPartition, list[Records]] = {}
        left = max_records
        self._pass_over(only)
        for partition in self._turns(only):
            buffer = partition.readable
            assert buffer is not None
            try:
                while left and (records := buffer.take(left, caller)) is not None:
                    given.setdefault(partition.tp, []).append(records)
                    left -= len(records)
                    self.counters.records_given += len(records)
                    first = records.first_offset
                    assert first is not None
                    partition.gave(first, records.next_offset)
            except CorruptRecords as error:
                self._damaged(partition, error)
                if not given:
                    raise
            if partition.tp in given:
                self._note(caller, buffer)
                self._had_turn(partition)
            if not left or (one and given):
                break
        return {tp: _joined(parts) for tp, parts in given.items()}

    def metrics(self) -> dict[str, int | float]:
        """What was counted, and how the partitions stand."""
        self._count_cursor()
        return self.counters.snapshot(self._partitions.values())

    def _count_cursor(self) -> None:
        if self._cursor is not None:
            self.counters.records_given += self._cursor.take_count()

    def raise_broken(self) -> None:
        """Raise what keeps a partition from being read, if the application may hear of it.

        What may go away by itself is raised once for all partitions of a topic.
        """
        for partition in self._partitions.values():
            error = partition.hear()
            if error is not None:
                for other in self._partitions.values():
                    if other.tp.topic == partition.tp.topic and _is_refused_so(other, error):
                        other.hear()
                raise copy_of(error)

    def _pass_over(self, only: Collection[TopicPartition] | None) -> None:
        """Note which partitions the application does not ask for."""
        if only is None and not self._passing_over:
            return
        self._passing_over = only is not None
        for tp, partition in self._partitions.items():
            partition.passed_over = only is not None and tp not in only

    def _turns(self, only: Collection[TopicPartition] | None) -> list[Partition]:
        """Those with something to give; most of many have nothing."""
        found = []
        for partition in self._partitions.values():
            state = partition.state
            if not isinstance(state, Positioned) or state.buffer.empty:
                continue
            if partition.readable is not None and (only is None or partition.tp in only):
                found.append(partition)
        return found

    def _had_turn(self, partition: Partition) -> None:
        del self._partitions[partition.tp]
        self._partitions[partition.tp] = partition

    def _damaged(self, partition: Partition, error: CorruptRecords) -> CorruptRecords:
        assert isinstance(partition.state, Positioned)
        partition.handle(Damaged(partition.state, error))
        return error

    # --- committing ---

    def read_up_to(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """All that was given, processed or not, and not known to be committed."""
        found = {
            tp: partition.read_up_to()
            for tp, partition in self._partitions.items()
            if partition.position != partition.acknowledged
        }
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def acknowledged(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The coordinator keeps these offsets."""
        for tp, offset in offsets.items():
            partition = self._partitions.get(tp)
            if partition is not None:
                partition.acknowledged = offset.offset


def to_commit(
    partitions: Iterable[Partition],
    asked: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({}),
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is processed and neither known to be committed nor `asked` to be."""
    found = {partition.tp: partition.to_commit(asked.get(partition.tp)) for partition in partitions}
    return {tp: offset for tp, offset in found.items() if offset is not None}


def _is_refused_so(partition: Partition, error: KafkaError) -> bool:
    """Whether a broker refused the partition as it did another."""
    state = partition.state
    if not isinstance(state, Refused):
        return False
    code = getattr(error, "code", None)
    return type(state.error) is type(error) and getattr(state.error, "code", None) == code


def _joined(parts: list[Records]) -> Records:
    if len(parts) == 1:
        return parts[0]
    segments = [segment for records in parts for segment in records.segments]
    return Records(*parts[0].topic_partition, segments, parts[-1].next_offset)
