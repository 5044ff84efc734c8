"""The partition queues of one topic, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from uuid import UUID

from aiokafkawire.producer.partition_queue import PartitionQueue
from aiokafkawire.producer.partitioner import partition_for_key
from aiokafkawire.producer.produce_request import ProduceTemplate
from aiokafkawire.types import NodeId
from aiokafkawire.wire import ZERO_UUID

__all__ = ("MAX_CACHED_KEYS", "TopicQueues")

MAX_CACHED_KEYS = 16_384
"""Keys per topic whose partition is cached: a look-up is cheaper than murmur2."""

MAX_CACHED_KEY_BYTES = 64


class TopicQueues:
    """The queues of a topic's partitions.

    Attributes:
        queues: Queues of the partitions in the current metadata, by partition number.
        by_partition: The same queues by partition number.
        all_queues: Also the queues of partitions that no longer exist.
        last_used_at: When a batch was last begun, in seconds on the runtime's clock.
        switch_bytes: Bytes after which another queue is chosen for records without a key.
        sticky_queue: Queue for records without a key; None until the next choice.
        sticky_bytes: Bytes in closed batches of `sticky_queue` since the choice.
        templates: Produce requests with one batch of the topic, by API version.
    """

    __slots__ = (
        "_key_cache",
        "all_queues",
        "by_partition",
        "last_used_at",
        "name",
        "queues",
        "sticky_bytes",
        "sticky_queue",
        "switch_bytes",
        "templates",
        "topic_id",
    )

    def __init__(self, name: str, switch_bytes: int) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.by_partition: dict[int, PartitionQueue] = {}
        self.all_queues: dict[int, PartitionQueue] = {}
        self.last_used_at = 0.0
        self.switch_bytes = switch_bytes
        self.sticky_queue: PartitionQueue | None = None
        self.sticky_bytes = 0
        self.topic_id = ZERO_UUID
        self.templates: dict[int, ProduceTemplate] = {}
        self._key_cache: dict[bytes, PartitionQueue] = {}

    def set_id(self, topic_id: UUID) -> bool:
        """Set the topic id of the current metadata; return whether it replaced another one."""
        known = self.topic_id
        if topic_id in {ZERO_UUID, known}:
            return False
        self.topic_id = topic_id
        self.templates.clear()
        return known != ZERO_UUID

    def set_queues(self, queues: list[PartitionQueue]) -> None:
        """Replace the current partitions, given in order."""
        if queues != self.queues:
            self.queues = queues
            self.by_partition = {queue.topic_partition.partition: queue for queue in queues}
            self.sticky_queue = None
            self._key_cache.clear()

    def update_sticky(self, body_bytes: int) -> None:
        """Count a closed batch of `sticky_queue`; clear it when it has enough bytes."""
        self.sticky_bytes += body_bytes
        if self.sticky_bytes >= self.switch_bytes:
            self.sticky_queue = None

    def queue_lengths(
        self,
        adaptive: bool,
        unavailable: AbstractSet[NodeId | None],
        preferred: AbstractSet[NodeId | None] = frozenset(),
    ) -> list[int | None]:
        """Return the number of waiting batches per partition, None for excluded partitions.

        Args:
            adaptive: Prefer short queues; otherwise all count as empty.
            unavailable: Brokers to exclude, unless none is left.
            preferred: Brokers to which the choice is limited, unless none of them is left.
        """
        lengths = [
            None if queue.leader is None else len(queue.waiting) if adaptive else 0
            for queue in self.queues
        ]
        if unavailable:
            lengths = self._limited(lengths, lambda leader: leader not in unavailable)
        return self._limited(lengths, lambda leader: leader in preferred) if preferred else lengths

    def _limited(
        self, lengths: list[int | None], includes: Callable[[NodeId | None], bool]
    ) -> list[int | None]:
        """Return the lengths of the queues of some leaders; of all if none of these is left."""
        limited = [
            length if includes(queue.leader) else None
            for queue, length in zip(self.queues, lengths, strict=True)
        ]
        return lengths if limited.count(None) == len(limited) else limited

    @property
    def has_unfinished_batches(self) -> bool:
        """True if batches are waiting or in flight."""
        return any(queue.waiting or queue.in_flight for queue in self.all_queues.values())

    def queue_for_key(self, key: bytes) -> PartitionQueue:
        """Return the queue for a record with a key."""
        queue = self._key_cache.get(key)
        if queue is None:
            queue = self.queues[partition_for_key(key, len(self.queues))]
            if len(self._key_cache) >= MAX_CACHED_KEYS:
                self._key_cache.clear()
            if len(key) <= MAX_CACHED_KEY_BYTES:
                self._key_cache[key] = queue
        return queue

    def clear_caches(self) -> None:
        """Free the memory of what can be made again."""
        self._key_cache.clear()
        self.templates.clear()
