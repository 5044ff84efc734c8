"""Content of a transaction of a worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiokafkawire.types import OffsetAndMetadata, TopicPartition
from aiokafkawire.worker.outputs import UncommittedRecord
from aiokafkawire.worker.partition_work import PartitionWork

__all__ = ("TransactionContent",)


@dataclass(slots=True)
class TransactionContent:
    """Offsets of a transaction, and the output of the records before them.

    Attributes:
        offsets: Offsets to commit.
        works: The work of these partitions.
        finished: Finished records with output.
    """

    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    works: list[PartitionWork] = field(default_factory=list)
    finished: list[tuple[PartitionWork, UncommittedRecord]] = field(default_factory=list)

    @property
    def is_fenced(self) -> bool:
        """True if a partition was revoked or lost: another member may process its records."""
        return any(work.is_fenced for work in self.works)

    @property
    def is_over(self) -> bool:
        """True if all partitions were revoked or lost."""
        return all(work.is_fenced for work in self.works)
