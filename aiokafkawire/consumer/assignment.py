"""The partitions that a consumer owns, and what is given of them to whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from aiokafkawire.errors import KafkaError
from aiokafkawire.records import FetchedBatches, OffloadedBatch, Records
from aiokafkawire.runtime import copy_of
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

from .buffer import MAX_CALLERS, TAKE_BYTES, Cursor, FetchBuffer
from .counters import Counters
from .partition import Damaged, Partition, Positioned, Refused

__all__ = ("Assignment", "to_commit")


class Assignment:
    """Owned partitions by name.

    What a call costs goes by the partitions that have something to give or to tell (`_filled`, in
    the order of their turns, and `_troubles`), not by those that are owned. `roomy`: the
    partitions whose fetched bytes the last call took below `room_bytes`, or that it found damaged.
    `stopped`: the last call gave nothing as it took long enough, or as `offloaded` has to be
    unpacked first.
    """

    def __init__(self, room_bytes: int = 0) -> None:
        self._partitions: dict[TopicPartition, Partition] = {}
        self._filled: dict[Partition, None] = {}
        self._troubles: dict[Partition, None] = {}
        self._room_bytes = room_bytes
        self.roomy: list[Partition] = []
        self.stopped = False
        self.offloaded: OffloadedBatch | None = None
        self._given: dict[object, dict[FetchBuffer, None]] = {}
        self._cursor: Cursor | None = None
        self._passing_over = False
        self.counters = Counters()

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._partitions)

    def __contains__(self, tp: object) -> bool:
        return tp in self._partitions

    def has(self, partitions: Mapping[TopicPartition, object]) -> bool:
        """Whether all of these are owned."""
        return partitions.keys() <= self._partitions.keys()

    def get(self, tp: TopicPartition) -> Partition | None:
        """A partition, if it is owned."""
        return self._partitions.get(tp)

    @property
    def names(self) -> tuple[TopicPartition, ...]:
        """The owned partitions, sorted."""
        return tuple(sorted(self._partitions))

    def values(self) -> list[Partition]:
        """The partitions, in the order in which they came."""
        return list(self._partitions.values())

    def add(self, partition: Partition) -> None:
        """Own a partition; its turn is the last."""
        replaced = self._partitions.get(partition.tp)
        if replaced is not None:
            self.remove([replaced])
        self._partitions[partition.tp] = partition
        partition.tell(self._troubles)
        self.filled(partition)

    def filled(self, partition: Partition) -> None:
        """Something was fetched of a partition; it may have gone meanwhile."""
        if self._partitions.get(partition.tp) is not partition:
            return
        if partition.buffer is not None and not partition.buffer.empty:
            self._filled.setdefault(partition)

    def remove(self, partitions: Iterable[Partition]) -> None:
        """Take partitions out; one that was replaced by another of its name stays."""
        for partition in partitions:
            if self._partitions.get(partition.tp) is partition:
                del self._partitions[partition.tp]
                self._filled.pop(partition, None)
                partition.tell(None)

    def with_data(self) -> list[Partition]:
        """The partitions that have something to give, and perhaps some that have not any more."""
        return list(self._filled)

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
        self._begin()
        for partition, buffer in self._turns(None):
            before = buffer.size_bytes
            try:
                cursor = buffer.open(caller)
            except KafkaError as error:
                raise self._damaged(partition, error) from None
            self._took(before, partition, buffer)
            if cursor is not None:
                self._note(caller, buffer)
                self._had_turn(partition)
                self._count_cursor()
                self._cursor = cursor
                return cursor
            if buffer.stopped_at is not None:
                self._stop_at(buffer.stopped_at)
                break
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
        given: dict[TopicPartition, Records] = {}
        left, remaining_bytes = max_records, TAKE_BYTES
        self._pass_over(only)
        self._begin()
        for partition, buffer in self._turns(only):
            before = buffer.size_bytes
            parts: list[Records] = []
            try:
                while left and remaining_bytes > 0:
                    records = buffer.take(left, caller, remaining_bytes)
                    remaining_bytes -= buffer.decoded_bytes
                    if records is None:
                        break
                    parts.append(records)
                    left -= len(records)
            except KafkaError as error:
                self._damaged(partition, error)
                if not given and not parts:
                    raise
            self._took(before, partition, buffer)
            if parts:
                given[partition.tp] = _joined(parts)
                self._note(caller, buffer)
                self._had_turn(partition)
            if not given and (buffer.stopped_at is not None or remaining_bytes <= 0):
                self._stop_at(buffer.stopped_at)
                break
            if not left or remaining_bytes <= 0 or (given and one):
                break
        self.counters.records_given += max_records - left
        return given

    def _begin(self) -> None:
        self.roomy = []
        self.stopped = False
        self.offloaded = None

    def _stop_at(self, batches: FetchedBatches | None) -> None:
        self.stopped = True
        self.offloaded = None if batches is None else batches.offloaded

    def _took(self, before: int, partition: Partition, buffer: FetchBuffer) -> None:
        if buffer.size_bytes < self._room_bytes <= before:
            self.roomy.append(partition)

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
        for partition in list(self._troubles):
            error = partition.hear()
            if error is not None:
                for other in list(self._troubles):
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

    def _turns(
        self, only: Collection[TopicPartition] | None
    ) -> Iterator[tuple[Partition, FetchBuffer]]:
        """Those with something to give, the one whose turn is next first."""
        for partition in list(self._filled):
            buffer = partition.readable
            if buffer is None:
                buffer = partition.buffer
                if buffer is None or buffer.empty:
                    del self._filled[partition]
            elif buffer.empty:
                del self._filled[partition]
            elif only is None or partition.tp in only:
                yield partition, buffer

    def _had_turn(self, partition: Partition) -> None:
        self._filled.pop(partition, None)
        self._filled[partition] = None

    def _damaged(self, partition: Partition, error: KafkaError) -> KafkaError:
        assert isinstance(partition.state, Positioned)
        partition.handle(Damaged(partition.state, error))
        self.roomy.append(partition)
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
    last = parts[-1]
    return Records(*last.topic_partition, segments, last.next_offset, last.leader_epoch)
