"""The partitions assigned to a consumer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from aiokafkawire.errors import KafkaError
from aiokafkawire.types import OffsetAndMetadata, TopicPartition

from .counters import ConsumerCounters
from .fetch_buffer import FetchBuffer
from .partition import AssignedPartition
from .partition_states import ErrorPending

__all__ = ("ConsumerAssignment", "offsets_to_commit")


class ConsumerAssignment:
    """The assigned partitions, by topic and number.

    The cost of a call grows with the partitions that have records (`with_data`, in delivery order)
    or an error (`failed`), not with all assigned partitions.

    Attributes:
        whole_topics: All partitions of the subscribed topics are read: there is neither a group nor
            a manual assignment.
        counters: Counters for `metrics`.
        with_data: Partitions with undelivered records, and perhaps some already drained, in the
            order of delivery.
        failed: Partitions with an error to raise.
    """

    def __init__(self) -> None:
        self.whole_topics = False
        self.counters = ConsumerCounters()
        self._partitions: dict[TopicPartition, AssignedPartition] = {}
        self.with_data: dict[AssignedPartition, None] = {}
        self.failed: dict[AssignedPartition, None] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._partitions)

    def __contains__(self, tp: object) -> bool:
        return tp in self._partitions

    def has_all(self, partitions: Mapping[TopicPartition, object]) -> bool:
        """Return whether all of these partitions are assigned."""
        return partitions.keys() <= self._partitions.keys()

    def get(self, tp: TopicPartition) -> AssignedPartition | None:
        """Return a partition, or None if it is not assigned."""
        return self._partitions.get(tp)

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The topics and numbers of the assigned partitions, sorted."""
        return tuple(sorted(self._partitions))

    def values(self) -> list[AssignedPartition]:
        """Return the partitions in the order in which they were assigned."""
        return list(self._partitions.values())

    def add(self, partition: AssignedPartition) -> None:
        """Add a partition, last in delivery order; it replaces an older one of the same name."""
        replaced = self._partitions.get(partition.tp)
        if replaced is not None:
            self.remove([replaced])
        self._partitions[partition.tp] = partition
        partition.track_failure_in(self.failed)
        if partition.buffer is not None and not partition.buffer.is_empty:
            self.with_data[partition] = None

    def on_records_fetched(self, partition: AssignedPartition) -> None:
        """Note that a fetch has returned records, unless the partition was removed meanwhile."""
        if self._partitions.get(partition.tp) is partition:
            self.with_data.setdefault(partition)

    def remove(self, partitions: Iterable[AssignedPartition]) -> None:
        """Remove partitions. A newer partition of the same name stays."""
        for partition in partitions:
            if self._partitions.get(partition.tp) is partition:
                del self._partitions[partition.tp]
                self.with_data.pop(partition, None)
                partition.track_failure_in(None)

    # --- delivery ---

    def take_partition_error(self) -> KafkaError | None:
        """Return the error to raise for a partition that cannot be read, if there is one.

        The same pending error of several partitions of a topic is returned once.
        """
        for partition in list(self.failed):
            error = partition.take_error()
            if error is not None:
                for other in list(self.failed):
                    if other.tp.topic == partition.tp.topic and _has_same_error(other, error):
                        other.take_error()
                return error
        return None

    def in_delivery_order(
        self, only: Collection[TopicPartition] | None
    ) -> Iterator[tuple[AssignedPartition, FetchBuffer]]:
        """Yield the partitions with readable records in delivery order; forget empty ones."""
        for partition in list(self.with_data):
            buffer = partition.readable_buffer
            if buffer is None:
                buffer = partition.buffer
                if buffer is None or buffer.is_empty:
                    del self.with_data[partition]
            elif buffer.is_empty:
                del self.with_data[partition]
            elif only is None or partition.tp in only:
                yield partition, buffer

    def move_to_end(self, partition: AssignedPartition) -> None:
        """Deliver records of all other partitions next."""
        self.with_data.pop(partition, None)
        self.with_data[partition] = None

    # --- committing ---

    def delivered_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets after all delivered records, where they are not committed yet."""
        offsets = {tp: partition.delivered_offset() for tp, partition in self._partitions.items()}
        return {tp: offset for tp, offset in offsets.items() if offset is not None}

    def mark_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that the coordinator has acknowledged these offsets."""
        for tp, offset in offsets.items():
            partition = self._partitions.get(tp)
            if partition is not None:
                partition.committed_offset = offset.offset


def offsets_to_commit(
    partitions: Iterable[AssignedPartition],
    pending: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({}),
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offset after the processed records of each partition that needs a commit.

    `pending` has the offsets whose commit has no response yet.
    """
    offsets = {
        partition.tp: partition.offset_to_commit(pending.get(partition.tp))
        for partition in partitions
    }
    return {tp: offset for tp, offset in offsets.items() if offset is not None}


def _has_same_error(partition: AssignedPartition, error: KafkaError) -> bool:
    """Return whether the partition has the same broker error pending."""
    state = partition.state
    if not isinstance(state, ErrorPending):
        return False
    code = getattr(error, "code", None)
    return type(state.error) is type(error) and getattr(state.error, "code", None) == code
