"""The buffer of records, and which batches may be sent to which broker."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from uuid import UUID

from aiokafkawire.errors import KafkaError, TransactionAborted
from aiokafkawire.producer.accumulator_config import AccumulatorConfig, ProducerTotals
from aiokafkawire.producer.accumulator_effects import AccumulatorEffects
from aiokafkawire.producer.attempt_result import AttemptResult
from aiokafkawire.producer.batch import Batch, BatchState
from aiokafkawire.producer.batch_future import BatchAppended, BatchFailed, BatchFuture, BatchSplit
from aiokafkawire.producer.buffer_pool import BufferPool
from aiokafkawire.producer.delivery import Delivery
from aiokafkawire.producer.partition_queue import Completed, PartitionQueue
from aiokafkawire.producer.partitioner import choose_sticky_partition
from aiokafkawire.producer.producer_topics import ProducerTopics
from aiokafkawire.producer.sequences import ProducerIdState
from aiokafkawire.producer.topic_queues import TopicQueues
from aiokafkawire.producer.unreported_failures import UnreportedFailures
from aiokafkawire.producer.yield_budget import YieldBudget
from aiokafkawire.records import BatchBuilder, ClosedBatch, Compression
from aiokafkawire.records.batch import BATCH_OVERHEAD_BYTES
from aiokafkawire.records.kernel import Buffer, Headers
from aiokafkawire.runtime import AT_ONCE, NEVER
from aiokafkawire.types import NodeId, TopicPartition

__all__ = ("Accumulator",)

_DONE = BatchState.DONE


class Accumulator:
    """The producer's buffer: a queue of batches for each partition.

    What follows from a call is left in `effects`. `Sender.perform` acts on them, and has to be
    called after each call that may add some.

    Args:
        config: Limits and compression.
        producer_id_state: The producer id for idempotence; None without idempotence.

    Attributes:
        all_topics: The queues of the topics in use and of idle ones.
        topics: The topics in use, by name.
        effects: What the sender has to do.
        sends_immediately: A record that waits for nothing is sent in the call that appends it.
        unreported_failures: Stays empty with transactions, whose calls raise the failures.
    """

    def __init__(
        self, config: AccumulatorConfig, producer_id_state: ProducerIdState | None
    ) -> None:
        self.config = config
        self.producer_id_state = producer_id_state
        self.all_topics = ProducerTopics(config.queue)
        self.topics = self.all_topics.in_use
        self.totals = ProducerTotals()
        self.unreported_failures = UnreportedFailures(disabled=config.transactional)
        self.yield_budget = YieldBudget()
        self.pool = BufferPool(config.buffer_memory_bytes, config.queue.batch_size_bytes)
        self.incomplete: dict[BatchFuture, None] = {}
        self.flushes_in_progress = 0
        self.abort_error: TransactionAborted | None = None
        self._active: dict[NodeId | None, dict[PartitionQueue, None]] = {}
        self._drained_at: dict[NodeId, float] = {}
        self.sends_immediately = (
            not config.queue.linger_s
            and not config.transactional
            and config.compression is Compression.NONE
        )
        self.effects = AccumulatorEffects()

    # --- append ---

    def append(
        self,
        queue: PartitionQueue,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        timestamp_ms: int,
        *,
        has_user_timestamp: bool = False,
        size_bytes: int,
        now: float,
        can_switch_partition: bool = False,
    ) -> Delivery | None:
        """Append a record to the open batch of its partition, or to a new one.

        The caller has checked `BufferPool.has_room`.

        Args:
            has_user_timestamp: The application gave `timestamp_ms`.
            size_bytes: Upper bound of the record's encoded size.
            can_switch_partition: If the open batch has no room, close it and return None, so that
                the caller can choose another partition.
        """
        batch, index, first = queue.open, None, False
        if batch is not None:
            builder = self.pool.reserve(queue, size_bytes)
            index = builder.append(timestamp_ms, key, value, headers)
            if index is None:
                self.close_batch(queue)
                if can_switch_partition:
                    return None
        if batch is None or index is None:
            first = not queue.waiting
            batch = self._begin_batch(queue, now)
            builder = self.pool.reserve(queue, size_bytes)
            index = builder.append(timestamp_ms, key, value, headers)
            assert index is not None
        delivery = Delivery(batch.future, index, timestamp_ms)
        if has_user_timestamp:
            builder.has_user_timestamp = True
        if builder.body_bytes >= self.pool.max_body_bytes:
            self.close_batch(queue)
        elif self.flushes_in_progress:
            self.pool.release_unused()
        else:
            queue.builder = builder
        if first:  # No other batch is before it.
            node = queue.leader
            self._active.setdefault(node, {})[queue] = None
            if node is not None and not self.config.queue.linger_s:
                self.effects.ready[node] = None
            else:
                self.effects.wake(node, AT_ONCE if self.flushes_in_progress else batch.linger_until)
        return delivery

    def append_alone(  # noqa: PLR0917 - a record's parts in their usual order
        self,
        topic: TopicQueues,
        queue: PartitionQueue,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        timestamp_ms: int,
        *,
        has_user_timestamp: bool = False,
        size_bytes: int,
        now: float,
    ) -> Batch | None:
        """Return a batch of one record, as if it had been appended, closed and drained.

        Returns None, without any effect, if the record has to wait or fills a batch. The caller has
        checked `BufferPool.has_room`, and sends the batch.
        """
        node = queue.leader
        if node is None or node in self._active:
            return None
        if size_bytes >= self.pool.max_body_bytes or not queue.can_send_immediately(now):
            return None
        records = ClosedBatch.single_record(timestamp_ms, key, value, headers)
        partition = queue.topic_partition.partition
        future = BatchFuture(topic.name, partition, self.unreported_failures, self.yield_budget)
        future.count = 1
        records.has_user_timestamp = has_user_timestamp
        order = queue.last_order = queue.last_order + 1
        expires_at = now + self.config.queue.delivery_timeout_s
        batch = Batch(future, records, (order,), now, expires_at)
        batch.reserved_bytes = body_bytes = records.size_bytes - BATCH_OVERHEAD_BYTES
        self.pool.used_bytes += body_bytes
        topic.last_used_at = self._drained_at[node] = now
        self.incomplete[future] = None
        queue.mark_sent(batch)
        if topic.sticky_queue is queue:
            topic.update_sticky(body_bytes)
        totals = self.totals
        totals.batches_sent += 1
        totals.batch_bytes_sent += records.size_bytes
        totals.queue_time.count += 1
        return batch

    def _begin_batch(self, queue: PartitionQueue, now: float) -> Batch:
        config, queue_config = self.config, self.config.queue
        builder = BatchBuilder(
            config.compression, config.compression_level, queue_config.batch_size_bytes
        )
        topic, partition = queue.topic_partition
        self.topics[topic].last_used_at = now
        future = builder.future = BatchFuture(
            topic, partition, self.unreported_failures, self.yield_budget
        )
        builder.handle_class = Delivery
        queue.last_order += 1
        linger_until = now + queue_config.linger_s
        expires_at = now + queue_config.delivery_timeout_s
        batch = Batch(future, builder, (queue.last_order,), linger_until, expires_at)
        queue.add_open_batch(batch, now)
        self.incomplete[future] = None
        return batch

    def choose_sticky_queue(
        self, topic: TopicQueues, rng: random.Random, now: float
    ) -> PartitionQueue:
        """Return the queue for a record without a key (KIP-480, KIP-794, KIP-1123)."""
        queue = topic.sticky_queue
        if queue is None:
            unavailable, preferred = self._unavailable_nodes(now), self.all_topics.nodes_in_rack
            lengths = topic.queue_lengths(self.config.adaptive, unavailable, preferred)
            position = choose_sticky_partition(lengths, rng)
            queue = topic.sticky_queue = topic.queues[position]
            topic.sticky_bytes = 0
        return queue

    def _unavailable_nodes(self, now: float) -> set[NodeId | None]:
        """Return the brokers for which batches have waited for `availability_timeout_s`."""
        if not self.config.availability_timeout_s:
            return set()
        since = now - self.config.availability_timeout_s
        return {
            node
            for node, queues in self._active.items()
            if node is not None
            and self._drained_at.get(node, -NEVER) <= since
            and any(queue.waiting[0].linger_until <= since for queue in queues)
        }

    def close_batch(self, queue: PartitionQueue) -> None:
        """Close the open batch of a partition."""
        self._close_open(queue)
        self.yield_budget.batch_ended()
        self.effects.wake(queue.leader, AT_ONCE)

    def _close_open(self, queue: PartitionQueue) -> None:
        """Close the open batch; release what it reserved and did not use."""
        batch = queue.open
        assert batch is not None
        assert batch.builder is not None
        body_bytes = batch.builder.body_bytes
        batch.close()
        queue.open = queue.builder = None
        self.pool.close(queue, batch, body_bytes)
        topic = self.topics[batch.future.topic]
        if topic.sticky_queue is queue:
            topic.update_sticky(body_bytes)

    def _on_completed(self, batches: Completed) -> None:
        """Release the memory of completed batches."""
        for batch in batches:
            future = batch.future
            del self.incomplete[future]
            # mutation: failed-batches-keep-buffer-space
            self.pool.used_bytes -= batch.reserved_bytes
            outcome = future.value
            if type(outcome) is BatchAppended:
                self.totals.records_delivered += future.count
            elif isinstance(outcome, BatchFailed):
                self.totals.records_failed += future.count
                if self.config.transactional:
                    self.effects.failure = self.effects.failure or outcome
            elif isinstance(outcome, BatchSplit):
                self.totals.batches_split += 1
                self.incomplete.update(dict.fromkeys(outcome.parts))
            self.effects.any_completed = True

    def begin_flush(self) -> None:
        """Send batches without linger until the matching `end_flush`; calls may overlap."""
        self.flushes_in_progress += 1
        self.pool.release_unused()
        self.effects.add_ready(self._active)

    def end_flush(self) -> None:
        """End one `begin_flush`; batches linger again after the last one."""
        self.flushes_in_progress -= 1

    # --- metadata ---

    def set_topic(self, name: str, partitions: Iterable[int], topic_id: UUID) -> TopicQueues:
        """Apply the metadata of a topic. Existing queues are kept; a new topic id restarts them."""
        topic = self.all_topics.update(name, partitions, self.producer_id_state)
        if topic.set_id(topic_id):
            self.topic_recreated(name)
        return topic

    def topic_recreated(self, name: str) -> None:
        """Restart the sequence numbers of a topic that was deleted and recreated."""
        for queue in self.topics[name].all_queues.values():
            self._on_completed(queue.topic_recreated())

    def deactivate_idle_topics(self, before: float) -> list[str]:
        """Deactivate the topics that were not used since a time, and return their names."""
        idle = self.all_topics.deactivate_idle(before)
        state = self.producer_id_state
        if self.all_topics.forget_oldest_idle() and state is not None and state.current is not None:
            state.bump_epoch(state.current)
        return idle

    def set_leaders(
        self,
        leader_of: Callable[[TopicPartition], NodeId | None],
        only: Iterable[TopicQueues] | None = None,
    ) -> None:
        """Move the queues of the given topics, by default of all, to their current leaders."""
        for topic in self.topics.values() if only is None else only:
            for queue in topic.all_queues.values():
                leader = leader_of(queue.topic_partition)
                if leader != queue.leader:
                    # mutation: moved-partition-stays-with-old-leader
                    self._deactivate(queue)
                    queue.leader = leader
                    self._queue_changed(queue)

    def disable_idempotence(self) -> None:
        """Continue without producer id and sequence numbers."""
        self.producer_id_state = None
        self.all_topics.disable_sequences()
        self.wake_all()

    def wake_all(self) -> None:
        """Check the batches of all brokers."""
        self.effects.wakeups.update(dict.fromkeys(self._active, AT_ONCE))

    @property
    def leader_missing(self) -> bool:
        """True if batches wait for a partition without a leader."""
        return bool(self._active.get(None))

    # --- drain ---

    def has_waiting(self, node: NodeId) -> bool:
        """Return whether a broker has closed or open batches to send."""
        return node in self._active

    def sendable_at(self, node: NodeId) -> float:
        """Return the time of the next batch for a broker; NEVER if only a call can change it."""
        queues = self._active.get(node)
        if queues is None:
            return NEVER
        flushing = self.flushes_in_progress > 0
        if len(queues) > 1:
            return min([queue.sendable_at(flushing) for queue in queues])
        (queue,) = queues
        return queue.sendable_at(flushing)

    def all_have_ids(self, node: NodeId) -> bool:
        """Return whether all topics with batches for a broker have a known topic id."""
        for queue in self._active.get(node, ()):
            if not self.topics[queue.topic_partition.topic].topic_id.int:
                return False
        return True

    def close_due(self, node: NodeId, now: float, min_bytes: int) -> list[Batch]:
        """Close the due batches of at least `min_bytes`, without draining them."""
        flushing = self.flushes_in_progress > 0
        return [
            self._close_head(queue)
            for queue in self._active.get(node, ())
            if queue.sendable_at(flushing) <= now
            and (head := queue.head()) is not None
            and head.size_bytes >= min_bytes
        ]

    def _close_head(self, queue: PartitionQueue) -> Batch:
        """Return the next batch of a partition, closed."""
        head = queue.head()
        assert head is not None
        if head is queue.open:
            self._close_open(queue)
        return head

    def oversize_suspect_due(self, node: NodeId, now: float) -> bool:
        """Return whether the next batch may have caused a disconnect by its size."""
        flushing = self.flushes_in_progress > 0
        for queue in self._active.get(node, ()):
            if queue.sendable_at(flushing) <= now:
                head = queue.head()
                return head is not None and head.oversize_disconnects > 0
        return False

    def drain(self, node: NodeId, now: float, max_bytes: int, *, due: bool = False) -> list[Batch]:
        """Take the batches for one Produce request, one per partition.

        Partitions that are left out come first in the next request. A batch that may have caused a
        disconnect by its size is sent alone.

        Args:
            max_bytes: Limit for all batches together; the first batch may exceed it.
            due: `sendable_at` has just returned that a batch is due.
        """
        taken: list[Batch] = []
        size = 0
        active, totals = self._active.get(node, {}), self.totals
        only_due, timeout_s = due and len(active) == 1, self.config.queue.delivery_timeout_s
        for queue in list(active):
            if not only_due and queue.sendable_at(self.flushes_in_progress > 0) > now:
                continue
            batch = self._close_head(queue)
            size += (batch_bytes := batch.size_bytes)
            if taken and (size > max_bytes or batch.oversize_disconnects):
                break
            queue.take(batch)
            taken.append(batch)
            totals.batches_sent += 1
            totals.batches_resent += batch.attempts > 1
            totals.batch_bytes_sent += batch_bytes
            totals.queue_time.count += 1
            totals.queue_time.sum_s += (queued_s := now - batch.expires_at + timeout_s)
            totals.queue_time.latest_max_s = max(totals.queue_time.latest_max_s, queued_s)
            del active[queue]
            if queue.waiting:
                active[queue] = None  # behind the others
            if batch.oversize_disconnects:
                break
        if taken:
            self._drained_at[node] = now
            if not active:
                del self._active[node]
        return taken

    def handle_result(
        self, batch: Batch, result: AttemptResult, now: float, not_before: float
    ) -> bool:
        """Apply the result of an attempt; see `PartitionQueue.handle_result`.

        Returns False for a batch that has expired before.
        """
        future = batch.future
        if batch.state is _DONE:  # The batch expired, and its topic may have become idle.
            topic = self.all_topics.find(future.topic)
            if topic is not None:
                topic.all_queues[future.partition].expired_in_flight.discard(batch)
            return False
        queue = self.topics[future.topic].all_queues[future.partition]
        self._on_completed(queue.handle_result(batch, result, now, not_before, self.abort_error))
        if queue.waiting or self._active:
            self._queue_changed(queue)
        return True

    def node_unreachable(self, node: NodeId, error: KafkaError) -> None:
        """Keep the connection error as the reason if batches for this broker expire."""
        for queue in self._active.get(node, ()):
            head = queue.head()
            if head is not None and not head.uncertain:
                head.last_error = error

    # --- expiry and abort ---

    def expire(self, now: float) -> float:
        """Fail the batches past their delivery timeout; return when the next one expires."""
        soonest = NEVER
        for queue in self.all_topics.queues():
            if queue.next_expiry() <= now:
                self._on_completed(queue.expire(now))
                self._queue_changed(queue)
            soonest = min(soonest, queue.next_expiry())
        return soonest

    def abort(self, error: KafkaError, node: NodeId | None = None) -> None:
        """Fail all batches, or those that wait for a broker."""
        for queue in self.all_topics.queues() if node is None else [*self._active.get(node, ())]:
            self._on_completed(queue.abort(error))
            self._deactivate(queue)

    def remove_node(self, node: NodeId) -> None:
        """Forget a broker that left the cluster and has no batches."""
        self._drained_at.pop(node, None)

    def abort_transaction(self, error: TransactionAborted, *, in_flight: bool) -> None:
        """Fail all waiting batches with `error`, and do not retry batches from now on.

        Args:
            error: Set as `abort_error` until the next transaction begins.
            in_flight: Fail the batches in flight too, regardless of their response.
        """
        self.abort_error = error
        for queue in self.all_topics.queues():
            self._on_completed(queue.abort_transaction(error, in_flight=in_flight))
            self._deactivate(queue)

    def _queue_changed(self, queue: PartitionQueue) -> None:
        """Register a changed queue with its leader, whose batches are checked at once."""
        if queue.waiting:
            self._active.setdefault(queue.leader, {})[queue] = None
            self.effects.wake(queue.leader, AT_ONCE)
        elif self._active:
            self._deactivate(queue)

    def _deactivate(self, queue: PartitionQueue) -> None:
        queues = self._active.get(queue.leader)
        if queues is not None:
            queues.pop(queue, None)
            if not queues:
                del self._active[queue.leader]
