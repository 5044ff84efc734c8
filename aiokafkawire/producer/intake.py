"""From a caller's arguments to a record in the buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafkawire.config import ProducerConfig
from aiokafkawire.errors import RecordTooLarge, UnknownTopic
from aiokafkawire.producer.accumulator import TopicQueues
from aiokafkawire.producer.delivery import Delivery
from aiokafkawire.producer.partition_queue import PartitionQueue
from aiokafkawire.producer.sender import Sender
from aiokafkawire.producer.transactions import Transaction
from aiokafkawire.records.batch import BATCH_OVERHEAD_BYTES
from aiokafkawire.records.headers import as_bytes
from aiokafkawire.records.kernel import Headers
from aiokafkawire.runtime import Runtime

__all__ = ("RECORD_OVERHEAD_BYTES", "Intake", "NewRecord", "checked")

RECORD_OVERHEAD_BYTES = 36
"""At most what a record takes beside key, value and headers."""

HEADER_OVERHEAD_BYTES = 10

MAX_TIMESTAMP_MS = 2**63 - 1

NewRecord = tuple[str, bytes | None, bytes | None, int | None, int | None, Headers, int]
"""Topic, value, key, partition, timestamp, headers, and the size in bytes; all checked."""


def checked(  # noqa: PLR0917 - a hot call
    topic: str,
    value: Any,
    key: Any,
    partition: int | None,
    timestamp_ms: int | None,
    headers: Any,
    *,
    max_bytes: int,
) -> NewRecord:
    """Check the arguments of a record. Raises `TypeError` or `ValueError`, naming the argument,
    and `RecordTooLarge`."""
    size = RECORD_OVERHEAD_BYTES
    if value is not None:
        if type(value) is not bytes:
            value = as_bytes(value, "value")
        size += len(value)
    if key is not None:
        if type(key) is not bytes:
            key = as_bytes(key, "key")
        size += len(key)
    if headers:
        headers = _checked_headers(headers)
        for name, content in headers:
            size += HEADER_OVERHEAD_BYTES + 3 * len(name) + (len(content) if content else 0)
    if partition is not None or timestamp_ms is not None or type(topic) is not str or not topic:
        _check_rest(topic, partition, timestamp_ms)
    if size + BATCH_OVERHEAD_BYTES > max_bytes:
        raise RecordTooLarge(
            f"the record takes up to {size + BATCH_OVERHEAD_BYTES} bytes, over the limit of"
            f" {max_bytes} (the smaller of max_request_size_bytes and buffer_memory_bytes)",
            size_bytes=size + BATCH_OVERHEAD_BYTES,
            topic=topic,
            partition=partition,
        )
    return topic, value, key, partition, timestamp_ms, headers or (), size


def _check_rest(topic: Any, partition: Any, timestamp_ms: Any) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"topic must be a string, not {topic!r:.80}")
    if not topic:
        raise ValueError("topic must not be empty")
    for name, number in (("partition", partition), ("timestamp_ms", timestamp_ms)):
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name} must be a whole number or None, not {number!r:.80}")
        if not 0 <= number <= MAX_TIMESTAMP_MS:
            raise ValueError(f"{name} must not be negative or over 64 bits: {number}")


def _checked_headers(headers: Iterable[Any]) -> Headers:
    if isinstance(headers, Mapping):
        raise TypeError("headers must be pairs of name and value: give the items() of a dictionary")
    result = []
    for header in headers:
        try:
            name, content = header
        except (TypeError, ValueError):
            raise TypeError(
                f"headers must be pairs of name and value, not {header!r:.80}"
            ) from None
        if not isinstance(name, str):
            raise TypeError(f"a header's name must be a string, not {name!r:.80}")
        if content is not None:
            content = as_bytes(content, f"value of header {name!r}")
        result.append((name, content))
    return tuple(result)


class Intake:
    """Puts records into the buffer while the producer runs."""

    def __init__(self, config: ProducerConfig, runtime: Runtime, sender: Sender) -> None:
        self.max_bytes = min(config.max_request_size_bytes, config.buffer_memory_bytes)
        self.pacer = sender.accumulator.pacer
        self._max_plain_bytes = self.max_bytes - BATCH_OVERHEAD_BYTES
        self._buffer_bytes = config.buffer_memory_bytes
        # Whether the partition of a record without one hangs on more than its key.
        self._asks = config.partitioner is not None or config.partitioner_ignore_keys
        self._config = config
        self._sender = sender
        self._accumulator = sender.accumulator
        self._room = sender.room
        self._transactions = sender.transactions
        self._rng = runtime.rng
        self._now = runtime.clock.now
        self._wall_ms = runtime.clock.wall_ms

    def put_plain(self, topic: str, value: Any, key: Any, partition: int | None) -> Delivery | None:
        """`put` for most records: no headers, no time of their own, and a batch of their partition
        takes records. None if this one is not so, or something is in its way: then nothing is
        done."""
        accumulator = self._accumulator
        queues = accumulator.topics.get(topic) if type(topic) is str else None
        if queues is None or type(value) is not bytes or self._sender.failure is not None:
            return None
        size = RECORD_OVERHEAD_BYTES + len(value)
        queue: PartitionQueue | None
        sticky = None
        if partition is not None:
            if type(partition) is not int or (key is not None and type(key) is not bytes):
                return None
            queue = queues.by_partition.get(partition)
        elif self._asks:
            return None
        elif key is None:
            sticky = queues.sticky
            position = sticky.partition
            if position is None or position >= len(queues.queues):
                return None
            queue = queues.queues[position]
        elif type(key) is bytes:
            queue = queues.for_key(key)
        else:
            return None
        if key is not None:
            size += len(key)
        batch = None if queue is None else queue.open
        # An open batch is of the transaction that is open, if one is.
        if (
            batch is None
            or size > self._max_plain_bytes
            or accumulator.used_bytes + size > self._buffer_bytes
            or accumulator.pressing
            or (self._transactions is not None and not self._transactions.open)
        ):
            return None
        assert queue is not None
        builder = batch.builder
        assert builder is not None
        now_ms = self._wall_ms()
        index = builder.append(now_ms, key, value)
        if index is None:
            return None
        batch.reserved_bytes += size
        accumulator.used_bytes += size
        if builder.is_full:
            accumulator.end_batch(queue)
        if sticky is not None:
            sticky.filled(size, builder.is_full)
        return Delivery(batch.receipt, index, now_ms)

    def put(self, record: NewRecord, *, waited: bool = False) -> Delivery | None:
        """Put a record into the buffer; None if there is no room, or if its topic or partition is
        not known yet. Whoever `waited` does not stand behind others that wait."""
        if self._sender.failure is not None:
            self._sender.refused()
        if self._transactions is not None:
            self._transactions.check_open()
        topic, value, key, partition, timestamp_ms, headers, size = record
        accumulator = self._accumulator
        queues = accumulator.topics.get(topic) or self._sender.take_up(topic)
        if queues is None or not accumulator.has_room(size):
            return None
        if self._room.crowded and not waited:
            return None
        sticky = False
        now = self._now()
        if partition is not None:
            queue = queues.by_partition.get(partition)
            if queue is None:
                return None
        elif self._config.partitioner is not None:
            queue = self._ask_partitioner(queues, key)
        elif key is not None and not self._config.partitioner_ignore_keys:
            queue = queues.for_key(key)
        else:
            queue = accumulator.without_key(queues, self._rng, now)
            sticky = True
        if self._transactions is not None:
            self._transactions.use(queue.topic_partition)
        dated = timestamp_ms is not None
        if timestamp_ms is None:
            timestamp_ms = self._wall_ms()
        delivery, ended = accumulator.append(
            queue, key, value, headers, timestamp_ms, dated=dated, size_bytes=size, now=now
        )
        if sticky:
            queues.sticky.filled(size, ended)
        return delivery

    async def put_when_possible(self, record: NewRecord) -> Delivery:
        """Put a record into the buffer, waiting at most `max_block_ms`.

        Raises `BufferFull` for want of room, `UnknownTopic` (or what metadata says of it), and
        `RequestTimedOut` if no broker told of the topic.
        """
        transaction = self._transaction()
        deadline = self._now() + self._config.max_block_ms / 1_000
        topic, partition, size = record[0], record[3], record[6]
        await self.learn(topic, deadline)
        if partition is not None:
            await self._learn_partition(topic, partition, deadline)
        self._check_still(transaction)
        delivery = self.put(record)
        if delivery is not None:
            return delivery
        self._accumulator.press(1)
        try:
            await self._room.wait(lambda: self._accumulator.has_room(size), deadline)
        finally:
            self._accumulator.press(-1)
        self._check_still(transaction)
        delivery = self.put(record, waited=True)
        if delivery is None:
            raise UnknownTopic("the partition went away", topic=topic, partition=partition)
        return delivery

    async def checkpoint(self) -> None:
        """Let other tasks run before a record is put into the buffer."""
        transaction = self._transaction()
        await self.pacer.checkpoint()
        self._check_still(transaction)

    def _transaction(self) -> Transaction | None:
        return None if self._transactions is None else self._transactions.machine.transaction

    def _check_still(self, transaction: Transaction | None) -> None:
        """A record must not come into a later transaction than the one in which its call began:
        there the work that it is of may be done once more."""
        if self._transactions is not None:
            self._sender.refused()
            self._transactions.check_still(transaction)

    async def learn(self, topic: str, deadline: float) -> TopicQueues:
        """Wait until the topic's partitions are known."""
        if topic not in self._accumulator.topics:
            await self._sender.cluster.topic(topic, deadline, keep=True)
            if not self._sender.learn(topic):
                raise UnknownTopic("the topic went away at once", topic=topic)
        queues = self._accumulator.topics[topic]
        queues.used_at = self._now()
        return queues

    async def _learn_partition(self, topic: str, partition: int, deadline: float) -> None:
        """Wait until a partition is known: the topic may just have got more of them."""
        cluster = self._sender.cluster
        queues = self._accumulator.topics[topic]
        while partition not in queues.by_partition:
            version = cluster.metadata.version
            cluster.request_update()
            if not await cluster.wait_update(version, deadline):
                raise UnknownTopic(
                    f"the topic has {len(queues.queues)} partitions, and no partition {partition}"
                    " came before max_block_ms was over",
                    topic=topic,
                    partition=partition,
                )

    def _ask_partitioner(self, queues: TopicQueues, key: bytes | None) -> PartitionQueue:
        partitioner = self._config.partitioner
        assert partitioner is not None
        every = [queue.topic_partition.partition for queue in queues.queues]
        led = [
            queue.topic_partition.partition for queue in queues.queues if queue.leader is not None
        ]
        chosen = partitioner(key, every, led)
        if chosen not in every:
            raise ValueError(
                f"the partitioner chose {chosen!r}, which is no partition of {queues.name!r}"
            )
        return queues.by_partition[chosen]
