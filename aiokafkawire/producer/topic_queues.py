"""The partitions of one topic that records go to, and which one is next."""

from __future__ import annotations

from aiokafkawire.producer.partition_queue import PartitionQueue
from aiokafkawire.producer.partitioner import StickyPartition, partition_for_key
from aiokafkawire.wire import ZERO_UUID

__all__ = ("MAX_CACHED_KEYS", "TopicQueues")

MAX_CACHED_KEYS = 16_384
"""Keys of a topic whose partition is remembered: looking it up is cheaper than hashing."""

MAX_CACHED_KEY_BYTES = 64


class TopicQueues:
    """A topic's partitions, as metadata has them.

    `by_partition` are those that there are now; `all_queues` has also those that went away.
    `last_used_at` is when a batch was last begun.
    """

    __slots__ = (
        "_key_cache",
        "all_queues",
        "by_partition",
        "last_used_at",
        "name",
        "queues",
        "sticky",
        "sticky_queue",
        "topic_id",
    )

    def __init__(self, name: str, switch_bytes: int) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.by_partition: dict[int, PartitionQueue] = {}
        self.all_queues: dict[int, PartitionQueue] = {}
        self.last_used_at = 0.0
        self.sticky = StickyPartition(switch_bytes)
        self.sticky_queue: PartitionQueue | None = None  # the choice's, while it holds
        self.topic_id = ZERO_UUID
        self._key_cache: dict[bytes, PartitionQueue] = {}

    def set_queues(self, queues: list[PartitionQueue]) -> None:
        """Take over the partitions that there are now, in their order."""
        if queues != self.queues:
            self.queues = queues
            self.by_partition = {queue.topic_partition.partition: queue for queue in queues}
            self.sticky_queue = None
            self._key_cache.clear()

    def update_sticky(self, body_bytes: int) -> None:
        """A batch of `sticky_queue` ended: records without a key may go on elsewhere."""
        self.sticky.add_bytes(body_bytes, batch_ended=True)
        if self.sticky.partition is None:
            self.sticky_queue = None

    @property
    def has_unfinished_batches(self) -> bool:
        """Whether records wait or are on their way."""
        return any(queue.waiting or queue.in_flight for queue in self.all_queues.values())

    def queue_for_key(self, key: bytes) -> PartitionQueue:
        """The partition of a record with a key."""
        queue = self._key_cache.get(key)
        if queue is None:
            queue = self.queues[partition_for_key(key, len(self.queues))]
            if len(self._key_cache) >= MAX_CACHED_KEYS:
                self._key_cache.clear()
            if len(key) <= MAX_CACHED_KEY_BYTES:
                self._key_cache[key] = queue
        return queue

    def clear_key_cache(self) -> None:
        """Free the memory of keys."""
        self._key_cache.clear()
