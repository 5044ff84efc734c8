"""The topics that a producer writes to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aiokafkawire.producer.accumulator_config import QueueConfig
from aiokafkawire.producer.partition_queue import PartitionQueue
from aiokafkawire.producer.sequences import PartitionSequences, ProducerIdState
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.types import NodeId, TopicPartition

__all__ = ("MAX_IDLE_TOPICS", "ProducerTopics")

MAX_IDLE_TOPICS = 10_000
"""Idle topics whose sequence numbers are kept; see `ProducerTopics.deactivate_idle`."""


class ProducerTopics:
    """The topics in use and up to `MAX_IDLE_TOPICS` idle ones, with their queues.

    The sequence numbers of idle topics are kept, because a broker takes a reused number for a
    duplicate and drops the records.

    Attributes:
        in_use: The topics in use, by name.
        nodes_in_rack: Brokers preferred for records without a key (KIP-1123).
    """

    def __init__(self, config: QueueConfig) -> None:
        self.in_use: dict[str, TopicQueues] = {}
        self.nodes_in_rack: frozenset[NodeId] = frozenset()
        self._config = config
        self._idle: dict[str, TopicQueues] = {}

    def queues(self) -> Iterator[PartitionQueue]:
        """Yield the queues of all topics in use."""
        for topic in self.in_use.values():
            yield from topic.all_queues.values()

    def find(self, name: str) -> TopicQueues | None:
        """Return a topic in use or an idle one; None if it is not known."""
        return self.in_use.get(name) or self._idle.get(name)

    def update(
        self, name: str, partitions: Iterable[int], producer_id_state: ProducerIdState | None
    ) -> TopicQueues:
        """Use a topic with the partitions of its metadata. Existing queues are kept."""
        topic = self.in_use.get(name) or self.reactivate(name)
        if topic is None:
            topic = self.in_use[name] = TopicQueues(name, self._config.batch_size_bytes)
        numbers = sorted(partitions)
        for number in numbers:
            if number not in topic.all_queues:
                topic.all_queues[number] = PartitionQueue(
                    TopicPartition(name, number),
                    self._config,
                    None if producer_id_state is None else PartitionSequences(producer_id_state),
                )
        topic.set_queues([topic.all_queues[number] for number in numbers])
        return topic

    def reactivate(self, name: str) -> TopicQueues | None:
        """Use an idle topic again; return None if there is no such idle topic."""
        topic = self._idle.pop(name, None)
        if topic is not None:
            self.in_use[name] = topic
        return topic

    def deactivate_idle(self, before: float) -> list[str]:
        """Deactivate the topics that were not used since a time, and return their names."""
        idle = [
            name
            for name, topic in self.in_use.items()
            if topic.last_used_at <= before and not topic.has_unfinished_batches
        ]
        for name in idle:
            topic = self._idle[name] = self.in_use.pop(name)
            topic.clear_caches()
        return idle

    def disable_sequences(self) -> None:
        """Continue without sequence numbers, in idle topics too."""
        for topic in (*self.in_use.values(), *self._idle.values()):
            for queue in topic.all_queues.values():
                queue.sequences = None

    def resume_sequences(self) -> None:
        """Continue in the same epoch where the sequence number that the log expects is certain."""
        for queue in self.queues():
            if queue.sequences is not None:
                queue.sequences.resume()

    @property
    def has_sequence_gap(self) -> bool:
        """True if a partition needs a new epoch to continue its sequence numbers."""
        return any(
            queue.sequences is not None and queue.sequences.draining for queue in self.queues()
        )

    @property
    def has_expired_in_flight(self) -> bool:
        """True if an expired batch is still in flight, so that a broker may append it."""
        return any(queue.expired_in_flight for queue in self.queues())

    def forget_oldest_idle(self) -> bool:
        """Forget idle topics above `MAX_IDLE_TOPICS`; return whether there were any.

        Their sequence numbers are reused, which only a new epoch makes safe.
        """
        excess = len(self._idle) - MAX_IDLE_TOPICS
        for name in list(self._idle)[: max(excess, 0)]:
            del self._idle[name]
        return excess > 0
