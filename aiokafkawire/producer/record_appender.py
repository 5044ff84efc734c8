"""Appends records to the buffer, and waits for space, metadata and the transaction."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

from aiokafkawire.errors import BufferFull, UnknownTopic
from aiokafkawire.logs import RateLimit, log_fields
from aiokafkawire.producer.delivery import Deliveries, Delivery
from aiokafkawire.producer.partition_queue import PartitionQueue
from aiokafkawire.producer.record_args import RECORD_OVERHEAD_BYTES, RecordArgs
from aiokafkawire.producer.record_columns import RecordColumns
from aiokafkawire.producer.sender import Sender, max_record_bytes
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.producer.transactions import InTransaction, Transaction
from aiokafkawire.records.batch import BATCH_OVERHEAD_BYTES
from aiokafkawire.runtime import get_loop_identity, running_on_trio
from aiokafkawire.types import TopicPartition, no_partition_text, require_topic_name

__all__ = ("RecordAppender",)

logger = logging.getLogger("aiokafkawire.producer")


class RecordAppender:
    """Appends records to the buffer while the producer runs.

    Attributes:
        max_bytes: Limit of a record.
        observer: Calls the hooks of records; None without any.
    """

    def __init__(self, sender: Sender) -> None:
        config, clock = sender.config, sender.runtime.clock
        self.max_bytes = max_record_bytes(config)
        self.observer = sender.observer
        self.yield_budget = sender.accumulator.yield_budget
        self.on_asyncio = not running_on_trio()
        # Whether the key alone does not decide the partition.
        self._custom_partitioning = config.partitioner is not None or config.partitioner_ignore_keys
        self._sender = sender
        self._accumulator = sender.accumulator
        # A batch may have space for a record that exceeds a request: then check each record.
        fits = config.batch_size_bytes <= config.max_request_size_bytes
        # With hooks, each record takes the general path.
        self._fast_topics = sender.accumulator.topics if fits and self.observer is None else {}
        self._transaction_manager = sender.transaction_manager
        self._machine = (
            None if sender.transaction_manager is None else sender.transaction_manager.machine
        )
        self._log_limit = RateLimit()
        self._now = clock.now
        self._wall_ns = clock.wall_ns
        self._loop, self._current_loop_id = get_loop_identity()

    def append_fast(
        self, topic: str, value: Any, key: Any, partition: int | None
    ) -> Delivery | None:
        """Append a record without headers and timestamp; the fast path of `append`.

        Returns None, without any effect, if the general path is needed: the arguments are not
        checked yet, the partition is not known, there is no room, or the call comes from another
        event loop.

        A queue with a `builder` needs no check of `Sender.failure`, waiting callers or a flush.
        """
        if self._loop._thread_id != self._current_loop_id():
            return None
        try:
            queues = self._fast_topics[topic]
        except (KeyError, TypeError):  # No metadata yet, or not even a string.
            return None
        if partition is not None:
            queue = queues.by_partition.get(partition) if type(partition) is int else None
        elif key is None:
            queue = queues.sticky_queue
        else:
            queue = (
                None
                if self._custom_partitioning or type(key) is not bytes
                else queues.queue_for_key(key)
            )
        if queue is None:
            return None
        builder = queue.builder
        if builder is None:
            return self._begin_batch_fast(queues, queue, value, key)
        machine = self._machine
        # An open batch belongs to the open transaction.
        if machine is not None and type(machine.state) is not InTransaction:
            return None
        delivery: Delivery | None = builder.put(self._wall_ns() // 1_000_000, key, value)
        return delivery

    def _begin_batch_fast(
        self, queues: TopicQueues, queue: PartitionQueue, value: Any, key: Any
    ) -> Delivery | None:
        """Begin a batch with a record of `append_fast`, or send the record alone."""
        if queue.open is not None or type(value) is not bytes:
            return None
        size = RECORD_OVERHEAD_BYTES + len(value)
        if key is not None:
            if type(key) is not bytes:
                return None
            size += len(key)
        accumulator, sender = self._accumulator, self._sender
        if (
            self._machine is not None
            or sender.failure is not None
            or size + BATCH_OVERHEAD_BYTES > self.max_bytes
            or sender.buffer_waiters.has_waiters
            or not accumulator.pool.has_room(size)
        ):
            return None
        now_ms, now = self._wall_ns() // 1_000_000, self._now()
        if accumulator.sends_immediately:
            broker_sender = sender.broker_senders.get(queue.leader)  # type: ignore[arg-type]
            if broker_sender is not None:
                alone = broker_sender.send_alone(
                    queues, queue, key, value, (), now_ms, size_bytes=size, now=now
                )
                if alone is not None:
                    return alone
        delivery = accumulator.append(queue, key, value, (), now_ms, size_bytes=size, now=now)
        sender.perform()
        return delivery

    def append(
        self, record: RecordArgs, *, waited: bool = False, more_follow: bool = False
    ) -> Delivery | None:
        """Append a record; return None without space, or without metadata of its partition.

        Args:
            waited: The caller has waited for space, so it need not queue behind others.
            more_follow: The caller appends more records before it calls `Sender.perform`.
        """
        (sender := self._sender).raise_if_failed()
        accumulator, transaction_manager = self._accumulator, self._transaction_manager
        if transaction_manager is not None:
            transaction_manager.check_open()
        topic, value, key, partition, timestamp_ms, headers, size = record
        queues = accumulator.topics.get(topic) or sender.reactivate_topic(topic)
        must_queue = not waited and sender.buffer_waiters.has_waiters
        if queues is None or must_queue or not accumulator.pool.has_room(size):
            return None
        queue = None  # of the sticky partition
        if partition is not None or key is not None or self._custom_partitioning:
            queue = self._choose_queue(queues, partition, key)
        if queue is None and partition is not None:
            return None
        now, has_user_timestamp = self._now(), timestamp_ms is not None
        timestamp_ms = self._wall_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        delivery = None
        while delivery is None:  # until a partition's batch has space
            chosen = queue or queues.sticky_queue
            chosen = chosen or accumulator.choose_sticky_queue(queues, sender.runtime.rng, now)
            if transaction_manager is not None:
                transaction_manager.add_partition(chosen.topic_partition)
            broker_sender = sender.broker_senders.get(chosen.leader)  # type: ignore[arg-type]
            if broker_sender is not None and accumulator.sends_immediately and not more_follow:
                delivery = broker_sender.send_alone(
                    queues,
                    chosen,
                    key,
                    value,
                    headers,
                    timestamp_ms,
                    has_user_timestamp=has_user_timestamp,
                    size_bytes=size,
                    now=now,
                )
                if delivery is not None:
                    return delivery
            delivery = accumulator.append(
                chosen,
                key,
                value,
                headers,
                timestamp_ms,
                has_user_timestamp=has_user_timestamp,
                size_bytes=size,
                now=now,
                can_switch_partition=queue is None,
            )
        if not more_follow:
            sender.perform()
        return delivery

    async def wait_and_append(self, record: RecordArgs) -> Delivery:
        """Append a record, after waiting up to `max_block_ms` for metadata and space.

        Raises:
            BufferFull: The buffer has no space.
            UnknownTopic: The topic or partition does not exist.
            RequestTimedOut: No broker returned the topic's metadata.
        """
        transaction = self._transaction()
        sender, pool = self._sender, self._accumulator.pool
        deadline = self._now() + sender.config.max_block_ms / 1_000
        topic, partition, size = record[0], record[3], record[6]
        await self.wait_for_topic_queues(topic, deadline)
        if partition is not None:
            await self._wait_for_partition(topic, partition, deadline)
        self._check_same_transaction(transaction)
        delivery = self.append(record)
        if delivery is not None:
            return delivery
        self._accumulator.begin_flush()
        sender.perform()
        try:
            await sender.buffer_waiters.wait(lambda: pool.has_room(size), deadline)
        finally:
            self._accumulator.end_flush()
        self._check_same_transaction(transaction)
        delivery = self.append(record, waited=True)
        if delivery is None:
            raise UnknownTopic(
                "the partition was deleted during the call", topic=topic, partition=partition
            )
        return delivery

    def append_nowait(self, record: RecordArgs) -> Delivery:
        """Append a record, and call the hooks.

        Raises:
            BufferFull: The buffer has no space.
            UnknownTopic: The metadata of the topic is not known, or the partition does not exist.
        """
        if self.observer is None:
            return self.append(record) or self._raise_not_appended(record)
        record, sending = self.observer.begin(record)
        try:
            delivery = self.append(record) or self._raise_not_appended(record)
        except Exception as error:
            self.observer.end(sending, error)
            raise
        self.observer.wait_for(delivery, sending)
        return delivery

    def _raise_not_appended(self, record: RecordArgs) -> NoReturn:
        topic, partition = record[0], record[3]
        known = self._accumulator.topics.get(topic)
        if known is None:
            require_topic_name(topic)
            raise UnknownTopic(
                "the topic's partitions are not known yet: await partitions_for first", topic=topic
            )
        if partition is not None and partition not in known.by_partition:
            raise UnknownTopic(
                no_partition_text(topic, partition, known.by_partition),
                topic=topic,
                partition=partition,
            )
        raise BufferFull("the buffer is full: await something, or use send", topic=topic)

    async def append_or_wait(self, record: RecordArgs) -> Delivery:
        """Append a record, which waits if `append` cannot append it, and call the hooks."""
        if self.observer is None:
            return await self.wait_and_append(record)
        record, sending = self.observer.begin(record)
        try:
            delivery = self.append(record)
            if delivery is None:
                delivery = await self.wait_and_append(record)
        except BaseException as error:
            self.observer.end(sending, error)
            raise
        self.observer.wait_for(delivery, sending)
        return delivery

    async def append_columns(self, columns: RecordColumns, deliveries: Deliveries) -> None:
        """Append all records, with a wait where there is no space."""
        yield_budget = self.yield_budget
        start, count = 0, columns.count
        while start < count:
            if yield_budget.calls_left <= 0:
                await self.checkpoint()
            if self.observer is not None:
                deliveries.add(await self.append_or_wait(columns.record(start)), 1)
                yield_budget.calls_left -= 1
                start += 1
                continue
            start = self._append_until_checkpoint(columns, start, deliveries)
            if start < count and yield_budget.calls_left > 0:
                deliveries.add(await self.wait_and_append(columns.record(start)), 1)
                yield_budget.calls_left -= 1
                start += 1

    def _append_until_checkpoint(
        self, columns: RecordColumns, start: int, deliveries: Deliveries
    ) -> int:
        """Append records until the next checkpoint, or until one has to wait.

        The records are sent together. Returns the index of the next record.
        """
        yield_budget = self.yield_budget
        try:
            while start < columns.count and yield_budget.calls_left > 0:
                stop = min(columns.count, start + yield_budget.calls_left)
                taken = self._append_run(columns, start, stop, deliveries) if columns.is_fast else 0
                if not taken:
                    delivery = self.append(columns.record(start), more_follow=True)
                    if delivery is None:
                        break
                    deliveries.add(delivery, 1)
                    taken = 1
                yield_budget.calls_left -= taken
                start += taken
        finally:
            self._sender.perform()
        return start

    def _append_run(
        self, columns: RecordColumns, start: int, stop: int, deliveries: Deliveries
    ) -> int:
        """Append records to the open batch of one partition; return how many had space."""
        queues = self._fast_topics.get(columns.topic)
        if queues is None or (
            self._transaction_manager is not None and not self._transaction_manager.is_open
        ):
            return 0
        if columns.partition is None:
            queue = queues.sticky_queue
        else:
            queue = queues.by_partition.get(columns.partition)
        builder = None if queue is None else queue.builder
        if builder is None:
            return 0
        now_ms, first = self._wall_ns() // 1_000_000, builder.count
        taken = builder.put_many(now_ms, columns.keys, columns.values, start, stop) - start
        if taken:
            deliveries.add(Delivery(builder.future, first, now_ms), taken)
        return taken

    async def checkpoint(self) -> None:
        """Let other tasks run before a record is appended."""
        transaction = self._transaction()
        await self.yield_budget.checkpoint()
        self._check_same_transaction(transaction)

    def _transaction(self) -> Transaction | None:
        return (
            None
            if self._transaction_manager is None
            else self._transaction_manager.machine.transaction
        )

    def _check_same_transaction(self, transaction: Transaction | None) -> None:
        """Raise if the transaction in which the call began is no longer open.

        In a later transaction the application may already be repeating the same work.
        """
        if self._transaction_manager is not None:
            self._sender.raise_if_failed()
            self._transaction_manager.check_same(transaction)

    async def wait_for_topic_queues(self, topic: str, deadline: float) -> TopicQueues:
        """Wait for the metadata of a topic, and return its queues.

        Raises:
            ValueError: The name is not valid for a topic.
            KafkaError: The errors of `Cluster.topic_metadata`.
        """
        if topic not in self._accumulator.topics:
            if isinstance(topic, str):
                require_topic_name(topic)
            await self._sender.cluster.topic_metadata(topic, deadline, keep=True)
            if not self._sender.add_topic(topic):
                raise UnknownTopic("the topic was deleted during the call", topic=topic)
        queues = self._accumulator.topics[topic]
        queues.last_used_at = self._now()
        return queues

    async def _wait_for_partition(self, topic: str, partition: int, deadline: float) -> None:
        """Wait until a partition exists: the topic may be getting more partitions.

        Logs a warning if a broker reports that it does not exist, which is usually a mistake.
        """
        cluster = self._sender.cluster
        queues = self._accumulator.topics[topic]
        max_block_s = self._sender.config.max_block_ms / 1_000
        while partition not in queues.by_partition:
            version = cluster.metadata.version
            cluster.request_update()
            known = await cluster.wait_update(version, deadline)
            if partition in queues.by_partition:
                return
            problem = no_partition_text(topic, partition, queues.by_partition)
            if not known:
                raise UnknownTopic(
                    f"{problem}; waited for it for {max_block_s:g} s (max_block_ms)",
                    topic=topic,
                    partition=partition,
                )
            supervisor = self._sender.supervisor
            logger.log(
                self._log_limit.level(logging.WARNING, problem, self._now()),
                "%s: %s; waiting for it up to %g s (max_block_ms)",
                supervisor.name,
                problem,
                max_block_s,
                extra=log_fields(supervisor.fields, tp=TopicPartition(topic, partition)),
            )

    def _choose_queue(
        self, queues: TopicQueues, partition: int | None, key: bytes | None
    ) -> PartitionQueue | None:
        """Return the queue of a partition or key; None if unknown, or for the sticky one."""
        if partition is not None:
            return queues.by_partition.get(partition)
        config = self._sender.config
        if config.partitioner is not None:
            return self._call_partitioner(queues, key)
        if key is not None and not config.partitioner_ignore_keys:
            return queues.queue_for_key(key)
        return None

    def _call_partitioner(self, queues: TopicQueues, key: bytes | None) -> PartitionQueue:
        partitioner = self._sender.config.partitioner
        assert partitioner is not None
        every = [queue.topic_partition.partition for queue in queues.queues]
        led = [
            queue.topic_partition.partition for queue in queues.queues if queue.leader is not None
        ]
        chosen = partitioner(key, every, led)
        if chosen not in every:
            raise ValueError(
                f"the partitioner returned {chosen!r}, which is not a partition of {queues.name!r}"
            )
        return queues.by_partition[chosen]
