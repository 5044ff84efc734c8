"""Which partitions are paused, because they or all partitions have too many records."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from aiokafkawire.types import TopicPartition
from aiokafkawire.worker.partition_work import RESUME_SHARE, Budget, PartitionWork

__all__ = ("BufferLimits", "Pauses")


class Pauses(NamedTuple):
    """Partitions to pause and to resume."""

    pause: list[TopicPartition]
    resume: list[TopicPartition]


class BufferLimits:
    """Compares the records of partitions with limits.

    Args:
        max_records: Records of a partition, from the lowest unfinished one on, at which it is
            paused.
        max_bytes: Bytes of keys, values and headers of all unfinished records at which all
            partitions are paused. Those of retry topics have a budget of their own, so that records
            that wait there do not stop the others.
        retry_topics: Names of the retry topics.
    """

    def __init__(self, max_records: int, max_bytes: int, retry_topics: Iterable[str]) -> None:
        self._max_records = max_records
        self._budgets = Budget(max_bytes), Budget(max_bytes)
        self._retry_topics = set(retry_topics)

    def add_retry_topics(self, topics: Iterable[str]) -> None:
        """Count the records of more topics to the budget of retry topics."""
        self._retry_topics.update(topics)

    def budget(self, topic: str) -> Budget:
        """Return the budget to which the records of a topic count."""
        return self._budgets[topic in self._retry_topics]

    def may_resume(self, work: PartitionWork) -> bool:
        """Return whether `update` may find a partition to resume after a record of this one."""
        if work.budget.was_full and work.budget.may_resume:
            return True
        return work.is_paused and len(work.offsets) * RESUME_SHARE <= self._max_records

    def update(self, partitions: Collection[PartitionWork]) -> Pauses:
        """Return the partitions to pause and resume, which are then regarded as such."""
        changed = Pauses([], [])
        for budget in self._budgets:
            budget.update()
        for work in partitions:
            is_full, unfinished = work.budget.was_full, work.count_unfinished()
            if not work.is_paused and (is_full or unfinished >= self._max_records):
                work.is_paused = True
                changed.pause.append(work.tp)
            elif work.is_paused and not is_full and unfinished * RESUME_SHARE <= self._max_records:
                work.is_paused = False
                changed.resume.append(work.tp)
        return changed
